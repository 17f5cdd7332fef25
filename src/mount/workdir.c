// SPDX-License-Identifier: Apache-2.0
/* workdir/work/<name>/ holds the unfinished files of one mount. An flock on it shows that its mount
 * is alive, because callers do mount an upper twice. workdir/work/incompat/volatile is overlayfs's
 * mark. A file in it has the boot id, so that the same boot may go on. */
#include "veneer/mount/workdir.h"

#include "veneer/base/cleanup.h"
#include "veneer/sys/boot_id.h"
#include "veneer/sys/file.h"
#include "veneer/sys/path.h"
#include "veneer/sys/rmtree.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define VOLATILE_MARK "incompat/volatile"
#define BOOT_FILE     VOLATILE_MARK "/boot_id"

static void each_name(int dirfd, bool (*fn)(int dirfd, const char *name, void *arg), void *arg)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;
	bool goes_on = true;

	if (!d) {
		closep(&fd);
		return;
	}
	while (goes_on && (de = readdir(d)))
		if (strcmp(de->d_name, ".") && strcmp(de->d_name, ".."))
			goes_on = fn(fd, de->d_name, arg);
	closedir(d);
}

/* Open and lock the directory of a dead mount. -1: not a mount's directory, or the mount is
 * alive. */
static int open_dead(int parent, const char *name)
{
	_cleanup_(closep) int fd = -1;

	if (strncmp(name, WORKDIR_PREFIX, strlen(WORKDIR_PREFIX)) != 0)
		return -1;
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 ? steal_fd(&fd) : -1;
}

static bool remove_dead(int parent, const char *name, void *arg)
{
	_cleanup_(closep) int fd = open_dead(parent, name);

	(void)arg;
	if (fd >= 0)
		rmtree(parent, name);
	return true;
}

static bool remove_any(int dirfd, const char *name, void *arg)
{
	(void)arg;
	if (unlinkat(dirfd, name, 0) < 0 && errno == EISDIR)
		rmtree(dirfd, name);
	return true;
}

/* Does the directory still look as make_own made it, and was it not removed by a process that had
 * it locked? */
static bool is_as_made(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_nlink > 0 && st.st_uid == geteuid() &&
	       (st.st_mode & 0777) == 0700;
}

static bool reuse_dead(int parent, const char *name, void *arg)
{
	_cleanup_(closep) int fd = open_dead(parent, name);
	struct workdir *o = arg;

	if (fd < 0 || !is_as_made(fd) || !(o->name = strdup(name)))
		return true;
	each_name(fd, remove_any, NULL);
	o->fd = steal_fd(&fd);
	return false;
}

static int make_own(int parent, struct workdir *ret)
{
	_cleanup_(freep) char *name = NULL;
	_cleanup_(closep) int fd = -1;
	uint64_t random = 0;

	if (getrandom(&random, sizeof(random), 0) < 0 ||
	    asprintf(&name, WORKDIR_PREFIX "%016llx", (unsigned long long)random) < 0) {
		name = NULL;
		return -ENOMEM;
	}
	if (mkdirat(parent, name, 0700) < 0)
		return -errno;
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return -errno;
	ret->name = steal_ptr(&name);
	ret->fd = steal_fd(&fd);
	return 0;
}

/* Make a directory. On a full disk, empty and reuse one of a dead mount. */
static int find_own(int parent, struct workdir *ret)
{
	int r = make_own(parent, ret);
	const bool wants_room = r == -ENOSPC || r == -EDQUOT;

	if (wants_room)
		each_name(parent, reuse_dead, ret);
	each_name(parent, remove_dead, NULL);
	if (ret->fd >= 0)
		return 0;
	/* Removing the directories of dead mounts has freed some room. */
	return wants_room ? make_own(parent, ret) : r;
}

static int fail(char *err, size_t err_size, int r, const char *what, const char *path)
{
	snprintf(err, err_size, "cannot %s workdir %s: %s%s", what, path, strerror(-r),
		 r == -ENOSPC || r == -EDQUOT ? "; free some room for it, or mount with ro" : "");
	return r;
}

