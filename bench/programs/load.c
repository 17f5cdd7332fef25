// SPDX-License-Identifier: Apache-2.0
/* The mixes of HP-Mapper's Table 2 (those of Filebench's mongo, varmail and oltp) on a tree of
 *files that is there:
 *
 *	bench-load mongo|varmail|oltp DIR FILES BYTES SECONDS THREADS
 *
 * FILES are DIR/dNNN/fNNNNN of BYTES each, a hundred a directory; of varmail's, every fifth is not
 *there at first. Each thread has every THREADSth file for itself, so what it finds is what it left.
 *Prints one JSON object: operations (each system call that the mix counts is one), seconds, and the
 *operations by kind. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PER_DIR	     100
#define THREADS_MAX  64
#define WHOLE_BYTES  16384 /* written or appended at once */
#define PAGE_BYTES   2048 /* of the database */
#define BATCH	     100 /* updates of one file before they are waited for */
#define READS	     103 /* 50.5 % to 49.0 % */
#define ABSENT_EVERY 5

enum kind { META, READ, WRITE, SYNC, KINDS };

static const char *const kind_names[KINDS] = { "metadata", "reads", "writes", "syncs" };

struct set {
	const char *mix;
	int dir;
	unsigned nfiles, nthreads;
	off_t bytes;
	_Atomic bool is_over;
};

struct worker {
	struct set *set;
	unsigned nr;
	uint64_t seed, ops[KINDS], turn;
	bool *is_there; /* by file */
	int *fds; /* by file: the database is opened once */
	char *buf;
	size_t room;
	int error;
	pthread_t thread;
};

