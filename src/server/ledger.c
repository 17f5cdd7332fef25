// SPDX-License-Identifier: Apache-2.0
#include "veneer/ledger.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

#define STRIKES_APART_S 60

struct place {
	_Alignas(64) _Atomic int32_t fd;	/* and one; 0: free */
	_Atomic uint32_t cost_ms;
	_Atomic uint32_t strikes;
	_Atomic int64_t struck_s;	/* the last time */
	struct duty duty;
};

struct ledger {
	_Atomic uint32_t is_left;	/* 0 or 1 */
	_Atomic uint32_t going;		/* enum ledger_going */
	_Atomic unsigned deaths;
	struct duty_board board;
	struct duty asked;
	_Atomic uint64_t last_key;
	size_t extra_bytes;
	_Atomic int32_t heir, word;	/* descriptors, and one; 0: none */
	_Atomic uint32_t end;		/* places from here on were never used: nobody need look at them */
	struct place places[LEDGER_MOUNTS_MAX];
	_Alignas(64) unsigned char extra[];
};

/* Servers die over this memory: what none of them can have written is not believed. */
static int descriptor(int32_t stored)
{
	return stored > 0 ? stored - 1 : -1;
}

static uint32_t end_of(const struct ledger *l)
{
	uint32_t end = l->end;

	return end < LEDGER_MOUNTS_MAX ? end : LEDGER_MOUNTS_MAX;
}

int ledger_new(size_t extra_bytes, struct ledger **ret)
{
	struct ledger *l = mmap(NULL, sizeof(*l) + extra_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (l == MAP_FAILED)
		return -ENOMEM;
	l->extra_bytes = extra_bytes;
	*ret = l;
	return 0;
}

void *ledger_extra(struct ledger *l)
{
	return l->extra;
}

size_t ledger_extra_bytes(const struct ledger *l)
{
	return l->extra_bytes;
}

uint64_t ledger_key(struct ledger *l)
{
	return ++l->last_key;
}

uint64_t ledger_last_key(const struct ledger *l)
{
	return l->last_key;
}

void ledger_set_last_key(struct ledger *l, uint64_t key)
{
	l->last_key = key;
}

int ledger_put(struct ledger *l, int fd, uint32_t *ret_place)
{
	for (uint32_t k = 0; k < LEDGER_MOUNTS_MAX; k++) {
		struct place *p = &l->places[k];
		int32_t nothing = 0;
		uint32_t end = l->end;

		if (p->fd != 0)
			continue;
		/* Before the place is taken: who looks for those that are must see it. */
		while (end <= k && !atomic_compare_exchange_weak(&l->end, &end, k + 1))
			;
		if (atomic_compare_exchange_strong(&p->fd, &nothing, fd + 1)) {
			p->cost_ms = p->strikes = 0;
			*ret_place = k;
			return 0;
		}
	}
	return -ENOSPC;
}

void ledger_drop(struct ledger *l, uint32_t place)
{
	if (place < LEDGER_MOUNTS_MAX)
		l->places[place].fd = 0;
}

void ledger_each(struct ledger *l, void (*fn)(int fd, uint32_t place, void *arg), void *arg)
{
	for (uint32_t k = 0; k < end_of(l); k++) {
		int fd = descriptor(l->places[k].fd);

		if (fd >= 0)
			fn(fd, k, arg);
	}
}

void ledger_note_cost(struct ledger *l, uint32_t place, uint32_t ms)
{
	if (place < LEDGER_MOUNTS_MAX)
		l->places[place].cost_ms = ms;
}

uint32_t ledger_cost(const struct ledger *l, uint32_t place)
{
	return place < LEDGER_MOUNTS_MAX ? l->places[place].cost_ms : 0;
}

struct duty *ledger_duty(struct ledger *l, uint32_t place)
{
	return place < LEDGER_MOUNTS_MAX ? &l->places[place].duty : NULL;
}

struct duty_board *ledger_board(struct ledger *l)
{
	return &l->board;
}

static void strike(struct place *p)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	/* One in the future is none. */
	if ((uint64_t)t.tv_sec - (uint64_t)p->struck_s > STRIKES_APART_S)
		p->strikes = 0;
	p->strikes++;
	p->struck_s = t.tv_sec;
}

struct duty *ledger_asked(struct ledger *l)
{
	return &l->asked;
}

/* Where it is not known which one it was, it was one of those that somebody was at. */
static bool take_blame(struct duty *d, uint32_t crash)
{
	const bool was_at_it = atomic_exchange(&d->nthreads, 0) && crash == DUTY_NOTHING_KNOWN;
	const bool is_blamed = atomic_exchange(&d->is_blamed, 0) && crash == DUTY_BLAMED;

	return was_at_it || is_blamed;
}

bool ledger_judge(struct ledger *l, bool is_crash)
{
	const uint32_t crash = atomic_exchange(&l->board.crash, DUTY_NOTHING_KNOWN);
	bool is_any = take_blame(&l->asked, crash) && is_crash;

	/* The next server's threads may have the same ids. */
	l->board.crashed = 0;
	for (int k = 0; k < DUTY_WAITERS; k++)
		l->board.waiting[k] = 0;
	for (uint32_t k = 0; k < end_of(l); k++) {
		struct place *p = &l->places[k];

		if (!take_blame(&p->duty, crash) || !is_crash || !p->fd)
			continue;
		strike(p);
		is_any = true;
	}
	return is_any;
}

bool ledger_is_given_up(const struct ledger *l, uint32_t place)
{
	return place < LEDGER_MOUNTS_MAX && l->places[place].strikes >= LEDGER_STRIKES;
}

void ledger_leave(struct ledger *l)
{
	l->is_left = true;
}

bool ledger_is_left(const struct ledger *l)
{
	return l->is_left;
}

void ledger_note_going(struct ledger *l, enum ledger_going how)
{
	l->going = how;
}

enum ledger_going ledger_going(const struct ledger *l)
{
	uint32_t going = l->going;

	return going <= LEDGER_IS_WITHDRAWN ? (enum ledger_going)going : LEDGER_STAYS;
}

unsigned ledger_deaths(const struct ledger *l)
{
	return l->deaths;
}

void ledger_note_death(struct ledger *l)
{
	l->deaths++;
}

int ledger_hand_over(struct ledger *l, int fd)
{
	int32_t nobody = 0;

	return atomic_compare_exchange_strong(&l->heir, &nobody, fd + 1) ? 0 : -EBUSY;
}

int ledger_take_hand_over(struct ledger *l)
{
	return descriptor(atomic_exchange(&l->heir, 0));
}

void ledger_set_word(struct ledger *l, int fd)
{
	l->word = fd + 1;
}

int ledger_word(const struct ledger *l)
{
	return descriptor(l->word);
}
