// SPDX-License-Identifier: Apache-2.0
#include "prefetch_io.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/lock.h"
#include "veneer/sys/mem_usage.h"
#include "veneer/sys/path.h"
#include "veneer/sys/ring.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define RUN_BYTES	  (128u << 10) /* one read */
#define RUNS		  4u /* at once, by each thread */
#define GRAB_PIECES	  32u /* that one thread takes from a file */
#define THREADS		  8u /* of one prefetch_io: opening small files is mostly waiting */
#define MEMORY_LOOK_MS	  50
#define NICE		  19
#define IOPRIO_IDLE	  (3 << 13)
#define IOPRIO_WHO_THREAD 1

struct prefetch_io {
	struct image *image;
	const struct plan *plan;
	struct stats *stats;
	pthread_t threads[THREADS];
	size_t nthreads;
	_Atomic bool is_stopping;
	mutex_t lock;
	GUARDED_BY(lock) size_t next; /* the first piece that nobody has taken */
};

static bool is_stopping(struct prefetch_io *f)
{
	return atomic_load_explicit(&f->is_stopping, memory_order_relaxed);
}

/* ---- memory ---- */

/* Of the control group with the least room, or of the host. Looked at now and then, as it is a
 * dozen files. */
static bool is_memory_short(int64_t *looked_ms)
{
	const int64_t now = clock_ms();
	struct mem_usage m;

	if (now - *looked_ms < MEMORY_LOOK_MS)
		return false;
	*looked_ms = now;
	return mem_usage_read(&m) == 0 && mem_usage_is_short(&m);
}

/* ---- files ---- */

/* Read-ahead must not change for threads that answer requests: by an open of its own. Not so for
 * files that may be remote, where another open drops the pages that were read before (source.c). */
static int own_descriptor(const struct source *s, int fd)
{
	int own;

	if (!s->layer->is_mappable)
		return fcntl(fd, F_DUPFD_CLOEXEC, 0);
	own = path_reopen(fd, O_RDONLY | O_NOATIME);
	if (own == -EPERM)
		own = path_reopen(fd, O_RDONLY);
	if (own >= 0)
		posix_fadvise(own, 0, 0, POSIX_FADV_RANDOM);
	return own;
}

