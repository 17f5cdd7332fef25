/* SPDX-License-Identifier: Apache-2.0 */
/* Times, mode and capability of a file or directory that is being rewritten. The times are saved on
 * it too, so that the next run can restore them after a crash. Nothing on a file tells whether
 * another program wrote it after the crash, which takes set-id bits and the capability away for
 * good: no record restores those. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

#define SAVED_ATTRS_ATTR      "trusted.veneer.flatten"
#define SAVED_ATTRS_USER_ATTR "user.veneer.flatten" /* where the first is not permitted */

struct saved_attrs {
	struct timespec times[2];
	bool is_loaded; /* by a later run: neither of the following is restored */
	mode_t mode;
	_Alignas(8) char capability[256];
	size_t capability_len;
};

/* Does the file have a record? In doubt no. */
bool saved_attrs_is_there(int dirfd, const char *name);
/* Save the present state; times that an earlier run saved stand. 0 or -errno. */
int saved_attrs_take(int fd, struct saved_attrs *ret);
/* Restore it, and remove the saved state. 0 or -errno. */
int saved_attrs_put_back(int fd, const struct saved_attrs *s);
/* Restore the times that an earlier run saved: 1, 0 if there is nothing (or no value of ours),
 * -errno. */
int saved_attrs_recover(int fd);
