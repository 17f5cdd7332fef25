/* SPDX-License-Identifier: Apache-2.0 */
/* Scope-bound ownership: release on every way out of a block. Includes nothing of ours. */
#pragma once

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(f) __attribute__((cleanup(f)))

/* Every cleanup keeps errno, so that an error survives the unwinding. */
static inline void freep(void *p)
{
	int saved = errno;

	free(*(void **)p);
	errno = saved;
}

static inline void closep(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	errno = saved;
}

/* Hand a descriptor or pointer to a new owner; the old variable no longer owns it. */
static inline int steal_fd(int *fd)
{
	int r = *fd;

	*fd = -1;
	return r;
}

static inline void *steal_ptr_(void *pp)
{
	void *r = *(void **)pp;

	*(void **)pp = NULL;
	return r;
}
#define steal_ptr(pp) ((__typeof__(*(pp)))steal_ptr_(pp))

#define VENEER_CAT_(a, b) a##b
#define VENEER_CAT(a, b)  VENEER_CAT_(a, b)
