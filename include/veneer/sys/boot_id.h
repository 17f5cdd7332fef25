/* SPDX-License-Identifier: Apache-2.0 */
/* The id of this boot of the machine, as the kernel names it: data that was not synced is there in
 * the same boot only. */
#pragma once

#define BOOT_ID_PATH "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_SIZE 37 /* of the text, its end included */

/* Any thread; asks the kernel until it has answered once. 0; -ENOENT: it names none (no /proc);
 * -errno: it is not known now, and the caller must not go on as if it were another boot. */
int boot_id_read(char ret[BOOT_ID_SIZE]);
