/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the server of a mount for a snapshot. */
#pragma once

#include <stddef.h>

/* Take a snapshot of the mount at this path, after writing its dirty pages. to: roll the mount back
 * to this snapshot; NULL: only take one. name: of the new snapshot; "" makes one from the time.
 * *ret_name: malloc'd. 0, or -errno and a sentence. */
int snapshot_call(const char *path, const char *to, const char *name, char **ret_name, char *err,
		  size_t err_size);