int workdir_open(int top, const char *path, struct workdir *ret, char *err, size_t err_size)
{
	_cleanup_(closep) int parent = -1;
	struct workdir w = WORKDIR_NONE;
	int r;

	if (mkdirat(top, "work", 0700) < 0 && errno != EEXIST)
		return fail(err, err_size, -errno, "write to", path);
	parent = openat(top, "work", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (parent < 0)
		return fail(err, err_size, -errno, "open work in", path);
	r = find_own(parent, &w);
	if (r < 0)
		return fail(err, err_size, r, "write to", path);
	w.parent = steal_fd(&parent);
	*ret = w;
	return 0;
}

bool workdir_adopt(struct workdir *left, struct workdir *ret)
{
	/* workdir_open then reports the reason. */
	if (left->fd < 0 || !is_as_made(left->fd) || faccessat(left->fd, ".", W_OK, 0) < 0) {
		workdir_leave(left);
		return false;
	}
	each_name(left->fd, remove_any, NULL);
	each_name(left->parent, remove_dead, NULL);
	*ret = *left;
	*left = WORKDIR_NONE;
	return true;
}

void workdir_close(struct workdir *w)
{
	if (w->parent >= 0 && w->name)
		rmtree(w->parent, w->name);
	workdir_leave(w);
}

void workdir_leave(struct workdir *w)
{
	closep(&w->fd);
	closep(&w->parent);
	free(w->name);
	w->name = NULL;
}

int workdir_handle(const char *path, const struct workdir *w, char ret[WORKDIR_HANDLE_SIZE])
{
	struct stat st;
	int n;

	if (fstat(w->fd, &st) < 0)
		return -errno;
	n = snprintf(ret, WORKDIR_HANDLE_SIZE, "%u:%u:%ju %s/work/%s", major(st.st_dev),
		     minor(st.st_dev), (uintmax_t)st.st_ino, path, w->name);
	return n < WORKDIR_HANDLE_SIZE ? n : -ENAMETOOLONG;
}

int workdir_open_handle(const char *handle)
{
	_cleanup_(closep) int fd = -1;
	unsigned dev_major, dev_minor;
	const char *name;
	struct stat st;
	uintmax_t ino;
	int at = 0;

	if (sscanf(handle, "%u:%u:%ju %n", &dev_major, &dev_minor, &ino, &at) != 3 ||
	    handle[at] != '/')
		return -ESTALE;
	name = strrchr(handle, '/') + 1;
	if (strncmp(name, WORKDIR_PREFIX, strlen(WORKDIR_PREFIX)) != 0)
		return -ESTALE;
	fd = open(handle + at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_dev != makedev(dev_major, dev_minor) || st.st_ino != ino)
		return -ESTALE;
	return steal_fd(&fd);
}

static bool read_line(int dirfd, const char *path, char *line, size_t size)
{
	/* The owner of the directory may have put a link or a fifo there. */
	_cleanup_(closep) int fd = path_open(dirfd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	ssize_t n = fd < 0 ? -1 : read(fd, line, size - 1);

	if (n <= 0)
		return false;
	line[n] = '\0';
	line[strcspn(line, "\n")] = '\0';
	return true;
}

static int make_dir(int parent, const char *name, int *ret)
{
	if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	*ret = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret < 0 ? -errno : 0;
}

/* Write the mark in one step: after a crash in between, the next mount would assume a reboot. */
static int write_mark(int parent, const char *boot)
{
	_cleanup_(closep) int above = -1, dir = -1, fd = -1;
	int r = make_dir(parent, "incompat", &above);

	r = r ?: make_dir(above, "volatile.new", &dir);
	if (r < 0)
		return r;
	fd = openat(dir, "boot_id",
		    O_CREAT | O_TRUNC | O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = file_pwrite(fd, boot, strlen(boot), 0);
	if (r < 0)
		return r;
	return renameat2(above, "volatile.new", above, "volatile", 0) < 0 ? -errno : 0;
}

int workdir_check_volatile(int parent, const char *path, bool is_volatile, char *err,
			   size_t err_size)
{
	char boot[BOOT_ID_SIZE] = "", then[BOOT_ID_SIZE] = "";
	struct stat st;
	int r = boot_id_read(boot);

	if (r < 0 && r != -ENOENT) {
		snprintf(err, err_size, "cannot read the kernel's boot id: %s", strerror(-r));
		return r;
	}
	if (fstatat(parent, VOLATILE_MARK, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    (!read_line(parent, BOOT_FILE, then, sizeof(then)) || !*boot ||
	     strcmp(boot, then) != 0)) {
		snprintf(err, err_size,
			 "the upper was last mounted volatile and may have lost data when the "
			 "machine went down; "
			 "remove %s/work/" VOLATILE_MARK " to use it all the same",
			 path);
		return -EINVAL;
	}
	if (!is_volatile || *then)
		return 0;
	r = write_mark(parent, boot);
	return r < 0 ? fail(err, err_size, r, "write to", path) : 0;
}

bool workdir_is_volatile(int parent)
{
	char boot[BOOT_ID_SIZE] = "", then[BOOT_ID_SIZE] = "";

	return read_line(parent, BOOT_FILE, then, sizeof(then)) && boot_id_read(boot) == 0 &&
	       !strcmp(boot, then);
}

struct others {
	const char *own;
	bool is_found;
};

static bool look_for_another(int parent, const char *name, void *arg)
{
	struct others *o = arg;
	_cleanup_(closep) int fd = -1;

	if (strncmp(name, WORKDIR_PREFIX, strlen(WORKDIR_PREFIX)) != 0 || !strcmp(name, o->own))
		return true;
	fd = open_dead(parent, name);
	o->is_found = fd < 0;
	return !o->is_found;
}

bool workdir_has_another(int parent, const char *own)
{
	struct others o = { .own = own };

	each_name(parent, look_for_another, &o);
	return o.is_found;
}

/* Move the mark away in one step: without its boot id it would be a mark of overlayfs. A new mount
 * makes its directory first and then reads the mark. So either this mount finds the directory, or
 * the new one finds no mark. */
void workdir_end_volatile(const struct workdir *w)
{
	static const char moved[] = "volatile";

	if (workdir_has_another(w->parent, w->name) ||
	    renameat2(w->parent, VOLATILE_MARK, w->fd, moved, RENAME_NOREPLACE) < 0)
		return;
	if (workdir_has_another(w->parent, w->name))
		renameat2(w->fd, moved, w->parent, VOLATILE_MARK, RENAME_NOREPLACE);
	else
		unlinkat(w->parent, "incompat", AT_REMOVEDIR);
}
