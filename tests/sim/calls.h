/* SPDX-License-Identifier: Apache-2.0 */
/* How the calls of the program under test are answered: the linker's --wrap leads each of them to
 * the function of that name here (tests/sim/meson.build has the list). */
#pragma once

#include "fate.h"
#include "fds.h"

#include <errno.h>

/* The same call under the name that it has with large files. */
#define CALLS_ALSO(name, name64) \
	extern __typeof__(__wrap_##name) __wrap_##name64 __attribute__((alias("__wrap_" #name)))

/* Leave with -1 where fate says so. */
#define CALLS_FATE(kind, name)                     \
	do {                                       \
		int fate_ = fate_call(kind, name); \
		if (fate_) {                       \
			errno = fate_;             \
			return -1;                 \
		}                                  \
	} while (0)

/* There is no machine before main. A build that counts its lines (contrib/coverage.py) maps the
 * file of its counters by then, and the linker leads those calls here as well. */
static inline bool calls_are_early(void)
{
	return !sim;
}

/* r, or -1 and errno. */
static inline int64_t calls_result(int64_t r)
{
	if (r >= 0)
		return r;
	errno = (int)-r;
	return -1;
}

/* The object of a path; 0 and errno. */
uint32_t calls_object(int dirfd, const char *path);
