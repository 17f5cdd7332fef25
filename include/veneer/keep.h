/* SPDX-License-Identifier: Apache-2.0 */
/* Times, mode and capability of a file or directory that is being rewritten, saved so that the next run can restore them
 * after a crash. Every writer of a file may give it user.* attributes: from those only times are restored, and set-id
 * bits from no attribute at all. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

#define KEEP_ATTR "trusted.veneer.flatten"
#define KEEP_USER_ATTR "user.veneer.flatten"	/* where the first is not permitted */

struct keep {
	struct timespec times[2];
	mode_t mode;		/* as it was taken; a loaded one is not restored */
	bool is_loaded;
	_Alignas(8) char capability[256];
	size_t capability_len;
};

/* Does the file have a record? In doubt no. */
bool keep_is_there(int dirfd, const char *name);
/* Save what there is now; times that an earlier run saved stand. 0 or -errno. */
int keep_take(int fd, struct keep *ret);
/* Restore it, and remove what was saved. 0 or -errno. */
int keep_put_back(int fd, const struct keep *k);
/* Restore what an earlier run saved: 1, 0 if there is nothing (or no value of ours), -errno. */
int keep_recover(int fd);
