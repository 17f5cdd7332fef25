// SPDX-License-Identifier: Apache-2.0
#include "clone_state.h"

#include "mount_call.h"
#include "mount_find.h"
#include "upper_root.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/prefetch/state_dir.h"
#include "veneer/sys/mountinfo.h"
#include "veneer/sys/rmtree.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define DESCRIPTION "clone.json"
#define NAMES_MAX   100000
#define TICK_US	    1000

/* ---- the directory of all clones ---- */

/* malloc'd. 0 with NULL: there is none, and `makes` is false; -errno after a sentence. */
static int find_all(bool makes, char **ret)
{
	_cleanup_(freep) char *home = state_dir_path();
	_cleanup_(closep) int fd = home ? state_dir_open(home, !makes) : -ENOENT;
	int r = fd < 0 ? fd : 0;

	*ret = NULL;
	if (r == 0 && makes && mkdirat(fd, "clones", 0700) < 0 && errno != EEXIST)
		r = -errno;
	if (r == -ENOENT && !makes)
		return 0;
	if (r < 0)
		log_error("%s: cannot keep clones there: %s", home ? home : "$XDG_STATE_HOME",
			  strerror(-r));
	else if (asprintf(ret, "%s/clones", home) < 0) {
		log_error("out of memory");
		r = -ENOMEM;
	}
	return r;
}

/* Accept only a directory that no other user can write. */
static int open_own(const char *path)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	return st.st_uid != geteuid() || st.st_mode & 022 ? -EPERM : steal_fd(&fd);
}

/* ---- the description ---- */

char *clone_state_file(const struct clone_state *c, const char *name)
{
	char *ret;

	return asprintf(&ret, "%s/%s", c->path, name) < 0 ? NULL : ret;
}

static json_t *describe(const struct clone_state *c)
{
	return json_pack("{si, ss, sI, ss, ss, sI, sI, sb}", "version", 1, "dir", c->dir, "dir_ino",
			 (json_int_t)c->dir_ino, "dest", c->dest, "options", c->options, "since_s",
			 (json_int_t)c->since.tv_sec, "since_ns", (json_int_t)c->since.tv_nsec,
			 "has_made_dest", c->has_made_dest);
}

