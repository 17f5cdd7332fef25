// SPDX-License-Identifier: Apache-2.0
/* A table with open addressing that only grows. Invariants:
 * 1. a key goes from 0 to its value once, by compare-and-swap; so each touch has one slot;
 * 2. its time is written by the thread that made the key, later: 0 means that it is not there yet;
 * 3. n counts the keys, and may be ahead of them; at TRACE_TOUCHES_MAX nothing new is noted, so
 *    that a search ends. The memory is mapped anew, zero, when it is given back: a thread that is
 *    late finds an empty table. */
#include "veneer/prefetch/trace.h"

#include "veneer/base/minmax.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define KEY_EXTENT_BITS 20
#define KEY_WRITTEN	0xffffeu
#define KEY_OPENED	0xfffffu
#define POINTER_SHIFT	3 /* memory of malloc is aligned */
#define POINTER_BITS	47 /* of addresses that programs get */

struct slot {
	_Atomic uint64_t key;
	_Atomic uint32_t ms_and_one;
	uint32_t unused;
};

struct trace {
	struct slot *slots;
	_Atomic uint32_t n;
	_Atomic bool has_ended;
	unsigned window_ms;
	struct timespec begin;
};

_Static_assert(POINTER_BITS - POINTER_SHIFT + KEY_EXTENT_BITS <= 64, "a key holds both");
_Static_assert(TRACE_EXTENTS < KEY_WRITTEN, "extents are not confused with what is no extent");

int trace_new(unsigned window_ms, struct trace **ret)
{
	struct trace *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->slots = mmap(NULL, TRACE_SLOTS * sizeof(*t->slots), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (t->slots == MAP_FAILED) {
		free(t);
		return -ENOMEM;
	}
	t->window_ms = window_ms;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &t->begin);
	*ret = t;
	return 0;
}

void trace_free(struct trace *t)
{
	if (!t)
		return;
	munmap(t->slots, TRACE_SLOTS * sizeof(*t->slots));
	free(t);
}

static uint32_t elapsed_ms(const struct trace *t)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint32_t)((now.tv_sec - t->begin.tv_sec) * 1000 +
			  (now.tv_nsec - t->begin.tv_nsec) / 1000000);
}

static size_t first_slot(uint64_t key)
{
	return (size_t)((key * 0x9e3779b97f4a7c15ull) >> 40) & (TRACE_SLOTS - 1);
}

/* Is the window over? The caller of trace_end may be held up by the disk that keeps the profile. */
static bool is_over(struct trace *t, uint32_t ms)
{
	if (ms < t->window_ms)
		return false;
	trace_end(t);
	return true;
}

static bool note(struct trace *t, uint64_t key)
{
	size_t i = first_slot(key);
	uint32_t ms;

	for (;; i = (i + 1) & (TRACE_SLOTS - 1)) {
		struct slot *s = &t->slots[i];
		uint64_t seen = atomic_load_explicit(&s->key, memory_order_relaxed);

		if (seen == key)
			return true;
		if (seen)
			continue;
		ms = elapsed_ms(t);
		if (is_over(t, ms))
			return false;
		if (atomic_fetch_add_explicit(&t->n, 1, memory_order_relaxed) >=
		    TRACE_TOUCHES_MAX) {
			atomic_fetch_sub_explicit(&t->n, 1, memory_order_relaxed);
			return false;
		}
		if (atomic_compare_exchange_strong_explicit(
			    &s->key, &seen, key, memory_order_relaxed, memory_order_relaxed)) {
			atomic_store_explicit(&s->ms_and_one, ms + 1, memory_order_release);
			return true;
		}
		atomic_fetch_sub_explicit(&t->n, 1, memory_order_relaxed);
		if (seen == key)
			return true;
	}
}

/* 0: it cannot be told from others. */
static uint64_t key_of(const void *file, uint32_t extent)
{
	const uint64_t p = (uint64_t)(uintptr_t)file;

	if (!p || p >> POINTER_BITS || p & ((1u << POINTER_SHIFT) - 1))
		return 0;
	return (p >> POINTER_SHIFT) << KEY_EXTENT_BITS | extent;
}

static bool is_noting(const struct trace *t)
{
	return !atomic_load_explicit(&t->has_ended, memory_order_relaxed);
}

void trace_read(struct trace *t, const void *file, off_t off, size_t len)
{
	const uint64_t key = key_of(file, 0);
	uint64_t extent, last;

	if (!is_noting(t) || !key || !len || off < 0)
		return;
	extent = (uint64_t)off >> TRACE_EXTENT_SHIFT;
	last = ((uint64_t)off + len - 1) >> TRACE_EXTENT_SHIFT;
	for (; extent <= last && extent < TRACE_EXTENTS; extent++)
		if (!note(t, key | extent))
			return;
}

void trace_write(struct trace *t, const void *file)
{
	const uint64_t key = key_of(file, KEY_WRITTEN);

	if (is_noting(t) && key)
		note(t, key);
}

void trace_open(struct trace *t, const void *file)
{
	const uint64_t key = key_of(file, KEY_OPENED);

	if (is_noting(t) && key)
		note(t, key);
}

void trace_end(struct trace *t)
{
	atomic_store_explicit(&t->has_ended, true, memory_order_relaxed);
}

static struct trace_touch touch_of(uint64_t key, uint32_t ms)
{
	const uint32_t low = (uint32_t)key & ((1u << KEY_EXTENT_BITS) - 1);

	return (struct trace_touch){
		.file = (const void *)(uintptr_t)(key >> KEY_EXTENT_BITS << POINTER_SHIFT),
		.extent = low >= KEY_WRITTEN ? 0 : low,
		.kind = low == KEY_WRITTEN  ? TRACE_WRITTEN
			: low == KEY_OPENED ? TRACE_OPENED
					    : TRACE_READ,
		.ms = ms,
	};
}

int trace_by_place(const void *a, const void *b)
{
	const struct trace_touch *s = a, *t = b;

	return COMPARE(s->file, t->file) ?: COMPARE(s->kind, t->kind)
	       ?: COMPARE(s->extent, t->extent) ?: COMPARE(s->ms, t->ms);
}

ssize_t trace_take(struct trace *t, struct trace_touch **ret)
{
	struct trace_touch *found = malloc(TRACE_TOUCHES_MAX * sizeof(*found));
	size_t n = 0;

	if (!found)
		return -ENOMEM;
	for (size_t i = 0; i < TRACE_SLOTS && n < TRACE_TOUCHES_MAX; i++) {
		const uint32_t ms =
			atomic_load_explicit(&t->slots[i].ms_and_one, memory_order_acquire);
		const uint64_t key = atomic_load_explicit(&t->slots[i].key, memory_order_relaxed);

		if (key && ms)
			found[n++] = touch_of(key, ms - 1);
	}
	madvise(t->slots, TRACE_SLOTS * sizeof(*t->slots), MADV_DONTNEED);
	qsort(found, n, sizeof(*found), trace_by_place);
	*ret = found;
	return (ssize_t)n;
}
