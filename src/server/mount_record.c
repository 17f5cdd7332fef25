// SPDX-License-Identifier: Apache-2.0
#include "veneer/server/mount_record.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/cursor.h"
#include "veneer/sys/file.h"
#include "wire.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define BYTES_MAX (64u << 20)

void mount_record_init(struct mount_record *d)
{
	*d = (struct mount_record){ .fuse_fd = -1,
				    .slots_fd = -1,
				    .names_fd = -1,
				    .locks_fd = -1,
				    .estale_table_fd = -1,
				    .fd = -1 };
	mount_dirs_init(&d->dirs);
}

/* Reduce the options of one member to those of the common mount. */
static int make_common(struct mount_opts *o)
{
	struct mount_opts common = { 0 };
	int r = options_common(o, &common);

	if (r == 0) {
		options_release(o);
		*o = common;
	}
	return r;
}

int mount_record_options(const struct mount_record *d, const struct mount_dirs *dirs,
			 struct mount_opts *ret, char *err, size_t err_size)
{
	_cleanup_(buf_release) struct buf args = { 0 };
	_cleanup_(freep) char **argv = NULL;
	const char *cwd;
	int r = buf_put(&args, d->args.data, d->args.len);

	if (r == 0)
		r = wire_split_args((char *)args.data, args.len, d->argc, &cwd, &argv);
	snprintf(err, err_size, "%s",
		 r == -ENOMEM ? "out of memory" : "the arguments cannot be understood");
	if (r < 0)
		return r;
	r = options_parse(&(struct options_argv){ .argc = (int)d->argc,
						  .argv = argv,
						  .cwd = cwd,
						  .is_root = d->flags & WIRE_MOUNT_IS_ROOT,
						  .is_saved = d->fd >= 0 },
			  ret, err, err_size);
	if (r < 0)
		return r;
	ret->has_no_device_whiteouts = d->flags & WIRE_MOUNT_NO_DEVICE_WHITEOUTS;
	r = mount_record_is_common(d) ? make_common(ret) : 0;
	if (r < 0) {
		options_release(ret);
		snprintf(err, err_size, "out of memory");
		return r;
	}
	if (ret->wants_help || ret->wants_version || !mount_dirs_fit(ret, dirs)) {
		snprintf(err, err_size, "the arguments and the directories do not fit each other");
		options_release(ret);
		return -EINVAL;
	}
	return 0;
}

static int duplicate(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	return copy < 0 ? -errno : copy;
}

static int copy_all(struct mount_dirs *to, const int *fds, size_t n,
		    int (*add)(struct mount_dirs *d, int fd))
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++) {
		r = duplicate(fds[i]);
		if (r >= 0)
			r = add(to, r);
	}
	return r;
}

static int copy_one(int *to, int fd)
{
	if (fd >= 0)
		*to = duplicate(fd);
	return *to < -1 ? *to : 0;
}

static int copy_dirs(const struct mount_dirs *from, struct mount_dirs *to)
{
	int r;

	mount_dirs_init(to);
	to->opener = from->opener;
	r = copy_all(to, from->lower, from->n_lower, mount_dirs_add_lower);
	if (r == 0)
		r = copy_all(to, from->clones, from->n_clones, mount_dirs_add_clone);
	if (r == 0)
		r = copy_one(&to->upper, from->upper);
	if (r == 0)
		r = copy_one(&to->work, from->work);
	if (r == 0)
		r = copy_one(&to->lock, from->lock);
	if (r < 0) {
		to->upper = to->upper < 0 ? -1 : to->upper;
		to->work = to->work < 0 ? -1 : to->work;
		to->lock = to->lock < 0 ? -1 : to->lock;
		mount_dirs_release(to);
	}
	return r;
}

int mount_record_keep_dirs(struct mount_record *d, const struct mount_dirs *dirs)
{
	return copy_dirs(dirs, &d->dirs);
}

int mount_record_copy_dirs(const struct mount_record *d, struct mount_dirs *ret)
{
	return copy_dirs(&d->dirs, ret);
}

static int put_fds(struct buf *b, const int *fds, size_t n)
{
	int r = buf_put_u32(b, (uint32_t)n);

	for (size_t i = 0; r == 0 && i < n; i++)
		r = buf_put_u32(b, (uint32_t)fds[i]);
	return r;
}

static int put_bytes(struct buf *b, const struct buf *bytes)
{
	int r = buf_put_u32(b, (uint32_t)bytes->len);

	return r ?: buf_put(b, bytes->data, bytes->len);
}

static int encode(const struct mount_record *d, struct buf *b)
{
	const uint32_t words[] = { d->argc,
				   d->flags,
				   d->dev_major,
				   d->dev_minor,
				   d->io,
				   d->secret,
				   (uint32_t)d->dirs.opener };
	const int fds[] = { d->dirs.upper, d->dirs.work, d->dirs.lock, d->fuse_fd,
			    d->slots_fd,   d->names_fd,	 d->locks_fd,  d->estale_table_fd };
	int r = buf_put_u32(b, MOUNT_RECORD_VERSION);

	r = r ?: buf_put_u64(b, d->key);
	r = r ?: buf_put_u64(b, d->group);
	r = r ?: buf_put_u64(b, d->mount_ns);
	for (size_t i = 0; r == 0 && i < sizeof(words) / sizeof(*words); i++)
		r = buf_put_u32(b, words[i]);
	for (size_t i = 0; r == 0 && i < sizeof(fds) / sizeof(*fds); i++)
		r = buf_put_u32(b, (uint32_t)fds[i]);
	r = r ?: put_fds(b, d->dirs.lower, d->dirs.n_lower);
	r = r ?: put_fds(b, d->dirs.clones, d->dirs.n_clones);
	r = r ?: put_bytes(b, &d->args);
	return r ?: put_bytes(b, &d->init);
}