static int write_new(int dirfd, const json_t *description)
{
	_cleanup_(closep) int fd =
		openat(dirfd, DESCRIPTION ".new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	if (json_dumpfd(description, fd, JSON_INDENT(2)) < 0)
		return -EIO;
	return fsync(fd) < 0 ? -errno : 0;
}

/* Replace the description in one step: a reader finds the old one or the new one. */
static int save(const struct clone_state *c)
{
	_cleanup_(closep) int dirfd = open_own(c->path);
	json_t *description = describe(c);
	int r = dirfd < 0 ? dirfd : description ? write_new(dirfd, description) : -EILSEQ;

	json_decref(description);
	if (r == 0 &&
	    (renameat(dirfd, DESCRIPTION ".new", dirfd, DESCRIPTION) < 0 || fsync(dirfd) < 0))
		r = -errno;
	if (r < 0)
		log_error("%s: %s", c->path,
			  r == -EILSEQ ? "the paths of a clone must be valid UTF-8" : strerror(-r));
	return r;
}

static int take_description(struct clone_state *c, json_t *j)
{
	const char *dir, *dest, *options;
	json_int_t ino, s, ns;
	int version, is_made;

	if (json_unpack(j, "{si, ss, sI, ss, ss, sI, sI, sb}", "version", &version, "dir", &dir,
			"dir_ino", &ino, "dest", &dest, "options", &options, "since_s", &s,
			"since_ns", &ns, "has_made_dest", &is_made) < 0 ||
	    version != 1 || *dir != '/' || *dest != '/')
		return -EUCLEAN;
	c->dir = strdup(dir);
	c->dest = strdup(dest);
	c->options = strdup(options);
	c->dir_ino = (ino_t)ino;
	c->since = (struct timespec){ s, ns };
	c->has_made_dest = is_made;
	return c->dir && c->dest && c->options ? 0 : -ENOMEM;
}

/* path is taken over, also on failure. */
static int load(char *path, struct clone_state *ret)
{
	_cleanup_(closep) int dirfd = -1, fd = -1;
	json_t *j;
	int r;

	*ret = (struct clone_state){ .path = path, .lock_fd = -1 };
	if (!path)
		return -ENOMEM;
	dirfd = open_own(path);
	if (dirfd < 0)
		return dirfd;
	fd = openat(dirfd, DESCRIPTION, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	j = json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL);
	r = j ? take_description(ret, j) : -EUCLEAN;
	json_decref(j);
	return r;
}

/* ---- one ---- */

static bool is_before(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

/* Does everything in the directory have the clock of its own file system? A file system mounted in
 * it may have a coarse clock. */
static bool is_one_file_system(const char *dir)
{
	_cleanup_(closep) int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	bool is_plain = false;

	return fd >= 0 && mountinfo_plain(0, &fd, 1, &is_plain) == 0 && is_plain;
}

/* Linux 6.13 has a fine clock for change times. A file gets a time between two ticks if its last
 * change time was read before, and then no file of the file system gets an earlier one. *ret: the
 * time of the clone's own directory. False: its file system has no such clock, or is not the one of
 * dir. */
static bool read_fine_clock(const struct clone_state *c, const struct stat *dir,
			    const struct timespec *start, struct timespec *ret)
{
	struct stat st;

	if (fstat(c->lock_fd, &st) < 0 || st.st_dev != dir->st_dev ||
	    fchmod(c->lock_fd, st.st_mode & 07777) < 0 || fstat(c->lock_fd, &st) < 0)
		return false;
	*ret = st.st_ctim;
	return is_before(start, ret) && is_one_file_system(c->dir);
}

/* A time after all changes so far, by the clock of the file system, and not after any later change.
 * With a coarse clock this waits for the next tick. */
static struct timespec now(const struct clone_state *c, const struct stat *dir)
{
	struct timespec start, tick;

	clock_gettime(CLOCK_REALTIME, &start);
	if (read_fine_clock(c, dir, &start, &tick))
		return tick;
	do {
		usleep(TICK_US);
		clock_gettime(CLOCK_REALTIME_COARSE, &tick);
	} while (!is_before(&start, &tick));
	return tick;
}

/* Read the description again: it may have changed before the lock was taken. */
static int reload(struct clone_state *c)
{
	struct clone_state now;
	char *path = strdup(c->path);
	int r = load(path, &now);

	if (r < 0) {
		log_error("%s: %s", c->path, strerror(-r));
	} else {
		now.lock_fd = steal_fd(&c->lock_fd);
		clone_state_release(c);
		*c = now;
		return 0;
	}
	clone_state_release(&now);
	return r;
}

int clone_state_open_dir(const struct clone_state *c)
{
	_cleanup_(closep) int fd = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		log_error("%s: %s", c->dir, strerror(errno));
		return -errno;
	}
	if (st.st_ino == c->dir_ino)
		return steal_fd(&fd);
	log_error("%s is not the directory that was cloned, but another one", c->dir);
	return -ESTALE;
}

int clone_state_lock(struct clone_state *c)
{
	_cleanup_(closep) int fd = open_own(c->path);
	int r = fd < 0 ? fd : flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;

	if (r == 0) {
		c->lock_fd = steal_fd(&fd);
		return c->dir_ino ? reload(c) : 0;
	}
	r = r == -EWOULDBLOCK ? -EBUSY : r;
	log_error("%s: %s", c->dest, r == -EBUSY ? "another command works on it" : strerror(-r));
	return r;
}

/* The upper's root shows the attributes of the directory itself. */
static int make_own_dirs(const struct clone_state *c)
{
	_cleanup_(freep) char *upper = clone_state_file(c, "upper");
	int r = upper ? upper_root_make(upper, c->dir) : -ENOMEM;

	return r == 0 && mkdirat(c->lock_fd, "work", 0700) < 0 ? -errno : r;
}

int clone_state_renew(struct clone_state *c)
{
	struct stat st;
	int r;

	rmtree(c->lock_fd, "upper");
	rmtree(c->lock_fd, "work");
	r = stat(c->dir, &st) < 0 ? -errno : make_own_dirs(c);
	if (r < 0) {
		log_error("%s: cannot make its directories: %s", c->path, strerror(-r));
		return r;
	}
	c->since = now(c, &st);
	c->dir_ino = st.st_ino;
	return save(c);
}

/* Make a directory with a new name, like the name of dest. */
static int make_dir(const char *all, const char *dest, char **ret)
{
	const char *slash = strrchr(dest, '/'), *name = slash && slash[1] ? slash + 1 : "root";

	for (int k = 1; k < NAMES_MAX; k++) {
		int r = k == 1 ? asprintf(ret, "%s/%.200s", all, name)
			       : asprintf(ret, "%s/%.200s-%d", all, name, k);

		if (r < 0) {
			*ret = NULL;
			return -ENOMEM;
		}
		if (mkdir(*ret, 0700) == 0)
			return 0;
		r = -errno;
		free(*ret);
		*ret = NULL;
		if (r != -EEXIST)
			return r;
	}
	return -EEXIST;
}

int clone_state_make(const char *dir, const char *dest, const char *options, struct clone_state *c)
{
	_cleanup_(freep) char *all = NULL;
	int r = find_all(true, &all);

	if (r < 0)
		return r;
	r = make_dir(all, dest, &c->path);
	c->dir = strdup(dir);
	c->dest = strdup(dest);
	c->options = strdup(options);
	if (r == 0 && (!c->dir || !c->dest || !c->options))
		r = -ENOMEM;
	if (r < 0) {
		log_error("%s: %s", all, strerror(-r));
		return r;
	}
	r = clone_state_lock(c);
	r = r ?: clone_state_renew(c);
	if (r < 0)
		clone_state_remove(c);
	return r;
}

int clone_state_remove(struct clone_state *c)
{
	const char *slash = strrchr(c->path, '/');
	_cleanup_(freep) char *gone = NULL;
	struct stat st;

	/* Rename it to a name that no clone has, so that a kill leaves no half-removed clone. */
	if (asprintf(&gone, "%.*s/.%s", (int)(slash - c->path), c->path, slash + 1) < 0)
		gone = NULL;
	if (gone)
		rmtree(AT_FDCWD, gone);
	if (gone && rename(c->path, gone) == 0) {
		free(c->path);
		c->path = steal_ptr(&gone);
	}

	rmtree(AT_FDCWD, c->path);
	if (lstat(c->path, &st) < 0)
		return 0;
	log_error("%s: not all of it can be removed", c->path);
	return -ENOTEMPTY;
}

bool clone_state_is_applying(const struct clone_state *c)
{
	_cleanup_(freep) char *path = clone_state_file(c, CLONE_STATE_TAR);

	return path && access(path, F_OK) == 0;
}

void clone_state_release(struct clone_state *c)
{
	free(c->path);
	free(c->dir);
	free(c->dest);
	free(c->options);
	closep(&c->lock_fd);
	*c = (struct clone_state){ .lock_fd = -1 };
}

/* ---- all clones ---- */

static int is_name(const struct dirent *d)
{
	return d->d_name[0] != '.';
}

static int visit(const char *all, const char *name, int (*fn)(void *arg, struct clone_state *c),
		 void *arg)
{
	_cleanup_(clone_state_release) struct clone_state c = { .lock_fd = -1 };
	char *path = NULL;
	int r = asprintf(&path, "%s/%s", all, name) < 0 ? -ENOMEM : load(path, &c);

	if (r == 0)
		return fn(arg, &c);
	/* A clone that is being made has no description yet. */
	if (r != -ENOENT)
		log_error("%s/%s is no clone: %s", all, name,
			  r == -EUCLEAN ? "its description is damaged" : strerror(-r));
	return r == -ENOMEM ? r : 0;
}

int clone_state_each(int (*fn)(void *arg, struct clone_state *c), void *arg)
{
	_cleanup_(freep) char *all = NULL;
	struct dirent **names = NULL;
	int r = find_all(false, &all), n;

	if (r < 0 || !all)
		return r;
	n = scandir(all, &names, is_name, alphasort);
	if (n < 0 && errno == ENOENT)
		return 0;
	if (n < 0) {
		log_error("%s: %s", all, strerror(errno));
		return -errno;
	}
	for (int k = 0; k < n; k++) {
		r = r ?: visit(all, names[k]->d_name, fn, arg);
		free(names[k]);
	}
	free(names);
	return r;
}

struct wanted {
	const char *dest;
	struct clone_state *ret;
};

static int take_if_there(void *arg, struct clone_state *c)
{
	const struct wanted *w = arg;

	if (strcmp(c->dest, w->dest) != 0)
		return 0;
	*w->ret = *c;
	*c = (struct clone_state){ .lock_fd = -1 };
	return 1;
}

int clone_state_find(const char *dest, struct clone_state *ret)
{
	struct wanted w = { dest, ret };

	*ret = (struct clone_state){ .lock_fd = -1 };
	return clone_state_each(take_if_there, &w);
}

/* ---- options ---- */

char *clone_state_layers(const struct clone_state *c, bool with_upper)
{
	_cleanup_(freep) char *upper = clone_state_file(c, "upper");
	const struct report_mount m = { .lowers = (char **)&c->dir, .nlower = 1, .upper = upper };

	return upper ? mount_find_options(&m, with_upper) : NULL;
}

/* The -o list that mounts it. */
static char *mount_options(const struct clone_state *c)
{
	_cleanup_(freep) char *layers = clone_state_layers(c, true),
			      *path = clone_state_file(c, "work"), *work = NULL;
	char *ret;

	work = path ? mount_find_path_option("workdir=", path) : NULL;
	if (!layers || !work ||
	    asprintf(&ret, "%s,%s%s%s", layers, work, *c->options ? "," : "", c->options) < 0)
		return NULL;
	return ret;
}

/* ---- locking and mounting ---- */

int clone_state_mount(const struct clone_state *c)
{
	_cleanup_(freep) char *options = mount_options(c);

	if (!options)
		log_error("out of memory");
	return options ? mount_call_mount(options, c->dest) : 1;
}

int clone_state_check_branches(const struct clone_state *c)
{
	_cleanup_(freep) char *upper = clone_state_file(c, "upper");
	_cleanup_(closep) int fd = upper ? open(upper, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	int r = !upper ? -ENOMEM : fd >= 0 ? branch_dir_is_held(fd) : errno == ENOENT ? 0 : -errno;

	if (r)
		log_error("%s: %s", c->dest,
			  r == 1 ? "a branch that is mounted stands on a snapshot of it"
				 : strerror(-r));
	return r == 1 ? -EBUSY : r;
}

int clone_state_take(const char *given, struct clone_state *ret)
{
	_cleanup_(freep) char *dest = mount_find_path(given);
	int r = dest ? clone_state_find(dest, ret) : 0;

	if (r != 1)
		return r;
	r = clone_state_lock(ret);
	if (r < 0)
		return r;
	if (clone_state_is_applying(ret)) {
		log_error("%s: applying its changes was interrupted: `veneer apply` finishes it",
			  ret->dest);
		return -EBUSY;
	}
	return 1;
}
