// SPDX-License-Identifier: Apache-2.0
/* Each calling thread gets its own ring, made at its first batch and closed with the thread.
 *
 * States of a thread: RING_NONE -> RING_READY -> RING_FAILED, or RING_NONE -> RING_FAILED; a failed
 * thread stays with pread. A refusal that holds for the whole process is kept in is_refused.
 *
 * Invariants:
 * 1. run_batch returns only when the kernel holds none of the caller's buffers.
 * 2. The ring only fills results with whole reads; everything else (short, failed, never submitted)
 *    is finished by pread, which alone decides on errors and the end of the file. Areas likewise,
 *    by madvise.
 * 3. A ring serves only the process that made it: fork() shares its memory, so a child drops the
 *    copy (this ends nothing in the parent) and makes its own. */
#include "veneer/sys/ring.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/sys/file.h"

#include <liburing.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <time.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

enum { RING_ENTRIES = 64, AREA_PAGES = 256 };

enum ring_state { RING_NONE, RING_READY, RING_FAILED };

struct thread_ring {
	enum ring_state state;
	unsigned generation;
	struct io_uring ring;
};

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;
/* Held while a ring is mapped or unmapped: an address may pass from one thread's ring to
 * another's. */
static mutex_t map_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool is_refused;
static _Atomic unsigned generation; /* number of forks that led to this process */

static int map_ring(struct io_uring *ring)
{
	LOCK_SCOPE(&map_lock);
	return io_uring_queue_init(RING_ENTRIES, ring, 0);
}

static void drop_ring(struct thread_ring *t)
{
	if (t->state == RING_READY) {
		LOCK_SCOPE(&map_lock);
		io_uring_queue_exit(&t->ring);
	}
	t->state = RING_NONE;
}

static void thread_ring_free(void *p)
{
	drop_ring(p);
	free(p);
}

/* The holder of the lock may not exist in the child, so the forking thread takes it. */
static void before_fork(void) ACQUIRES(map_lock)
{
	mutex_lock(&map_lock);
}

static void after_fork_in_parent(void) RELEASES(map_lock)
{
	mutex_unlock(&map_lock);
}

static void after_fork_in_child(void) RELEASES(map_lock)
{
	mutex_unlock(&map_lock);
	atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
}

static void make_key(void)
{
	has_key = !pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) &&
		  !pthread_key_create(&key, thread_ring_free);
}

static struct thread_ring *thread_ring_get(void)
{
	struct thread_ring *t;

	pthread_once(&key_once, make_key);
	if (!has_key)
		return NULL;
	t = pthread_getspecific(key);
	if (t)
		return t;
	t = calloc(1, sizeof(*t));
	if (t && pthread_setspecific(key, t)) {
		free(t);
		return NULL;
	}
	return t;
}

static struct thread_ring *usable_ring(void)
{
	struct thread_ring *t;
	unsigned now = atomic_load_explicit(&generation, memory_order_relaxed);

	if (atomic_load_explicit(&is_refused, memory_order_relaxed))
		return NULL;
	t = thread_ring_get();
	if (!t)
		return NULL;
	if (t->generation != now) {
		drop_ring(t);
		t->generation = now;
	}
	if (t->state == RING_NONE) {
		int r = map_ring(&t->ring);

		t->state = r < 0 ? RING_FAILED : RING_READY;
		if (r == -ENOSYS || r == -EPERM)
			atomic_store_explicit(&is_refused, true, memory_order_relaxed);
	}
	return t->state == RING_READY ? t : NULL;
}

/* A batch; the two kinds differ in their request and in the place of the result. */
struct batch {
	void (*prepare)(struct io_uring_sqe *sqe, void *item);
	void (*complete)(void *item, int result);
	char *items;
	size_t item_size;
};

static void *item_at(const struct batch *b, size_t i)
{
	return b->items + i * b->item_size;
}

