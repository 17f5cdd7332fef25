// SPDX-License-Identifier: Apache-2.0
#include "veneer/union/upper.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/sys/path.h"
#include "veneer/sys/xattr.h"
#include "veneer/union/inode_struct.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#define UPPER_OPEN_TRIES 64
#define UPPER_DEPTH_MAX	 65536

/* Reads set no access times, except of files with -o atime. The server reads directories for its
 * own purposes, which is nobody's access. */
static int noatime(const struct union_fs *t)
{
	return t->keeps_atime ? 0 : O_NOATIME;
}

static int open_flags(const struct union_fs *t, const struct inode *i)
{
	switch (i->type) {
	case DT_REG:
		return O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | noatime(t);
	case DT_DIR:
		return O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NOATIME;
	default:
		return O_PATH | O_NOFOLLOW | O_CLOEXEC;
	}
}

/* O_NOATIME is allowed to the owner only; open other files without it. */
static int open_quiet(int dirfd, const char *name, int flags)
{
	int fd = openat(dirfd, name, flags);

	return fd < 0 && errno == EPERM && flags & O_NOATIME
		       ? openat(dirfd, name, flags & ~O_NOATIME)
		       : fd;
}

/* Read-only access may work for a program that is running from the upper, an immutable or
 * append-only file, or a mode that denies access even to the server. */
static bool may_be_readable(int error)
{
	return error == ETXTBSY || error == EPERM || error == EACCES || error == EROFS;
}

static int open_at(int dirfd, const char *name, int flags)
{
	int fd;

	for (int attempt = 0; attempt < 2; attempt++) {
		fd = open_quiet(dirfd, name, flags);
		if (fd >= 0 || (errno != EMFILE && errno != ENFILE))
			break;
		fd_cache_shrink();
	}
	if (fd < 0 && may_be_readable(errno) && (flags & O_ACCMODE) == O_RDWR)
		fd = open_quiet(dirfd, name, (flags & ~O_ACCMODE) | O_RDONLY);
	if (fd < 0 && errno == EACCES)
		fd = mode_relax_openat(dirfd, name, flags);
	else if (fd < 0)
		fd = -errno;
	return fd == -EACCES ? mode_relax_openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC) : fd;
}

/* The path to an object from the nearest open directory above it, deepest step first. A loop
 * instead of recursion, since a container decides the depth. */
struct way {
	struct step {
		struct inode *i; /* referenced, except the first */
		char name[NAME_MAX + 1];
	} *steps;
	size_t n, cap;
	struct inode *top; /* pinned; referenced unless it is the object itself */
};

static void way_release(struct union_fs *t, struct way *w)
{
	for (size_t k = 1; k < w->n; k++)
		inode_unref(t, w->steps[k].i);
	if (w->top && w->n)
		inode_unref(t, w->top);
	free(w->steps);
}

static int way_grow(struct way *w)
{
	struct step *p;

	if (w->n < w->cap)
		return 0;
	if (w->n >= UPPER_DEPTH_MAX)
		return -ENAMETOOLONG;
	p = realloc(w->steps, (w->cap ? w->cap * 2 : 8) * sizeof(*p));
	if (!p)
		return -ENOMEM;
	w->cap = w->cap ? w->cap * 2 : 8;
	w->steps = p;
	return 0;
}

static int pin_root(struct union_fs *t)
{
	int fd = fd_cache_pin(&t->root->src.fd);

	if (fd >= 0)
		return fd;
	fd = open_at(t->upper->rootfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOATIME);
	return fd < 0 ? fd : fd_cache_fill(&t->root->src.fd, fd);
}

/* Climb to an open directory. Its descriptor, or -errno; release in both cases. */
static int way_find(struct union_fs *t, struct inode *i, struct way *w)
{
	for (;;) {
		struct inode *parent;
		int r, fd = i == t->root ? pin_root(t) : fd_cache_pin(&i->src.fd);

		if (fd >= 0 || i == t->root) {
			w->top = i;
			return fd;
		}
		r = way_grow(w);
		if (r == 0)
			r = inode_any_name(t, i, &parent, w->steps[w->n].name);
		if (r < 0) {
			if (w->n)
				inode_unref(t, i);
			return r;
		}
		w->steps[w->n++].i = i;
		i = parent;
	}
}

int upper_dirfd(const struct union_fs *t, const struct inode *dir, int fd, const char *name)
{
	struct stat st;

	return t->rest && dir == t->root && fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 &&
			       errno == ENOENT
		       ? t->rest->rootfd
		       : fd;
}

