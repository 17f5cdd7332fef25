// SPDX-License-Identifier: Apache-2.0
#include "veneer/recover/supervisor_state.h"

#include "veneer/base/clock.h"
#include "veneer/base/invariants.h"
#include "veneer/base/minmax.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define STRIKES_APART_S 60

struct place {
	_Alignas(64) _Atomic int32_t fd; /* and one; 0: free */
	_Atomic uint32_t cost_ms;
	_Atomic uint32_t strikes;
	_Atomic int64_t struck_s; /* the last time */
	struct activity activity;
};

struct supervisor_state {
	_Atomic uint32_t is_left; /* 0 or 1 */
	_Atomic uint32_t going; /* enum supervisor_state_going */
	_Atomic unsigned deaths;
	struct crash_board board;
	struct activity asked;
	_Atomic uint64_t last_key;
	size_t extra_bytes;
	_Atomic int32_t recovery, word; /* descriptors, and one; 0: none */
	_Atomic uint32_t end; /* places from here on were never used: nobody need look at them */
	struct place places[SUPERVISOR_STATE_MOUNTS_MAX];
	_Alignas(64) unsigned char extra[];
};

/* Servers die over this memory: contents that none of them can have written are not believed. */
static int descriptor(int32_t stored)
{
	return stored > 0 ? stored - 1 : -1;
}

static uint32_t end_of(const struct supervisor_state *l)
{
	uint32_t end = l->end;

	return MIN(end, SUPERVISOR_STATE_MOUNTS_MAX);
}