/* -1: nothing to fetch. */
static int open_file(struct prefetch_io *f, const char *path, off_t *ret_size)
{
	struct source *s;
	struct image_entry *e;
	struct stat st;
	int fd, own;

	if (image_lookup_path(f->image, path, &e) < 0 || e->type != DT_REG ||
	    image_source(f->image, e, &s) < 0 || !source_is_plain(s))
		return -1;
	fd = source_pin(s);
	if (fd < 0)
		return -1;
	own = own_descriptor(s, fd);
	fd_cache_unpin(&s->fd);
	if (own < 0)
		return -1;
	if (fstat(own, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(own);
		return -1;
	}
	*ret_size = st.st_size;
	return own;
}

/* Read the blocks that the first write to the file will need, and note that it is expected. */
static void prepare(struct prefetch_io *f, const char *path)
{
	struct source *s;
	struct image_entry *e;
	struct stat st;

	if (image_lookup_path(f->image, path, &e) == 0 && e->type == DT_REG &&
	    image_stat(f->image, e, &st) == 0 && image_source(f->image, e, &s) == 0)
		atomic_store_explicit(&e->is_expected_written, true, memory_order_relaxed);
}

/* ---- reads ---- */

struct batch {
	struct ring_read reads[RUNS];
	size_t n;
	char *buffer; /* RUNS * RUN_BYTES */
};

/* Read the pages that are not cached yet: a first try does not wait and gets them under way; then
 * wait for all. */
static void read_batch(struct batch *b)
{
	struct ring_read left[RUNS];
	size_t n = 0;
	uint64_t bytes = 0;

	for (size_t i = 0; i < b->n; i++) {
		const struct iovec iov = { b->reads[i].dst, b->reads[i].len };
		ssize_t got = preadv2(b->reads[i].fd, &iov, 1, b->reads[i].off, RWF_NOWAIT);

		got = got < 0 ? 0 : got;
		if ((uint32_t)got == b->reads[i].len)
			continue;
		left[n] = b->reads[i];
		left[n].off += got;
		left[n++].len -= (uint32_t)got;
	}
	if (n)
		ring_read_all(left, n);
	for (size_t i = 0; i < n; i++)
		bytes += left[i].result > 0 ? (uint64_t)left[i].result : 0;
	if (bytes)
		stats_add(STATS_PREFETCH_BYTES, bytes);
	b->n = 0;
}

/* The pieces [i, end) of one file. */
static void fetch_file(struct prefetch_io *f, struct batch *b, size_t i, size_t end)
{
	const struct plan_piece *p = f->plan->pieces;
	off_t size = 0;
	_cleanup_(closep) int fd = open_file(f, f->plan->files[p[i].file].path, &size);

	while (fd >= 0 && i < end && !is_stopping(f)) {
		const off_t off = (off_t)p[i].extent * PLANNER_EXTENT_BYTES;
		off_t len = PLANNER_EXTENT_BYTES;

		while (++i < end && len < RUN_BYTES && p[i].extent == p[i - 1].extent + 1)
			len += PLANNER_EXTENT_BYTES;
		if (off >= size)
			break;
		b->reads[b->n] = (struct ring_read){
			.fd = fd,
			.dst = b->buffer + b->n * RUN_BYTES,
			.off = off,
			.len = (uint32_t)(off + len > size ? size - off : len),
		};
		if (++b->n == RUNS)
			read_batch(b);
	}
	if (b->n)
		read_batch(b);
}

/* Some pieces of one file that nobody else fetches. False: there are none left. */
static bool grab(struct prefetch_io *f, size_t *ret_i, size_t *ret_end)
{
	const struct plan_piece *p = f->plan->pieces;
	size_t i, end;

	LOCK_SCOPE(&f->lock);
	i = end = f->next;
	while (end < f->plan->n && end - i < GRAB_PIECES && p[end].file == p[i].file &&
	       p[end].kind == p[i].kind)
		end++;
	f->next = *ret_end = end;
	*ret_i = i;
	return end > i;
}

static void *run(void *arg)
{
	struct prefetch_io *f = arg;
	struct batch b = { .buffer = malloc(RUNS * RUN_BYTES) };
	int64_t looked_ms = -MEMORY_LOOK_MS;
	size_t i, end;

	setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
	syscall(SYS_ioprio_set, IOPRIO_WHO_THREAD, 0, IOPRIO_IDLE);
	stats_enter(f->stats);
	while (b.buffer && !is_stopping(f) && grab(f, &i, &end) && !is_memory_short(&looked_ms)) {
		const struct plan_piece *p = &f->plan->pieces[i];

		if (p->kind == PROFILE_READ)
			fetch_file(f, &b, i, end);
		else
			prepare(f, f->plan->files[p->file].path);
	}
	free(b.buffer);
	stats_enter(NULL);
	return NULL;
}

int prefetch_io_start(struct image *img, const struct plan *plan, struct stats *stats,
		      struct prefetch_io **ret)
{
	struct prefetch_io *f = calloc(1, sizeof(*f));
	int r = 0;

	if (!f)
		return -ENOMEM;
	*f = (struct prefetch_io){
		.image = img, .plan = plan, .stats = stats, .lock = PTHREAD_MUTEX_INITIALIZER
	};
	while (r == 0 && f->nthreads < THREADS) {
		r = -pthread_create(&f->threads[f->nthreads], NULL, run, f);
		f->nthreads += r == 0;
	}
	if (!f->nthreads) {
		free(f);
		return r;
	}
	*ret = f;
	return 0;
}

void prefetch_io_stop(struct prefetch_io *f)
{
	if (!f)
		return;
	atomic_store_explicit(&f->is_stopping, true, memory_order_relaxed);
	for (size_t i = 0; i < f->nthreads; i++)
		pthread_join(f->threads[i], NULL);
	mutex_destroy(&f->lock);
	free(f);
}
