// SPDX-License-Identifier: Apache-2.0
#include "veneer/mount/mount_dirs.h"

#include "dir_overlap.h"
#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/sys/path.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

void mount_dirs_init(struct mount_dirs *d)
{
	*d = (struct mount_dirs){ .upper = -1, .work = -1, .lock = -1, .state = -1 };
}

static int add(int **list, size_t *n, int fd)
{
	if (array_grow(list, *n) < 0) {
		close(fd);
		return -ENOMEM;
	}
	(*list)[(*n)++] = fd;
	return 0;
}

int mount_dirs_add_lower(struct mount_dirs *d, int fd)
{
	return add(&d->lower, &d->n_lower, fd);
}

int mount_dirs_add_clone(struct mount_dirs *d, int fd)
{
	return add(&d->clones, &d->n_clones, fd);
}

static void drop_clones(struct mount_dirs *d)
{
	for (size_t i = 0; i < d->n_clones; i++)
		closep(&d->clones[i]);
	free(d->clones);
	d->clones = NULL;
	d->n_clones = 0;
}

void mount_dirs_clone(struct mount_dirs *d)
{
	for (size_t i = 0; i < d->n_lower; i++) {
		int fd = path_clone_readonly(d->lower[i]);

		if (fd < 0 || mount_dirs_add_clone(d, fd) < 0) {
			drop_clones(d);
			return;
		}
	}
}

void mount_dirs_release(struct mount_dirs *d)
{
	for (size_t i = 0; i < d->n_lower; i++)
		closep(&d->lower[i]);
	freep(&d->lower);
	drop_clones(d);
	closep(&d->upper);
	closep(&d->work);
	closep(&d->state);
	closep(&d->lock);
	mount_dirs_init(d);
}

static bool uses_work(const struct mount_opts *o)
{
	return o->upper && !o->is_readonly;
}

static int open_one(const char *what, const char *path, int *ret_fd, char *err, size_t err_size)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0) {
		int r = -errno;

		snprintf(err, err_size, "cannot open %s %s: %s", what, path, strerror(-r));
		return r;
	}
	*ret_fd = fd;
	return 0;
}

int mount_dirs_open(const struct mount_opts *o, struct mount_dirs *ret, char *err, size_t err_size)
{
	int r = 0;

	/* Open all of them before anything else: the caller may unmount a lower lazily as soon as
	 * it returns, and the mount point may be a lower. */
	mount_dirs_init(ret);
	if (o->upper)
		r = open_one("upperdir", o->upper, &ret->upper, err, err_size);
	for (size_t i = 0; r == 0 && i < o->n_lower; i++) {
		int fd = -1;

		r = open_one("lowerdir", o->lower[i], &fd, err, err_size);
		if (r == 0 && (r = mount_dirs_add_lower(ret, fd)) < 0)
			snprintf(err, err_size, "out of memory");
	}
	if (r == 0 && uses_work(o))
		r = open_one("workdir", o->work, &ret->work, err, err_size);
	return r ?: dir_overlap_check(o, ret, err, err_size);
}

bool mount_dirs_fit(const struct mount_opts *o, const struct mount_dirs *d)
{
	bool has_fit_clones = !d->n_clones || d->n_clones == d->n_lower;

	return d->n_lower == o->n_lower && has_fit_clones &&
	       (d->upper >= 0) == (o->upper != NULL) && (d->work >= 0) == uses_work(o);
}