int supervisor_state_new(size_t extra_bytes, struct supervisor_state **ret)
{
	struct supervisor_state *l = mmap(NULL, sizeof(*l) + extra_bytes, PROT_READ | PROT_WRITE,
					  MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (l == MAP_FAILED)
		return -ENOMEM;
	l->extra_bytes = extra_bytes;
	*ret = l;
	return 0;
}

void *supervisor_state_extra(struct supervisor_state *l)
{
	return l->extra;
}

size_t supervisor_state_extra_bytes(const struct supervisor_state *l)
{
	return l->extra_bytes;
}

uint64_t supervisor_state_key(struct supervisor_state *l)
{
	return ++l->last_key;
}

uint64_t supervisor_state_last_key(const struct supervisor_state *l)
{
	return l->last_key;
}

void supervisor_state_set_last_key(struct supervisor_state *l, uint64_t key)
{
	l->last_key = key;
}

int supervisor_state_put(struct supervisor_state *l, int fd, uint32_t *ret_place)
{
	for (uint32_t k = 0; k < SUPERVISOR_STATE_MOUNTS_MAX; k++) {
		struct place *p = &l->places[k];
		int32_t nothing = 0;
		uint32_t end = l->end;

		if (p->fd != 0)
			continue;
		/* Before the place is taken: a thread that looks for taken ones must see it. */
		while (end <= k && !atomic_compare_exchange_weak(&l->end, &end, k + 1))
			;
		if (atomic_compare_exchange_strong(&p->fd, &nothing, fd + 1)) {
			p->cost_ms = p->strikes = 0;
			INVARIANTS(supervisor_state_check_invariants(l, k));
			*ret_place = k;
			return 0;
		}
	}
	return -ENOSPC;
}

void supervisor_state_drop(struct supervisor_state *l, uint32_t place)
{
	if (place < SUPERVISOR_STATE_MOUNTS_MAX)
		l->places[place].fd = 0;
}

void supervisor_state_each(struct supervisor_state *l,
			   void (*fn)(int fd, uint32_t place, void *arg), void *arg)
{
	for (uint32_t k = 0; k < end_of(l); k++) {
		int fd = descriptor(l->places[k].fd);

		if (fd >= 0)
			fn(fd, k, arg);
	}
}

void supervisor_state_note_cost(struct supervisor_state *l, uint32_t place, uint32_t ms)
{
	if (place < SUPERVISOR_STATE_MOUNTS_MAX)
		l->places[place].cost_ms = ms;
}

uint32_t supervisor_state_cost(const struct supervisor_state *l, uint32_t place)
{
	return place < SUPERVISOR_STATE_MOUNTS_MAX ? l->places[place].cost_ms : 0;
}

struct activity *supervisor_state_activity(struct supervisor_state *l, uint32_t place)
{
	return place < SUPERVISOR_STATE_MOUNTS_MAX ? &l->places[place].activity : NULL;
}

struct crash_board *supervisor_state_board(struct supervisor_state *l)
{
	return &l->board;
}

static void strike(struct place *p)
{
	const int64_t now = clock_s();

	/* A strike in the future does not count. */
	if ((uint64_t)now - (uint64_t)p->struck_s > STRIKES_APART_S)
		p->strikes = 0;
	p->strikes++;
	p->struck_s = now;
}

struct activity *supervisor_state_asked(struct supervisor_state *l)
{
	return &l->asked;
}

/* Where the activity of the crash is not known, each one that had a thread takes the blame. */
static bool take_blame(struct activity *d, uint32_t crash)
{
	const bool was_at_it = atomic_exchange(&d->nthreads, 0) && crash == ACTIVITY_NOTHING_KNOWN;
	const bool is_suspect = atomic_exchange(&d->is_suspect, 0) && crash == ACTIVITY_SUSPECT;

	return was_at_it || is_suspect;
}

bool supervisor_state_judge(struct supervisor_state *l, bool is_crash)
{
	const uint32_t crash = atomic_exchange(&l->board.crash, ACTIVITY_NOTHING_KNOWN);
	bool is_any = take_blame(&l->asked, crash) && is_crash;

	/* The next server's threads may have the same ids. */
	l->board.crashed = 0;
	for (int k = 0; k < ACTIVITY_WAITERS; k++)
		l->board.waiting[k] = 0;
	for (uint32_t k = 0; k < end_of(l); k++) {
		struct place *p = &l->places[k];

		if (!take_blame(&p->activity, crash) || !is_crash || !p->fd)
			continue;
		strike(p);
		is_any = true;
		INVARIANTS(supervisor_state_check_invariants(l, k));
	}
	return is_any;
}

bool supervisor_state_is_given_up(const struct supervisor_state *l, uint32_t place)
{
	return place < SUPERVISOR_STATE_MOUNTS_MAX &&
	       l->places[place].strikes >= SUPERVISOR_STATE_STRIKES;
}

void supervisor_state_leave(struct supervisor_state *l)
{
	l->is_left = true;
}

bool supervisor_state_is_left(const struct supervisor_state *l)
{
	return l->is_left;
}

void supervisor_state_note_going(struct supervisor_state *l, enum supervisor_state_going how)
{
	l->going = how;
}

enum supervisor_state_going supervisor_state_going(const struct supervisor_state *l)
{
	uint32_t going = l->going;

	return going <= SUPERVISOR_STATE_IS_WITHDRAWN ? (enum supervisor_state_going)going
						      : SUPERVISOR_STATE_STAYS;
}

unsigned supervisor_state_deaths(const struct supervisor_state *l)
{
	return l->deaths;
}

void supervisor_state_note_death(struct supervisor_state *l)
{
	l->deaths++;
}

int supervisor_state_hand_over(struct supervisor_state *l, int fd)
{
	int32_t nobody = 0;

	return atomic_compare_exchange_strong(&l->recovery, &nobody, fd + 1) ? 0 : -EBUSY;
}

int supervisor_state_take_hand_over(struct supervisor_state *l)
{
	return descriptor(atomic_exchange(&l->recovery, 0));
}

void supervisor_state_set_word(struct supervisor_state *l, int fd)
{
	l->word = fd + 1;
}

int supervisor_state_word(const struct supervisor_state *l)
{
	return descriptor(l->word);
}

/* ---- invariants ---- */

/* Of the place alone: the rest may be what a crash made of it. */
const char *supervisor_state_check_invariants(const struct supervisor_state *l, uint32_t place)
{
	const struct place *p = &l->places[place];

	if (place >= end_of(l))
		return "supervisor_state: a place in use is one of those that are looked at";
	if (descriptor(p->fd) < 0)
		return "supervisor_state: a place in use has a descriptor";
	if (p->strikes && (uint64_t)p->struck_s > (uint64_t)clock_s())
		return "supervisor_state: a strike is of the past";
	return NULL;
}
