// SPDX-License-Identifier: Apache-2.0
#include "support/disklog.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ATOM 8u

static struct disklog *active;
static const struct journal *appending;
uint64_t disklog_clock_ms;

int __real_file_pwrite(int fd, const void *p, size_t len, off_t off);
int __real_file_map_store(void *dst, const void *src, size_t len);
int __real_file_map_store_last(void *dst, const void *src);
int __real_journal_append(struct journal *j, const struct record *rec);
int __real_snapshot_temp_open(int work_fd, char name[SNAPSHOT_TEMP_BYTES]);
int __real_renameat(int old_dir, const char *old, int new_dir, const char *new);
int __real_clock_gettime(clockid_t clock, struct timespec *ts);

int __wrap_file_pwrite(int fd, const void *p, size_t len, off_t off);
int __wrap_file_map_store(void *dst, const void *src, size_t len);
int __wrap_file_map_store_last(void *dst, const void *src);
int __wrap_journal_append(struct journal *j, const struct record *rec);
int __wrap_snapshot_temp_open(int work_fd, char name[SNAPSHOT_TEMP_BYTES]);
int __wrap_renameat(int old_dir, const char *old, int new_dir, const char *new);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);

static void *grown(void *p, size_t n, size_t *cap, size_t size)
{
	if (n < *cap)
		return p;
	*cap = n ? n * 2 : 64;
	p = reallocarray(p, *cap, size);
	assert_non_null(p);
	return p;
}

static struct disk_event *add(enum disk_event_type type, unsigned file)
{
	active->events = grown(active->events, active->n, &active->cap, sizeof(*active->events));
	active->events[active->n] = (struct disk_event){ .type = type, .file = file };
	return &active->events[active->n++];
}

static ino_t ino_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_ino;
}

/* The newest with this number: the kernel gives them again. -1: none of ours. */
static int file_of(int fd)
{
	ino_t ino = ino_of(fd);

	for (unsigned i = active->nfiles; i-- > 0;)
		if (active->inos[i] == ino)
			return (int)i;
	return -1;
}

static void note_write(int fd, uint64_t off, const void *p, size_t len)
{
	int file = active ? file_of(fd) : -1;
	struct disk_event *e;

	if (file < 0)
		return;
	assert_true(off + len <= DISKLOG_FILE_BYTES);
	e = add(DISK_WRITE, (unsigned)file);
	e->off = off;
	e->len = len;
	e->bytes = malloc(len);
	assert_non_null(e->bytes);
	memcpy(e->bytes, p, len);
}

int __wrap_file_pwrite(int fd, const void *p, size_t len, off_t off)
{
	int r = __real_file_pwrite(fd, p, len, off);

	if (r == 0)
		note_write(fd, (uint64_t)off, p, len);
	return r;
}

static uint64_t mapped_off(const void *dst)
{
	return (uint64_t)((const uint8_t *)dst - appending->map) + appending->map_off;
}

int __wrap_file_map_store(void *dst, const void *src, size_t len)
{
	int r = __real_file_map_store(dst, src, len);

	if (r == 0 && appending)
		note_write(appending->fd, mapped_off(dst), src, len);
	return r;
}

int __wrap_file_map_store_last(void *dst, const void *src)
{
	int r = __real_file_map_store_last(dst, src);

	if (r == 0 && appending)
		note_write(appending->fd, mapped_off(dst), src, 8);
	return r;
}

void disklog_pseudo(const struct record *rec)
{
	active->records = grown(active->records, active->nrecords, &active->cap_records,
				sizeof(*active->records));
	active->records[active->nrecords++] = *rec;
	add(DISK_RECORD, 0)->number = active->nrecords;
}

int __wrap_journal_append(struct journal *j, const struct record *rec)
{
	int r;

	appending = j;
	r = __real_journal_append(j, rec);
	appending = NULL;
	if (r == 0 && active && j == active->journal)
		disklog_pseudo(rec);
	return r;
}

int __wrap_snapshot_temp_open(int work_fd, char name[SNAPSHOT_TEMP_BYTES])
{
	int fd = __real_snapshot_temp_open(work_fd, name);

	if (fd >= 0 && active) {
		assert_true(active->nfiles < DISKLOG_FILES);
		active->inos[active->nfiles] = ino_of(fd);
		add(DISK_CREATE, active->nfiles++);
	}
	return fd;
}

