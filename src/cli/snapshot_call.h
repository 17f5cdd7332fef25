/* SPDX-License-Identifier: Apache-2.0 */
/* Asking the server of a mount for a snapshot. */
#pragma once

#include <stddef.h>

/* Take a snapshot of the mount at this path. Its dirty pages go to the server first. to: the
 * mount goes back to this snapshot; NULL: it goes on as it is. name: of the new snapshot, "" for
 * one that says the time; *ret_name: malloc'd. 0, or -errno and a sentence. */
int snapshot_call(const char *path, const char *to, const char *name, char **ret_name, char *err,
		  size_t err_size);
