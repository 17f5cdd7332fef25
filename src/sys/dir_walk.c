// SPDX-License-Identifier: Apache-2.0
/* Goes up by "..", and checks that it leads to the directory that the walk came from. */
#include "veneer/sys/dir_walk.h"

#include "veneer/base/array.h"
#include "veneer/base/buf.h"
#include "veneer/base/cleanup.h"
#include "veneer/sys/mode_relax.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

#define OPEN_LEVELS 16u

/* A directory of the walk, and the names in it that are still to be entered. */
struct level {
	int fd; /* -1: closed while the walk is far below */
	struct mode_relax *relax;
	dev_t dev;
	ino_t ino;
	struct buf names;
	size_t at;
};

struct walk {
	const struct dir_walk_hooks *hooks;
	void *arg;
	struct level *levels;
	size_t depth, cap;
};

static void closedirp(DIR **d)
{
	if (*d)
		closedir(*d);
}

static int open_dir(int dirfd, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(dirfd, name, flags | O_NOATIME);

	if (fd < 0 && errno == EPERM)
		fd = openat(dirfd, name, flags);
	return fd < 0 ? -errno : fd;
}

static int visit(struct walk *w, struct level *l, const char *name)
{
	struct stat st;
	int r;

	if (fstatat(l->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return w->hooks->miss(w->arg, name, -errno);
	r = w->hooks->entry(w->arg, l->fd, name, &st);
	return r > 0 ? buf_put(&l->names, name, strlen(name) + 1) : r;
}

/* Read the names. *ret_misses after a failure: the directory cannot be read, and the walk may
 * continue. */
static int read_names(struct walk *w, struct level *l, bool *ret_misses)
{
	_cleanup_(closedirp) DIR *d = NULL;
	int fd = open_dir(l->fd, "."), r = 0;
	struct dirent *de;

	*ret_misses = fd < 0;
	if (fd < 0)
		return fd;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	while (r == 0 && (errno = 0, (de = readdir(d))))
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			r = visit(w, l, de->d_name);
	*ret_misses = r == 0 && errno;
	return *ret_misses ? -errno : r;
}

static void level_release(struct level *l)
{
	closep(&l->fd);
	mode_relax_end(l->relax);
	buf_release(&l->names);
}

static int push(struct walk *w, int fd)
{
	struct stat st;

	if (array_reserve(&w->levels, &w->cap, w->depth + 1) < 0)
		return -ENOMEM;
	if (fstat(fd, &st) < 0)
		return -errno;
	w->levels[w->depth++] = (struct level){ .fd = fd, .dev = st.st_dev, .ino = st.st_ino };
	/* Keep the root's descriptor open: it leads back from any depth. */
	if (w->depth > OPEN_LEVELS + 1)
		closep(&w->levels[w->depth - OPEN_LEVELS - 1].fd);
	return 0;
}

/* Enter a directory, and visit all its names at once. */
static int enter(struct walk *w, int dirfd, const char *name)
{
	bool misses = true;
	struct mode_relax *x = w->hooks->is_ours ? mode_relax_begin(dirfd, name) : NULL;
	int fd = open_dir(dirfd, name), r = fd < 0 ? fd : push(w, fd);

	if (r == 0)
		w->levels[w->depth - 1].relax = x;
	else
		mode_relax_end(x);
	if (r < 0 && fd >= 0)
		close(fd);
	if (fd >= 0 && r == 0)
		r = read_names(w, &w->levels[w->depth - 1], &misses);
	return r < 0 && misses && r != -ENOMEM ? w->hooks->miss(w->arg, name, r) : r;
}

static int reopen_above(struct level *above, const struct level *below)
{
	struct stat st;
	int fd = open_dir(below->fd, "..");

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || st.st_dev != above->dev || st.st_ino != above->ino) {
		close(fd);
		return -ESTALE;
	}
	above->fd = fd;
	return 0;
}

static int leave(struct walk *w)
{
	struct level *l = &w->levels[w->depth - 1];
	struct level *above = w->depth > 1 ? l - 1 : NULL;
	int r = above && above->fd < 0 ? reopen_above(above, l) : 0;

	/* A level without a descriptor can only be left, too, since nothing leads up from the next
	 * one. */
	while (r < 0 && w->depth > 2 && w->levels[w->depth - 2].fd < 0)
		level_release(&w->levels[--w->depth]);
	level_release(&w->levels[--w->depth]);
	return r < 0 ? w->hooks->miss(w->arg, "..", r) : 0;
}

int dir_walk(int rootfd, const struct dir_walk_hooks *hooks, void *arg)
{
	struct walk w = { .hooks = hooks, .arg = arg };
	int r = enter(&w, rootfd, ".");

	while (r == 0 && w.depth) {
		struct level *l = &w.levels[w.depth - 1];
		const char *name = buf_next_text(&l->names, &l->at);

		r = name ? enter(&w, l->fd, name) : leave(&w);
	}
	while (w.depth)
		level_release(&w.levels[--w.depth]);
	free(w.levels);
	return r;
}