/* Open one step down. -ESTALE: the name leads to another object. */
static int open_step(const struct union_fs *t, struct step *s, const struct inode *dir, int dirfd)
{
	struct stat st;
	int fd = open_at(upper_dirfd(t, dir, dirfd, s->name), s->name, open_flags(t, s->i));

	if (fd < 0)
		return fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP || fd == -ENXIO ? -ESTALE
										       : fd;
	if (fstat(fd, &st) < 0 || st.st_ino != s->i->upper_ino) {
		close(fd);
		return -ESTALE;
	}
	return fd_cache_fill(&s->i->src.fd, fd);
}

static int pin_by_names(struct union_fs *t, struct inode *i)
{
	struct way w = { .n = 0 };
	int fd = way_find(t, i, &w);

	for (size_t k = w.n; fd >= 0 && k-- > 0;) {
		struct inode *above = k + 1 < w.n ? w.steps[k + 1].i : w.top;
		int next = open_step(t, &w.steps[k], above, fd);

		fd_cache_unpin(&above->src.fd);
		fd = next;
	}
	way_release(t, &w);
	return fd;
}

int upper_pin(struct union_fs *t, struct inode *i)
{
	int fd = fd_cache_pin(&i->src.fd);

	/* A rename may have changed the backing file system but not yet the names in memory. Then
	 * the name leads elsewhere for a moment, and a later attempt succeeds. */
	for (int attempt = 0; fd < 0 && attempt < UPPER_OPEN_TRIES; attempt++) {
		if (attempt > 8)
			usleep(1000);
		fd = pin_by_names(t, i);
		if (fd < 0 && fd != -ESTALE)
			return fd;
	}
	return fd < 0 ? -ESTALE : fd;
}

void upper_unpin(struct inode *i)
{
	fd_cache_unpin(&i->src.fd);
}

int upper_pin_writable(struct union_fs *t, struct inode *i, int *ret_own)
{
	int fd = upper_pin(t, i), flags;

	*ret_own = -1;
	if (fd < 0)
		return fd;
	if (fd_cache_is_writable(&i->src.fd))
		return fd;
	flags = fcntl(fd, F_GETFL);
	if (flags >= 0 && !(flags & O_PATH) && (flags & O_ACCMODE) == O_RDWR) {
		fd_cache_note_writable(&i->src.fd);
		return fd;
	}
	/* When the file was opened, its mode or a running program denied writing: try again. */
	*ret_own = path_reopen(fd, O_RDWR);
	if (*ret_own == -EACCES) {
		MODE_RELAX_SCOPE(fd, "");

		*ret_own = path_reopen(fd, O_RDWR);
	}
	if (*ret_own < 0) {
		int r = *ret_own;

		*ret_own = -1;
		fd_cache_unpin(&i->src.fd);
		return r;
	}
	return *ret_own;
}

int upper_quiet_flag(const struct union_fs *t)
{
	return t->can.has_noatime ? noatime(t) : 0;
}

/* Set no access time by the descriptor of a new object, which may serve reads for long. */
static void quieten(const struct union_fs *t, const struct inode *i, int fd)
{
	if (!t->keeps_atime && !(i->type == DT_REG && upper_quiet_flag(t)))
		fcntl(fd, F_SETFL, O_NOATIME);
}

void upper_install(struct union_fs *t, struct inode *i, int fd)
{
	quieten(t, i, fd);
	if (fd_cache_fill(&i->src.fd, fd) == fd && i->type == DT_REG)
		fd_cache_note_writable(&i->src.fd);
	fd_cache_unpin(&i->src.fd);
}

int upper_take_share(struct union_fs *t)
{
	int r = fd_cache_hold(&t->held);

	if (r < 0 && !atomic_exchange(&t->has_held_all, true))
		log_warn("%s: too many open files have no name any more: cannot remove another",
			 t->upper->path);
	return r;
}

int upper_hold(struct union_fs *t, struct inode *i)
{
	int r = i->is_held ? 0 : upper_take_share(t);

	if (r < 0 || i->is_held)
		return r;
	r = upper_pin(t, i);
	if (r < 0) {
		fd_cache_unhold(&t->held);
		return r;
	}
	inode_note_held(t, i, r);
	return 0;
}

void upper_hold_fresh(struct union_fs *t, struct inode *i, int fd)
{
	quieten(t, i, fd);
	inode_note_held(t, i, fd_cache_fill(&i->src.fd, fd));
}

void upper_let_go(struct union_fs *t, struct inode *i)
{
	if (!i->is_held || inode_is_orphan(i))
		return;
	inode_note_held(t, i, -1);
	fd_cache_unpin(&i->src.fd);
	fd_cache_unhold(&t->held);
}

