// SPDX-License-Identifier: Apache-2.0
#include "profile_dir.h"

#include "profile_format.h"
#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/minmax.h"
#include "veneer/sys/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define LOCK_MS	   500
#define UNFINISHED "profile.new-" /* and the thread's number */
#define DATABASE   "profile.db" /* of versions up to 0.2, with its -wal, -shm and -journal */

void profile_dir_name(uint64_t key, char ret[PROFILE_DIR_NAME_SIZE])
{
	snprintf(ret, PROFILE_DIR_NAME_SIZE, PROFILE_PREFIX "%016" PRIx64, key);
}

/* Nothing that the caller would wait for. */
static int open_file(int dirfd, const char *name, int flags, struct stat *st)
{
	_cleanup_(closep) int fd =
		openat(dirfd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);

	if (fd < 0 || fstat(fd, st) < 0)
		return -errno;
	return S_ISREG(st->st_mode) ? steal_fd(&fd) : -EUCLEAN;
}

/* A lock file of its own: the profiles themselves are replaced. A lock that was deleted by hand
 * lets two writers in, and one of two starts is lost. */
int profile_dir_lock(int dirfd)
{
	struct stat st;
	_cleanup_(closep) int fd = open_file(dirfd, PROFILE_LOCK, O_RDWR | O_CREAT, &st);
	int r = fd < 0 ? fd : file_flock_within(fd, LOCK_MS);

	return r == -EAGAIN ? -EBUSY : r < 0 ? r : steal_fd(&fd);
}

/* A part of the file, malloc'd. */
static int read_part(int fd, size_t at, size_t len, uint8_t **ret)
{
	ssize_t n;

	*ret = malloc(len + 1);
	if (!*ret)
		return -ENOMEM;
	n = file_pread(fd, *ret, len, (off_t)at);
	return n < 0 ? (int)n : (size_t)n == len ? 0 : -EUCLEAN;
}

static int read_parts(int fd, bool wants_items, const struct profile_stack *borrower,
		      struct profile_image *ret)
{
	_cleanup_(freep) uint8_t *start = NULL, *head = NULL, *body = NULL;
	struct profile_format f;
	int r = read_part(fd, 0, PROFILE_FORMAT_START, &start);

	r = r ?: profile_format_start(start, &f);
	r = r ?: read_part(fd, PROFILE_FORMAT_START, f.head, &head);
	r = r ?: profile_format_head(&f, head, ret);
	if (r < 0 || !wants_items)
		return r;
	r = read_part(fd, PROFILE_FORMAT_START + f.head, f.body, &body);
	return r ?: profile_format_body(&f, body, borrower, ret);
}

int profile_dir_read(int dirfd, uint64_t key, bool wants_items,
		     const struct profile_stack *borrower, struct profile_image *ret)
{
	char name[PROFILE_DIR_NAME_SIZE];
	_cleanup_(closep) int fd = -1;
	struct stat st;
	int r;

	*ret = (struct profile_image){ 0 };
	profile_dir_name(key, name);
	fd = open_file(dirfd, name, O_RDONLY, &st);
	if (fd < 0)
		return fd;
	if (st.st_size > (off_t)PROFILE_BYTES_OF_FILE)
		return -EFBIG;
	r = read_parts(fd, wants_items, borrower, ret);
	return r ?: ret->key == key ? 0 : -EUCLEAN;
}

/* Files are as old as their last start: exactly, where the kernel's clock for files is coarse. */
static int fill(int fd, const struct buf *bytes)
{
	struct timespec now[2];
	int r = file_pwrite(fd, bytes->data, bytes->len, 0);

	clock_gettime(CLOCK_REALTIME, &now[1]);
	now[0] = now[1];
	if (r == 0 && (futimens(fd, now) < 0 || fdatasync(fd) < 0))
		r = -errno;
	return r;
}