int mount_record_write(struct mount_record *d)
{
	_cleanup_(buf_release) struct buf b = { 0 };
	_cleanup_(closep) int fd = memfd_create("veneer-mount", MFD_CLOEXEC);
	int r = fd < 0 ? -errno : encode(d, &b);

	if (r == 0)
		r = file_pwrite(fd, b.data, b.len, 0);
	if (r < 0)
		return r;
	closep(&d->fd);
	d->fd = steal_fd(&fd);
	return 0;
}

static int get_fds(struct cursor *c, struct mount_dirs *to,
		   int (*add)(struct mount_dirs *d, int fd))
{
	uint32_t n = cursor_u32(c);
	int r = 0;

	for (uint32_t i = 0; r == 0 && !c->bad && i < n; i++)
		r = add(to, (int)cursor_u32(c));
	return r;
}

static int get_bytes(struct cursor *c, struct buf *ret)
{
	uint32_t n = cursor_u32(c);
	const uint8_t *p = cursor_bytes(c, n);

	return p ? buf_put(ret, p, n) : 0;
}

static int decode(struct cursor *c, struct mount_record *d)
{
	int r;

	if (cursor_u32(c) != MOUNT_RECORD_VERSION)
		return -EPROTO;
	d->key = cursor_u64(c);
	d->group = cursor_u64(c);
	d->mount_ns = cursor_u64(c);
	d->argc = cursor_u32(c);
	d->flags = cursor_u32(c);
	d->dev_major = cursor_u32(c);
	d->dev_minor = cursor_u32(c);
	d->io = cursor_u32(c);
	d->secret = cursor_u32(c);
	d->dirs.opener = (pid_t)cursor_u32(c);
	d->dirs.upper = (int)cursor_u32(c);
	d->dirs.work = (int)cursor_u32(c);
	d->dirs.lock = (int)cursor_u32(c);
	d->fuse_fd = (int)cursor_u32(c);
	d->slots_fd = (int)cursor_u32(c);
	d->names_fd = (int)cursor_u32(c);
	d->locks_fd = (int)cursor_u32(c);
	d->estale_table_fd = (int)cursor_u32(c);
	r = get_fds(c, &d->dirs, mount_dirs_add_lower);
	r = r ?: get_fds(c, &d->dirs, mount_dirs_add_clone);
	r = r ?: get_bytes(c, &d->args);
	r = r ?: get_bytes(c, &d->init);
	return r < 0 ? r : c->bad || cursor_left(c) ? -EBADMSG : 0;
}

static void disown(struct mount_record *d)
{
	d->fd = d->fuse_fd = d->dirs.upper = d->dirs.work = d->dirs.lock = -1;
	d->slots_fd = d->names_fd = d->locks_fd = d->estale_table_fd = -1;
}

int mount_record_read(int fd, struct mount_record *ret)
{
	_cleanup_(freep) uint8_t *bytes = NULL;
	struct stat st;
	int r = fstat(fd, &st) < 0 ? -errno : st.st_size > BYTES_MAX ? -EBADMSG : 0;

	mount_record_init(ret);
	if (r < 0)
		return r;
	bytes = malloc((size_t)st.st_size + 1);
	if (!bytes)
		return -ENOMEM;

	ssize_t n = file_pread(fd, bytes, (size_t)st.st_size, 0);
	struct cursor c = cursor_over(bytes, n < 0 ? 0 : (size_t)n);

	r = n < 0 ? (int)n : decode(&c, ret);
	/* The record does not decode, so the owners of its descriptors are unknown: close none. */
	if (r < 0) {
		disown(ret);
		ret->dirs.n_lower = ret->dirs.n_clones = 0;
		mount_record_release(ret);
		return r;
	}
	ret->fd = fd;
	return 0;
}

void mount_record_each_fd(const struct mount_record *d, void (*fn)(int fd, void *arg), void *arg)
{
	const int fds[] = { d->fd,	 d->dirs.upper, d->dirs.work, d->dirs.lock,	 d->fuse_fd,
			    d->slots_fd, d->names_fd,	d->locks_fd,  d->estale_table_fd };

	for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++)
		if (fds[i] >= 0)
			fn(fds[i], arg);
	for (size_t i = 0; i < d->dirs.n_lower; i++)
		fn(d->dirs.lower[i], arg);
	for (size_t i = 0; i < d->dirs.n_clones; i++)
		fn(d->dirs.clones[i], arg);
}

void mount_record_release(struct mount_record *d)
{
	int *const fds[] = { &d->fuse_fd,  &d->slots_fd,	&d->names_fd,
			     &d->locks_fd, &d->estale_table_fd, &d->fd };

	mount_dirs_release(&d->dirs);
	for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++)
		closep(fds[i]);
	buf_release(&d->args);
	buf_release(&d->init);
}

void mount_record_forget(struct mount_record *d)
{
	disown(d);
	for (size_t i = 0; i < d->dirs.n_lower; i++)
		d->dirs.lower[i] = -1;
	for (size_t i = 0; i < d->dirs.n_clones; i++)
		d->dirs.clones[i] = -1;
	mount_record_release(d);
}
