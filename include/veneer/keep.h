/* SPDX-License-Identifier: Apache-2.0 */
/* What changing a file or directory changes besides, kept on it until it has been put back: a run that was killed is
 * made good by the next one. */
#pragma once

#include <sys/types.h>
#include <time.h>

#define KEEP_ATTR "user.veneer.flatten"

struct keep {
	struct timespec times[2];
	mode_t mode;
	_Alignas(8) char capability[256];
	size_t capability_len;
};

/* What an earlier run left: 1 with *ret, 0 when there is none (or no value of ours), -errno. */
int keep_load(int fd, struct keep *ret);
/* What there is now, stored where there is room. 0 or -errno. */
int keep_take(int fd, struct keep *ret);
/* Put it back, and take away what was stored. 0 or -errno. */
int keep_put_back(int fd, const struct keep *k);