int __wrap_renameat(int old_dir, const char *old, int new_dir, const char *new)
{
	int fd = active ? openat(old_dir, old, O_RDONLY | O_CLOEXEC) : -1;
	int r = __real_renameat(old_dir, old, new_dir, new);

	if (r == 0 && fd >= 0 && file_of(fd) >= 0)
		add(DISK_RENAME, (unsigned)file_of(fd));
	if (fd >= 0)
		close(fd);
	return r;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
	int r = __real_clock_gettime(clock, ts);

	ts->tv_sec += (time_t)(disklog_clock_ms / 1000u);
	return r;
}

/* Records written while a sync is under way need not be in it. */
static int sync_noted(int fd)
{
	size_t covers;
	bool is_dir;

	if (!active)
		return 0;
	covers = active->n;
	is_dir = ino_of(fd) == active->dir;
	if (active->on_sync)
		active->on_sync(active->on_sync_arg);
	if (is_dir)
		add(DISK_DIR_SYNC, 0)->number = covers;
	else if (file_of(fd) >= 0)
		add(DISK_SYNC, (unsigned)file_of(fd))->number = covers;
	return 0;
}

int __wrap_fsync(int fd)
{
	return sync_noted(fd);
}

int __wrap_fdatasync(int fd)
{
	return sync_noted(fd);
}

void disklog_start(struct disklog *log, const struct maps_layer *l)
{
	int fd = openat(l->root, MAPFILE_NAME, O_RDONLY | O_CLOEXEC);

	*log = (struct disklog){ .dir = ino_of(l->root), .has_first = fd >= 0 };
	active = log;
	if (fd < 0)
		return;
	log->inos[log->nfiles++] = ino_of(fd);
	log->first = malloc(DISKLOG_FILE_BYTES);
	assert_non_null(log->first);
	log->first_len = (uint64_t)read(fd, log->first, DISKLOG_FILE_BYTES);
	assert_true(log->first_len < DISKLOG_FILE_BYTES);
	close(fd);
}

void disklog_stop(void)
{
	active = NULL;
	disklog_clock_ms = 0;
}

void disklog_release(struct disklog *log)
{
	for (size_t i = 0; i < log->n; i++)
		free(log->events[i].bytes);
	free(log->events);
	free(log->records);
	free(log->first);
}

void disklog_promise(size_t nrecords)
{
	if (active->nfiles)
		add(DISK_PROMISE, 0)->number = nrecords;
}

static void file_init(struct disk_file *f)
{
	f->now = calloc(1, DISKLOG_FILE_BYTES);
	f->safe = calloc(1, DISKLOG_FILE_BYTES);
	assert_non_null(f->now);
	assert_non_null(f->safe);
}

void disk_init(struct disk *d, const struct disklog *log)
{
	*d = (struct disk){ .log = log, .named = { -1 }, .nnamed = 1 };
	if (!log->has_first)
		return;
	d->named[0] = 0;
	file_init(&d->files[0]);
	memcpy(d->files[0].now, log->first, log->first_len);
	memcpy(d->files[0].safe, log->first, log->first_len);
	d->files[0].now_len = d->files[0].safe_len = log->first_len;
}

void disk_release(struct disk *d)
{
	for (unsigned i = 0; i < DISKLOG_FILES; i++) {
		free(d->files[i].now);
		free(d->files[i].safe);
		free(d->files[i].pending);
	}
}

static void put(uint8_t *bytes, uint64_t *len, const struct disk_event *e)
{
	memcpy(bytes + e->off, e->bytes, e->len);
	if (*len < e->off + e->len)
		*len = e->off + e->len;
}

static void step_write(struct disk *d, size_t i)
{
	const struct disk_event *e = &d->log->events[i];
	struct disk_file *f = &d->files[e->file];

	put(f->now, &f->now_len, e);
	f->pending = reallocarray(f->pending, f->npending + 1, sizeof(*f->pending));
	assert_non_null(f->pending);
	f->pending[f->npending++] = i;
}

static void step_sync(struct disk *d, const struct disk_event *e)
{
	struct disk_file *f = &d->files[e->file];
	size_t n = 0;

	while (n < f->npending && f->pending[n] < e->number)
		put(f->safe, &f->safe_len, &d->log->events[f->pending[n++]]);
	f->npending -= n;
	memmove(f->pending, f->pending + n, f->npending * sizeof(*f->pending));
}