int upper_stat(struct union_fs *t, struct inode *i, struct stat *ret)
{
	int fd = fd_cache_pin(&i->src.fd), r;
	char name[NAME_MAX + 1];
	struct inode *parent;

	if (fd < 0 && i != t->root && inode_any_name(t, i, &parent, name) == 0) {
		/* Cheaper than opening it, and nearly always right; otherwise open it below. */
		fd = upper_pin(t, parent);
		r = fd < 0 ? fd
			   : mode_relax_stat(upper_dirfd(t, parent, fd, name), name,
					     AT_SYMLINK_NOFOLLOW, ret);
		if (fd >= 0)
			fd_cache_unpin(&parent->src.fd);
		inode_unref(t, parent);
		if (r == 0 && ret->st_ino == i->upper_ino)
			return 0;
		fd = -1;
	}
	if (fd < 0)
		fd = upper_pin(t, i);
	if (fd < 0)
		return fd;
	r = mode_relax_stat(fd, "", AT_EMPTY_PATH, ret);
	if (r == 0 && i == t->root && t->rest && t->rest->root_mtime.tv_sec)
		ret->st_mtim = t->rest->root_mtime;
	fd_cache_unpin(&i->src.fd);
	return r;
}

static int mirror(struct union_fs *t, struct inode *dir, int fd, struct upper_dir *d)
{
	_cleanup_(dir_listing_release) struct dir_listing l;
	int r = 0;

	l = (struct dir_listing){ 0 };
	r = dir_listing_read(fd, &l);
	for (size_t i = 0; r == 0 && i < l.n; i++) {
		const struct dir_listing_entry *e = &l.entries[i];
		const char *name = dir_listing_name(&l, e);
		struct upper_dir_entry up = { .ino = e->ino,
					      .type = e->type,
					      .is_whiteout = e->is_whiteout || e->is_hiding };
		struct upper_dir_entry old;
		struct image_entry *below;

		/* ".wh.NAME" beside NAME: the whiteout wins. */
		if (!up.is_whiteout && upper_dir_find(d, name, &old) && old.is_whiteout)
			continue;
		if (dir->lower) {
			r = image_lookup(t->image, dir->lower, name, &below);
			up.is_below = r == 0;
			if (r == -ENOENT)
				r = 0;
		}
		if (r == 0)
			r = upper_dir_set(d, name, &up);
	}
	return r;
}

/* The first mirror stays. A thread that makes a directory, and one that finds it at once, both
 * bring a mirror, and entries may have been made by way of the first. */
static struct upper_dir *publish(struct inode *dir, struct upper_dir *d)
{
	struct upper_dir *other = NULL;

	if (__atomic_compare_exchange_n(&dir->dir, &other, d, false, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return d;
	upper_dir_free(d);
	return other;
}

int upper_listing(struct union_fs *t, struct inode *dir, struct upper_dir **ret)
{
	struct upper_dir *d = __atomic_load_n(&dir->dir, __ATOMIC_ACQUIRE);
	int fd, r;

	if (d) {
		*ret = d;
		return 0;
	}
	/* The lock keeps a copy-up of a child from happening between reading and publishing. */
	WRLOCK_SCOPE(&dir->lock);
	if (dir->dir) {
		*ret = dir->dir;
		return 0;
	}
	d = upper_dir_new();
	if (!d)
		return -ENOMEM;
	fd = upper_pin(t, dir);
	if (fd < 0) {
		upper_dir_free(d);
		return fd;
	}
	r = mirror(t, dir, fd, d);
	if (r == 0 && dir == t->root && t->rest)
		r = mirror(t, dir, t->rest->rootfd, d);
	upper_dir_note_default_acl(d, xattr_get(fd, "", UPPER_DEFAULT_ACL, NULL, 0) > 0);
	fd_cache_unpin(&dir->src.fd);
	if (r < 0) {
		upper_dir_free(d);
		return r;
	}
	*ret = publish(dir, d);
	return 0;
}

int upper_listing_empty(struct inode *dir, bool has_default_acl)
{
	struct upper_dir *d = upper_dir_new();

	if (!d)
		return -ENOMEM;
	upper_dir_note_default_acl(d, has_default_acl);
	publish(dir, d);
	return 0;
}

bool upper_has_default_acl(const struct inode *dir)
{
	return dir->dir && upper_dir_has_default_acl(dir->dir);
}

void upper_forget_group(struct inode *i)
{
	struct upper_dir *d = __atomic_load_n(&i->dir, __ATOMIC_ACQUIRE);

	if (d)
		upper_dir_forget_group(d);
}

void upper_temp_name(struct union_fs *t, char name[32])
{
	snprintf(name, 32, "#%" PRIx64, t->work_seq++);
}