int profile_dir_write(int dirfd, uint64_t key, const struct buf *bytes)
{
	char name[PROFILE_DIR_NAME_SIZE], unfinished[sizeof(UNFINISHED) + 16];
	_cleanup_(closep) int fd = -1;
	struct stat st;
	int r;

	profile_dir_name(key, name);
	snprintf(unfinished, sizeof(unfinished), UNFINISHED "%x", (unsigned)gettid());
	unlinkat(dirfd, unfinished, 0);
	fd = open_file(dirfd, unfinished, O_WRONLY | O_CREAT | O_EXCL, &st);
	r = fd < 0 ? fd : fill(fd, bytes);
	if (r == 0 && renameat(dirfd, unfinished, dirfd, name) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(dirfd, unfinished, 0);
	return r;
}

/* ---- all files ---- */

/* Call fn for each name that begins with "profile". */
static int each_name(int dirfd, int (*fn)(int dirfd, const char *name, void *arg), void *arg)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir) {
		r = -errno;
		closep(&fd);
		return r;
	}
	for (const struct dirent *e; r == 0 && (e = readdir(dir));)
		if (!strncmp(e->d_name, "profile", 7))
			r = fn(dirfd, e->d_name, arg);
	closedir(dir);
	return r;
}

struct list {
	struct profile_dir_file *all;
	size_t n;
};

static int list_one(int dirfd, const char *name, void *arg)
{
	struct list *l = arg;
	char exact[PROFILE_DIR_NAME_SIZE];
	struct stat st;
	uint64_t key;
	int r;

	if (sscanf(name, PROFILE_PREFIX "%16" SCNx64, &key) != 1)
		return 0;
	profile_dir_name(key, exact);
	if (strcmp(name, exact) != 0 || fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	r = array_grow(&l->all, l->n);
	if (r == 0)
		l->all[l->n++] = (struct profile_dir_file){ key, st.st_size, st.st_mtim };
	return r;
}

int profile_dir_list(int dirfd, struct profile_dir_file **ret, size_t *ret_n)
{
	struct list l = { 0 };
	int r = each_name(dirfd, list_one, &l);

	if (r < 0)
		freep(&l.all);
	*ret = l.all;
	*ret_n = r < 0 ? 0 : l.n;
	return r;
}

static int remove_left_over(int dirfd, const char *name, void *arg)
{
	(void)arg;
	if (!strncmp(name, UNFINISHED, strlen(UNFINISHED)) ||
	    !strncmp(name, DATABASE, strlen(DATABASE)))
		unlinkat(dirfd, name, 0);
	return 0;
}

static int by_age(const void *a, const void *b)
{
	const struct timespec *x = &((const struct profile_dir_file *)a)->mtime,
			      *y = &((const struct profile_dir_file *)b)->mtime;

	return COMPARE(x->tv_sec, y->tv_sec) ?: COMPARE(x->tv_nsec, y->tv_nsec);
}

/* A quarter stays free, for the file that is written next beside the one that it replaces. */
void profile_dir_sweep(int dirfd, uint64_t keep)
{
	_cleanup_(freep) struct profile_dir_file *all = NULL;
	char name[PROFILE_DIR_NAME_SIZE];
	size_t n, left;
	off_t bytes = 0;

	each_name(dirfd, remove_left_over, NULL);
	if (profile_dir_list(dirfd, &all, &n) < 0 || !n)
		return;
	for (size_t i = 0; i < n; i++)
		bytes += all[i].size;
	qsort(all, n, sizeof(*all), by_age);
	left = n;
	for (size_t i = 0; i < n && (left > PROFILE_IMAGES_MAX ||
				     bytes > (off_t)(PROFILE_BYTES_MAX - PROFILE_BYTES_OF_FILE));
	     i++) {
		if (all[i].key == keep)
			continue;
		profile_dir_name(all[i].key, name);
		unlinkat(dirfd, name, 0);
		bytes -= all[i].size;
		left--;
	}
}