bool disk_step(struct disk *d)
{
	const struct disk_event *e = &d->log->events[d->at];

	if (d->at == d->log->n)
		return false;
	if (e->type == DISK_CREATE)
		file_init(&d->files[e->file]);
	else if (e->type == DISK_WRITE)
		step_write(d, d->at);
	else if (e->type == DISK_SYNC)
		step_sync(d, e);
	else if (e->type == DISK_RENAME)
		d->named[d->nnamed++] = (int)e->file;
	else if (e->type == DISK_RECORD)
		d->upto = e->number;
	else if (e->type == DISK_PROMISE && e->number > d->floor)
		d->floor = e->number;
	if (e->type == DISK_DIR_SYNC) {
		d->named[0] = d->named[d->nnamed - 1];
		d->nnamed = 1;
	}
	d->must_exist = d->must_exist || e->type == DISK_PROMISE;
	d->at++;
	return true;
}

/* How many versions of each unit there are, and then which one it is to have. */
static void choose(const struct disk *d, const struct disk_file *f, enum disk_loss loss,
		   unsigned unit, unsigned *seed, unsigned *versions)
{
	size_t nunits = DISKLOG_FILE_BYTES / unit, nwritten = 0, chosen;

	for (size_t i = 0; i < f->npending; i++) {
		const struct disk_event *e = &d->log->events[f->pending[i]];

		for (uint64_t u = e->off / unit; u <= (e->off + e->len - 1) / unit; u++)
			nwritten += versions[u]++ == 0;
	}
	chosen = nwritten ? (size_t)rand_r(seed) % nwritten : 0;
	for (size_t u = 0; u < nunits; u++) {
		bool is_chosen = versions[u] && chosen-- == 0;

		if (loss == DISK_ALL_LOST || (loss == DISK_ONE_LOST && is_chosen) ||
		    (loss == DISK_ONE_KEPT && !is_chosen))
			versions[u] = 0;
		else if (loss == DISK_ANY)
			versions[u] = (unsigned)rand_r(seed) % (versions[u] + 1);
	}
}

static uint64_t choose_len(const struct disk_file *f, enum disk_loss loss, unsigned *seed)
{
	uint64_t more = f->now_len - f->safe_len;

	if (loss == DISK_NONE_LOST || loss == DISK_TORN ||
	    (loss == DISK_ONE_LOST && rand_r(seed) % 2))
		return f->now_len;
	if (loss == DISK_ALL_LOST && rand_r(seed) % 2)
		return f->safe_len;
	/* sizes change when data has been written, or with somebody else's sync */
	switch (rand_r(seed) % 3) {
	case 0:
		return f->now_len;
	case 1:
		return f->safe_len;
	default:
		return f->safe_len + (more ? (uint64_t)rand_r(seed) % more / 512u * 512u : 0);
	}
}

static void put_part(uint8_t *out, const struct disk_event *e, uint64_t from, uint64_t to)
{
	from = from > e->off ? from : e->off;
	to = to < e->off + e->len ? to : e->off + e->len;
	if (to > from)
		memcpy(out + from, e->bytes + (from - e->off), to - from);
}

uint64_t disk_picture(const struct disk *d, unsigned file, enum disk_loss loss, unsigned unit,
		      unsigned *seed, uint8_t *out)
{
	static unsigned versions[DISKLOG_FILE_BYTES / 512], seen[DISKLOG_FILE_BYTES / 512];
	const struct disk_file *f = &d->files[file];
	uint64_t len;

	memset(versions, 0, sizeof(versions));
	memset(seen, 0, sizeof(seen));
	memcpy(out, f->safe, f->now_len);
	choose(d, f, loss, unit, seed, versions);
	for (size_t i = 0; i < f->npending; i++) {
		const struct disk_event *e = &d->log->events[f->pending[i]];
		uint64_t end = e->off + e->len;

		/* memory is read by the disk at any moment, but words of it are whole */
		if (loss == DISK_TORN && i + 1 == f->npending)
			end = e->off + (uint64_t)rand_r(seed) % e->len / ATOM * ATOM;
		for (uint64_t u = e->off / unit; e->len && u <= (e->off + e->len - 1) / unit; u++)
			if (++seen[u] <= versions[u])
				put_part(out, e, u * unit,
					 (u + 1) * unit < end ? (u + 1) * unit : end);
	}
	len = choose_len(f, loss, seed);
	return len;
}
