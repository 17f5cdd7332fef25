/* SPDX-License-Identifier: Apache-2.0 */
/* Single flight: of concurrent callers with one key, one does the work and the others wait, then
 * look whether it is done. Where it failed each tries for itself, so that a thread waits for one
 * other at most. */
#pragma once

#include "veneer/base/list.h"

#include <stdbool.h>
#include <stdint.h>

/* On the stack of the thread whose turn it is. All fields belong to singleflight.c. */
struct singleflight {
	struct list_link link;
	const void *what;
	uint64_t number;
};

/* `what` is any address that stands for the thing. True: the caller's turn has begun, until
 * singleflight_end. False: another had it, and has ended it. In both cases it may have been done
 * since the caller looked. A caller with a turn never waits for one that could want its turn. */
bool singleflight_begin(struct singleflight *t, const void *what);
void singleflight_end(struct singleflight *t);
