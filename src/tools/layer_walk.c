// SPDX-License-Identifier: Apache-2.0
/* Pending directories are kept as paths, so only one is open at a time, however deep the layer is.
 * Callers look the same paths up in other layers. (dir_walk.h has no paths, and upper_walk.h walks
 * inodes.) */
#include "layer_walk.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/sys/path.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

struct pending {
	char *path;
	void *dir;
};

struct walk {
	int rootfd;
	const struct layer_walk_hooks *hooks;
	struct pending *dirs;
	size_t n, cap, nentries;
};

static int push(struct walk *w, const char *path, void *dir)
{
	if (array_reserve(&w->dirs, &w->cap, w->n + 1) < 0)
		return -ENOMEM;
	w->dirs[w->n] = (struct pending){ strdup(path), dir };
	if (!w->dirs[w->n].path)
		return -ENOMEM;
	w->n++;
	return 0;
}

static int miss(struct walk *w, const char *path, int error)
{
	return w->hooks->miss ? w->hooks->miss(w->hooks->arg, path, error) : error;
}

static int visit(struct walk *w, int dirfd, const struct pending *in, const char *name)
{
	char path[PARTIAL_XATTR_PATH_MAX];
	struct layer_walk_entry e = { .dirfd = dirfd, .name = name, .path = path, .dir = in->dir };
	void *dir = NULL;
	int r;

	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return 0;
	if (snprintf(path, sizeof(path), "%s%s%s", in->path, *in->path ? "/" : "", name) >=
	    (int)sizeof(path))
		return miss(w, in->path, -ENAMETOOLONG);
	if (fstatat(dirfd, name, &e.st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	step_take(w->hooks->step, ++w->nentries, w->n);
	r = w->hooks->fn(w->hooks->arg, &e, &dir);
	return r == 0 && S_ISDIR(e.st.st_mode) ? push(w, path, dir) : r < 0 ? r : 0;
}

static int read_dir(struct walk *w, const struct pending *in)
{
	int fd = path_open_quiet(w->rootfd, in->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW), r = 0;
	DIR *d;

	if (fd < 0)
		return fd == -ENOENT ? 0 : miss(w, in->path, fd);
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	while (r == 0) {
		const struct dirent *de;

		errno = 0;
		de = readdir(d);
		if (!de) {
			r = -errno;
			break;
		}
		r = visit(w, fd, in, de->d_name);
	}
	closedir(d);
	return r;
}

int layer_walk(int rootfd, void *root_dir, const struct layer_walk_hooks *hooks)
{
	struct walk w = { .rootfd = rootfd, .hooks = hooks };
	int r = push(&w, "", root_dir);

	while (r == 0 && w.n > 0) {
		struct pending in = w.dirs[--w.n];

		r = read_dir(&w, &in);
		free(in.path);
	}
	while (w.n > 0)
		free(w.dirs[--w.n].path);
	free(w.dirs);
	return r;
}