static unsigned reap(struct io_uring *ring, const struct batch *b, size_t first)
{
	struct io_uring_cqe *cqe;
	unsigned n = 0;

	for (; !io_uring_peek_cqe(ring, &cqe); n++) {
		b->complete(item_at(b, first + cqe->user_data), cqe->res);
		io_uring_cqe_seen(ring, cqe);
	}
	return n;
}

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* An error: the ring is unusable. */
static int run_batch(struct io_uring *ring, const struct batch *b, size_t first, unsigned n)
{
	unsigned queued = 0, done = 0;

	for (; queued < n; queued++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

		if (!sqe)
			break;
		b->prepare(sqe, item_at(b, first + queued));
		sqe->user_data = queued;
	}
	while (done < queued) {
		int r = io_uring_submit_and_wait(ring, queued - done);

		done += reap(ring, b, first);
		if (r >= 0 || r == -EINTR)
			continue;
		if (queued - io_uring_sq_ready(ring) == done)
			return r;
		/* For example out of memory: running reads still write to the caller's buffers. */
		nap();
	}
	return 0;
}

/* Fills in the results of the ring; other results are unchanged. */
static void run_all(const struct batch *b, size_t n)
{
	struct thread_ring *t = n > 1 ? usable_ring() : NULL;

	for (size_t i = 0; t && i < n; i += RING_ENTRIES) {
		if (run_batch(&t->ring, b, i,
			      n - i < RING_ENTRIES ? (unsigned)(n - i) : RING_ENTRIES) < 0) {
			drop_ring(t);
			t->state = RING_FAILED;
			t = NULL;
		}
	}
}

static void prepare_read(struct io_uring_sqe *sqe, void *item)
{
	const struct ring_read *read = item;

	io_uring_prep_read(sqe, read->fd, read->dst, read->len, (uint64_t)read->off);
}

static void complete_read(void *item, int result)
{
	((struct ring_read *)item)->result = result;
}

static void finish(struct ring_read *read)
{
	uint32_t done = read->result > 0 ? (uint32_t)read->result : 0;
	ssize_t n;

	if (read->len > INT32_MAX) {
		read->result = -EINVAL;
		return;
	}
	if (done >= read->len)
		return;
	n = file_pread(read->fd, (char *)read->dst + done, read->len - done, read->off + done);
	read->result = n < 0 ? (int32_t)n : (int32_t)(done + (uint32_t)n);
}

void ring_read_all(struct ring_read *reads, size_t n)
{
	const struct batch b = { prepare_read, complete_read, (char *)reads, sizeof(*reads) };

	for (size_t i = 0; i < n; i++)
		reads[i].result = 0;
	run_all(&b, n);
	for (size_t i = 0; i < n; i++)
		finish(&reads[i]);
}

static void prepare_area(struct io_uring_sqe *sqe, void *item)
{
	const struct ring_area *area = *(struct ring_area **)item;

	io_uring_prep_madvise(sqe, area->addr, (uint32_t)area->len, MADV_POPULATE_READ);
}

static void complete_area(void *item, int result)
{
	(*(struct ring_area **)item)->result = result < 0 ? result : 0;
}

/* mincore answers for files that the server owns or may write; for others it reports all pages as
 * resident. */
static bool takes_io(const struct ring_area *area)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char in_memory[AREA_PAGES];
	const size_t n = (area->len + page - 1) / page;

	if (n > AREA_PAGES || mincore(area->addr, area->len, in_memory) < 0)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!(in_memory[i] & 1))
			return true;
	return false;
}

static int populate(const struct ring_area *area)
{
	while (madvise(area->addr, area->len, MADV_POPULATE_READ) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

/* A ring does this in its worker threads, which costs more than mapping resident pages. */
void ring_populate_all(struct ring_area *areas, size_t n)
{
	struct ring_area *waiting[RING_ENTRIES];
	const struct batch b = { prepare_area, complete_area, (char *)waiting, sizeof(*waiting) };
	size_t nwaiting = 0;

	for (size_t i = 0; i < n; i++) {
		areas[i].result = 1;
		if (n > 1 && nwaiting < RING_ENTRIES && takes_io(&areas[i]))
			waiting[nwaiting++] = &areas[i];
	}
	run_all(&b, nwaiting);
	for (size_t i = 0; i < n; i++)
		if (areas[i].result)
			areas[i].result = populate(&areas[i]);
}