static uint64_t next_random(struct worker *w)
{
	w->seed ^= w->seed << 13;
	w->seed ^= w->seed >> 7;
	w->seed ^= w->seed << 17;
	return w->seed;
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* The first failure of a worker ends all: a mix with holes is another mix. */
static bool done(struct worker *w, enum kind kind, ssize_t r)
{
	if (r >= 0) {
		w->ops[kind]++;
		return true;
	}
	if (!w->error)
		w->error = errno ?: EIO;
	atomic_store(&w->set->is_over, true);
	return false;
}

static void name_file(unsigned file, char name[32])
{
	snprintf(name, 32, "d%03u/f%05u", file / PER_DIR, file);
}

/* One of the worker's own files that is there, or is not; -1 if there is none. */
static int pick(struct worker *w, bool is_there)
{
	unsigned own = (w->set->nfiles - w->nr + w->set->nthreads - 1) / w->set->nthreads;
	unsigned at = own ? next_random(w) % own : 0;

	for (unsigned i = 0; i < own; i++, at = (at + 1) % own)
		if (w->is_there[at * w->set->nthreads + w->nr] == is_there)
			return at * w->set->nthreads + w->nr;
	return -1;
}

static int open_file(struct worker *w, int file, int flags)
{
	char name[32];
	int fd;

	name_file(file, name);
	fd = openat(w->set->dir, name, flags | O_CLOEXEC, 0644);
	done(w, META, fd);
	return fd;
}

static void read_whole(struct worker *w, int fd)
{
	ssize_t n, r = 0;

	lseek(fd, 0, SEEK_SET);
	while ((n = read(fd, w->buf, w->room)) > 0)
		r += n;
	done(w, READ, n < 0 ? n : r);
}

static void append(struct worker *w, int fd)
{
	ssize_t n = write(fd, w->buf, WHOLE_BYTES);

	done(w, WRITE, n == WHOLE_BYTES ? n : -1);
}

static void close_file(struct worker *w, int fd)
{
	done(w, META, close(fd));
}

static void remove_file(struct worker *w)
{
	char name[32];
	int file = pick(w, true);

	if (file < 0)
		return;
	name_file(file, name);
	if (done(w, META, unlinkat(w->set->dir, name, 0)))
		w->is_there[file] = false;
}

static void stat_file(struct worker *w)
{
	char name[32];
	struct stat st;
	int file = pick(w, true);

	if (file < 0)
		return;
	name_file(file, name);
	done(w, META, fstatat(w->set->dir, name, &st, AT_SYMLINK_NOFOLLOW));
}

/* A new file with or without a first write, synced or not. */
static void create_file(struct worker *w, bool is_written)
{
	int fd, file = pick(w, false);

	if (file < 0)
		return;
	fd = open_file(w, file, O_WRONLY | O_CREAT | O_EXCL);
	if (fd < 0)
		return;
	w->is_there[file] = true;
	if (is_written) {
		append(w, fd);
		done(w, SYNC, fsync(fd));
	}
	close_file(w, fd);
}

static void read_file(struct worker *w)
{
	int fd, file = pick(w, true);

	if (file < 0)
		return;
	fd = open_file(w, file, O_RDONLY);
	if (fd < 0)
		return;
	read_whole(w, fd);
	close_file(w, fd);
}

/* Seven operations, one of them a read and one an append; the last is stat, unlink, stat or
 * creation in turn. */
static void mongo(struct worker *w)
{
	int file = pick(w, true), fd = file < 0 ? -1 : open_file(w, file, O_WRONLY | O_APPEND);

	if (fd >= 0) {
		append(w, fd);
		close_file(w, fd);
	}
	read_file(w);
	switch (w->turn++ % 4) {
	case 1:
		remove_file(w);
		break;
	case 3:
		create_file(w, false);
		break;
	default:
		stat_file(w);
	}
}

/* Thirteen operations: two reads, one write of a new file, one append, two syncs. */
static void varmail(struct worker *w)
{
	int fd, file;

	remove_file(w);
	create_file(w, true);
	file = pick(w, true);
	fd = file < 0 ? -1 : open_file(w, file, O_RDWR | O_APPEND);
	if (fd >= 0) {
		read_whole(w, fd);
		append(w, fd);
		done(w, SYNC, fsync(fd));
		close_file(w, fd);
	}
	read_file(w);
}

static off_t some_page(struct worker *w)
{
	return (off_t)(next_random(w) % (w->set->bytes / PAGE_BYTES)) * PAGE_BYTES;
}

/* Updates go to one file after the other and are waited for together; reads go anywhere. */
static void oltp(struct worker *w)
{
	unsigned file = (w->turn++ * w->set->nthreads + w->nr) % w->set->nfiles;

	for (unsigned i = 0; i < BATCH && !w->error; i++) {
		ssize_t n = pwrite(w->fds[file], w->buf, PAGE_BYTES, some_page(w));

		done(w, WRITE, n == PAGE_BYTES ? n : -1);
	}
	done(w, SYNC, fdatasync(w->fds[file]));
	for (unsigned i = 0; i < READS && !w->error; i++) {
		ssize_t n = pread(w->fds[next_random(w) % w->set->nfiles], w->buf, PAGE_BYTES,
				  some_page(w));

		done(w, READ, n == PAGE_BYTES ? n : -1);
	}
}

/* Opening is part of what is measured: a union may copy the file then. */
static void open_database(struct worker *w)
{
	for (unsigned i = 0; i < w->set->nfiles; i++) {
		unsigned file = (w->nr * w->set->nfiles / w->set->nthreads + i) % w->set->nfiles;

		w->fds[file] = open_file(w, file, O_RDWR);
		if (w->fds[file] < 0)
			return;
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;
	bool is_oltp = !strcmp(w->set->mix, "oltp"), is_varmail = !strcmp(w->set->mix, "varmail");

	if (is_oltp)
		open_database(w);
	while (!atomic_load(&w->set->is_over)) {
		if (is_oltp)
			oltp(w);
		else if (is_varmail)
			varmail(w);
		else
			mongo(w);
	}
	return NULL;
}

static int start(struct worker *w, struct set *set, unsigned nr)
{
	*w = (struct worker){
		.set = set, .nr = nr, .seed = 0x9e3779b97f4a7c15ull * (nr + 1), .room = 1 << 20
	};
	w->is_there = calloc(set->nfiles, sizeof(*w->is_there));
	w->fds = calloc(set->nfiles, sizeof(*w->fds));
	w->buf = malloc(w->room);
	if (!w->is_there || !w->fds || !w->buf)
		return -ENOMEM;
	for (size_t i = 0; i < w->room; i++)
		w->buf[i] = next_random(w);
	for (unsigned i = 0; i < set->nfiles; i++)
		w->is_there[i] = strcmp(set->mix, "varmail") || i % ABSENT_EVERY;
	return -pthread_create(&w->thread, NULL, work, w);
}

static int report(const struct worker *w, unsigned n, double seconds)
{
	uint64_t ops[KINDS] = { 0 }, sum = 0;

	for (unsigned i = 0; i < n; i++) {
		if (w[i].error) {
			fprintf(stderr, "bench-load: %s\n", strerror(w[i].error));
			return 1;
		}
		for (unsigned k = 0; k < KINDS; k++) {
			ops[k] += w[i].ops[k];
			sum += w[i].ops[k];
		}
	}
	printf("{\"operations\": %llu, \"seconds\": %.6f", (unsigned long long)sum, seconds);
	for (unsigned k = 0; k < KINDS; k++)
		printf(", \"%s\": %llu", kind_names[k], (unsigned long long)ops[k]);
	printf("}\n");
	return 0;
}

static int run(struct set *set, double seconds)
{
	static struct worker workers[THREADS_MAX];
	double begin = now_s(), left;

	for (unsigned i = 0; i < set->nthreads; i++)
		if (start(&workers[i], set, i) < 0) {
			fprintf(stderr, "bench-load: no thread\n");
			return 1;
		}
	while ((left = begin + seconds - now_s()) > 0 && !atomic_load(&set->is_over))
		usleep(left < 0.02 ? left * 1e6 : 20000);
	atomic_store(&set->is_over, true);
	for (unsigned i = 0; i < set->nthreads; i++)
		pthread_join(workers[i].thread, NULL);
	return report(workers, set->nthreads, now_s() - begin);
}

int main(int argc, char **argv)
{
	struct set set = { 0 };

	if (argc != 7) {
		fprintf(stderr,
			"usage: bench-load mongo|varmail|oltp DIR FILES BYTES SECONDS THREADS\n");
		return 2;
	}
	set.mix = argv[1];
	set.nfiles = strtoul(argv[3], NULL, 10);
	set.bytes = strtoll(argv[4], NULL, 10);
	set.nthreads = strtoul(argv[6], NULL, 10);
	if (!set.nthreads || set.nthreads > THREADS_MAX || set.nfiles < set.nthreads ||
	    set.bytes < PAGE_BYTES) {
		fprintf(stderr, "bench-load: bad numbers\n");
		return 2;
	}
	set.dir = open(argv[2], O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (set.dir < 0) {
		fprintf(stderr, "bench-load: %s: %s\n", argv[2], strerror(errno));
		return 1;
	}
	return run(&set, strtod(argv[5], NULL));
}
