/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's id of this boot of the machine: data that was not synced survives only within one
 * boot. */
#pragma once

#define BOOT_ID_PATH "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_SIZE 37 /* of the text, including its NUL */

/* Any thread. Reads the id once and keeps it. 0; -ENOENT: the kernel has none (no /proc); -errno:
 * it is unknown now, and the caller must not assume another boot. */
int boot_id_read(char ret[BOOT_ID_SIZE]);
