// SPDX-License-Identifier: Apache-2.0
/* Rings are never freed and never leave the list, so that the reader needs no lock; one whose
 * thread has gone is taken by the next thread that has none. There are as many as there were
 * threads at one time.
 *
 * Invariants: `head` is written by the owner alone, `tail` by the reader alone; entries
 * tail..head-1 are the reader's, the others the owner's. A thread that notes something and the
 * reader that goes to sleep each write and then look, with a fence between: one of the two sees the
 *
 * other. */
#include "veneer/base/page_events.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/lock.h"

#include <stdatomic.h>

#define RING_NOTES 512u /* a power of two */

struct ring {
	struct ring *next; /* constant once it is in the list */
	_Atomic bool is_owned;
	_Atomic uint32_t head, tail;
	_Atomic uint64_t lost;
	struct page_dups_sent notes[RING_NOTES];
};

enum sleep { AWAKE, SLEEPS, SLEEPS_LIGHTLY };

static _Atomic(struct ring *) rings;
static _Atomic int reader = AWAKE;
static _Thread_local struct ring *own;

static struct {
	mutex_t lock;
	pthread_cond_t woken;
	GUARDED_BY(lock) bool is_woken;
} bell = { .lock = PTHREAD_MUTEX_INITIALIZER, .woken = PTHREAD_COND_INITIALIZER };

/* Take a ring without an owner, or a new one; NULL: no memory. */
static struct ring *take_ring(void)
{
	struct ring *r;

	for (r = atomic_load_explicit(&rings, memory_order_acquire); r; r = r->next) {
		bool is_owned = false;

		if (atomic_compare_exchange_strong_explicit(&r->is_owned, &is_owned, true,
							    memory_order_acquire,
							    memory_order_relaxed))
			return r;
	}
	r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	atomic_init(&r->is_owned, true);
	r->next = atomic_load_explicit(&rings, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&rings, &r->next, r, memory_order_release,
						      memory_order_relaxed))
		;
	return r;
}

void page_events_wake(void)
{
	LOCK_SCOPE(&bell.lock);
	bell.is_woken = true;
	pthread_cond_signal(&bell.woken);
}

static void wake_reader(uint32_t filled)
{
	int how = atomic_load_explicit(&reader, memory_order_relaxed);

	if ((how == SLEEPS_LIGHTLY || (how == SLEEPS && filled >= RING_NOTES / 2)) &&
	    atomic_exchange_explicit(&reader, AWAKE, memory_order_relaxed) != AWAKE)
		page_events_wake();
}

void page_events_note(const struct page_dups_sent *s)
{
	uint32_t head, filled;

	if (!own && !(own = take_ring()))
		return;
	head = atomic_load_explicit(&own->head, memory_order_relaxed);
	filled = head - atomic_load_explicit(&own->tail, memory_order_acquire);
	if (filled == RING_NOTES) {
		atomic_fetch_add_explicit(&own->lost, 1, memory_order_relaxed);
	} else {
		own->notes[head % RING_NOTES] = *s;
		atomic_store_explicit(&own->head, head + 1, memory_order_release);
	}
	atomic_thread_fence(memory_order_seq_cst);
	wake_reader(filled + 1);
}

void page_events_thread_release(void)
{
	if (own)
		atomic_store_explicit(&own->is_owned, false, memory_order_release);
	own = NULL;
}

void page_events_drain(void (*take)(void *arg, const struct page_dups_sent *s), void *arg)
{
	for (struct ring *r = atomic_load_explicit(&rings, memory_order_acquire); r; r = r->next) {
		const uint32_t head = atomic_load_explicit(&r->head, memory_order_acquire);
		uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);

		for (; tail != head; tail++)
			take(arg, &r->notes[tail % RING_NOTES]);
		atomic_store_explicit(&r->tail, tail, memory_order_release);
	}
}

static bool has_reason(bool wants_any)
{
	for (struct ring *r = atomic_load_explicit(&rings, memory_order_acquire); r; r = r->next) {
		const uint32_t filled = atomic_load_explicit(&r->head, memory_order_acquire) -
					atomic_load_explicit(&r->tail, memory_order_relaxed);

		if (filled >= (wants_any ? 1 : RING_NOTES / 2))
			return true;
	}
	return false;
}

static void sleep_locked(int timeout_ms) REQUIRES(bell.lock)
{
	const int64_t end = clock_ms() + timeout_ms;

	while (!bell.is_woken)
		if (timeout_ms < 0)
			pthread_cond_wait(&bell.woken, &bell.lock);
		else if (clock_wait(&bell.woken, &bell.lock, end) != 0)
			break;
	bell.is_woken = false;
}

void page_events_wait(int timeout_ms, bool wants_any)
{
	atomic_store_explicit(&reader, wants_any ? SLEEPS_LIGHTLY : SLEEPS, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	if (!has_reason(wants_any)) {
		LOCK_SCOPE(&bell.lock);
		sleep_locked(timeout_ms);
	}
	atomic_store_explicit(&reader, AWAKE, memory_order_relaxed);
}

uint64_t page_events_lost(void)
{
	uint64_t n = 0;

	for (struct ring *r = atomic_load_explicit(&rings, memory_order_acquire); r; r = r->next)
		n += atomic_load_explicit(&r->lost, memory_order_relaxed);
	return n;
}
