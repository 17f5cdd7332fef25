// SPDX-License-Identifier: Apache-2.0
#include "veneer/data/publish.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/sys/rmtree.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/quota.h"
#include "veneer/union/upper.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PENDING_TRIES 64

int publish_link_fd(int fd, int dirfd, const char *name)
{
	char proc[32];

	if (linkat(fd, "", dirfd, name, AT_EMPTY_PATH) == 0)
		return 0;
	if (errno != ENOENT && errno != EPERM)
		return -errno;
	/* Without CAP_DAC_READ_SEARCH only the link by /proc is allowed. */
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, proc, dirfd, name, AT_SYMLINK_FOLLOW) == 0 ? 0 : -errno;
}

/* The source of an entry: a nameless file (name NULL), a name to move, or one to link (stays). */
struct origin {
	int fd;
	int dirfd;
	const char *name;
	bool stays;
};

static int try_entry(const struct origin *o, int dirfd, const char *name)
{
	if (!o->name)
		return publish_link_fd(o->fd, dirfd, name);
	if (o->stays)
		return linkat(o->dirfd, o->name, dirfd, name, 0) < 0 ? -errno : 0;
	return mode_relax_rename(o->dirfd, o->name, dirfd, name, RENAME_NOREPLACE);
}

/* Copying up needs no permission to write the directory. */
static int make_entry(const struct origin *o, int dirfd, const char *name)
{
	_cleanup_(mode_relax_endp) struct mode_relax *x = NULL;
	int r = try_entry(o, dirfd, name);

	if (r == -EACCES && (x = mode_relax_begin(dirfd, "")))
		r = try_entry(o, dirfd, name);
	return r;
}

static void restore_times(int dirfd, const struct stat *st)
{
	const struct timespec times[2] = { st->st_atim, st->st_mtim };

	futimens(dirfd, times);
}

static int place(struct union_fs *t, struct inode *i, const struct origin *o, struct inode *parent,
		 const char *name)
{
	struct upper_dir_entry up = {
		.type = i->type, .ino = i->ino, .is_ino_known = true, .is_below = true
	};
	struct stat before;
	struct upper_dir *d;
	uint64_t version;
	int dirfd, r = upper_listing(t, parent, &d);

	if (r < 0)
		return r;
	dirfd = upper_pin(t, parent);
	if (dirfd < 0)
		return dirfd;
	version = upper_dir_version(d);
	r = fstat(dirfd, &before) < 0 ? -errno : 0;
	/* A moved copy enters the mirror first. A link comes second there: nobody may have looked
	 * its name up yet, so the mirror must not have the name before the disk. */
	if (r == 0)
		r = o->stays ? make_entry(o, dirfd, name) : upper_dir_set(d, name, &up);
	if (r == 0) {
		r = o->stays ? upper_dir_set(d, name, &up) : make_entry(o, dirfd, name);
		if (r < 0 && o->stays)
			unlinkat(dirfd, name, 0);
		else if (r < 0)
			upper_dir_remove(d, name);
		/* Copy-up must be invisible: restore the directory's times, unless another change
		 * came between. */
		if (r == 0 && upper_dir_version(d) == version + 1)
			restore_times(dirfd, &before);
	}
	quota_note(t->quota, dirfd);
	fd_cache_unpin(&parent->src.fd);
	return r;
}

int publish_one(struct union_fs *t, struct inode *i, int fd, char temp[32], struct inode *parent,
		const char *name)
{
	const struct origin o = { .fd = fd, .dirfd = t->workfd, .name = *temp ? temp : NULL };
	int r = place(t, i, &o, parent, name);

	if (r == 0)
		*temp = '\0';
	return r;
}

int publish_link(struct union_fs *t, struct inode *i, int fromfd, const char *from,
		 struct inode *parent, const char *name)
{
	const struct origin o = { .fd = -1, .dirfd = fromfd, .name = from, .stays = true };

	return place(t, i, &o, parent, name);
}

int publish_open_left(struct union_fs *t)
{
	_cleanup_(closep) int fd = openat(t->upper->rootfd, PUBLISH_PENDING_NAME,
					  O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) < 0)
		return -errno;
	if (fd >= 0 && st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH)))
		return steal_fd(&fd);
	if (fd < 0 && errno != ENOTDIR && errno != ELOOP)
		return -errno;
	/* Others could put their files into it, and the mount would link them. */
	if (unlinkat(t->upper->rootfd, PUBLISH_PENDING_NAME, 0) < 0)
		rmtree(t->upper->rootfd, PUBLISH_PENDING_NAME);
	return -ENOENT;
}

/* Descriptor; -ENOENT if a concurrent publish_all removed the directory meanwhile. */
static int open_pending(struct union_fs *t)
{
	_cleanup_(mode_relax_endp) struct mode_relax *x = NULL;
	int fd = publish_open_left(t);
	struct stat before;

	if (fd != -ENOENT)
		return fd;
	x = mode_relax_begin(t->upper->rootfd, "");
	if (fstat(t->upper->rootfd, &before) < 0 ||
	    (mkdirat(t->upper->rootfd, PUBLISH_PENDING_NAME, 0700) < 0 && errno != EEXIST))
		return -errno;
	restore_times(t->upper->rootfd, &before);
	return publish_open_left(t);
}

void publish_close(struct union_fs *t)
{
	MODE_RELAX_SCOPE(t->upper->rootfd, "");
	struct stat before;

	if (fstat(t->upper->rootfd, &before) == 0 &&
	    unlinkat(t->upper->rootfd, PUBLISH_PENDING_NAME, AT_REMOVEDIR) == 0)
		restore_times(t->upper->rootfd, &before);
}

/* Other threads may change the root and read its times meanwhile. The last concurrent publish_all
 * removes the directory. */
static void leave_pending(struct union_fs *t)
{
	_cleanup_(mode_relax_endp) struct mode_relax *x = NULL;
	struct stat before;
	struct upper_dir *d;
	uint64_t version;

	if (upper_listing(t, t->root, &d) < 0)
		return;
	x = mode_relax_begin(t->upper->rootfd, "");
	version = upper_dir_version(d);
	if (fstat(t->upper->rootfd, &before) == 0 &&
	    unlinkat(t->upper->rootfd, PUBLISH_PENDING_NAME, AT_REMOVEDIR) == 0 &&
	    upper_dir_version(d) == version)
		restore_times(t->upper->rootfd, &before);
}

/* Give the copy its name in the directory of pending copies. -EPERM if a directory of another owner
 * reappears as often as it is removed. */
static int enter_pending(struct union_fs *t, int fd, const char *temp, const char *pending,
			 int *ret)
{
	int r = -ENOENT;

	for (int k = 0; k < PENDING_TRIES && r == -ENOENT; k++) {
		_cleanup_(closep) int dirfd = open_pending(t);

		if (dirfd < 0)
			r = dirfd;
		else if (*temp)
			r = renameat2(t->workfd, temp, dirfd, pending, RENAME_NOREPLACE) < 0
				    ? -errno
				    : 0;
		else
			r = publish_link_fd(fd, dirfd, pending);
		if (r == 0)
			*ret = steal_fd(&dirfd);
	}
	return r == -ENOENT ? -EPERM : r;
}

static void take_back(struct union_fs *t, const struct hardlink_place *p)
{
	_cleanup_(mode_relax_endp) struct mode_relax *x = NULL;
	struct upper_dir *d;
	int fd = upper_pin(t, p->dir);

	if (fd < 0)
		return;
	x = mode_relax_begin(fd, "");
	/* The mirror first: a thread that misses the entry and looks again sees the lower file. */
	if (upper_listing(t, p->dir, &d) == 0)
		upper_dir_remove(d, p->name);
	unlinkat(fd, p->name, 0);
	fd_cache_unpin(&p->dir->src.fd);
}

static int sync_directories(struct union_fs *t, const struct hardlink_set *names)
{
	int r = 0;

	if (!t->can.wants_name_sync || t->is_volatile)
		return 0;
	for (size_t k = 0; k < names->n && r == 0; k++) {
		int fd = upper_pin(t, names->v[k].dir);

		if (fd < 0)
			return fd;
		r = fsync(fd) < 0 ? -errno : 0;
		fd_cache_unpin(&names->v[k].dir->src.fd);
	}
	return r;
}

int publish_all(struct union_fs *t, struct inode *i, int fd, char temp[32],
		const struct hardlink_set *names)
{
	_cleanup_(closep) int dirfd = -1;
	char pending[32];
	size_t k;
	int r;

	upper_temp_name(t, pending);
	r = enter_pending(t, fd, temp, pending, &dirfd);
	if (r < 0)
		return r;
	*temp = '\0';
	for (k = 0; k < names->n && r == 0; k++)
		r = publish_link(t, i, dirfd, pending, names->v[k].dir, names->v[k].name);
	if (r == 0) {
		r = sync_directories(t, names);
		k++;
	}
	while (r < 0 && --k > 0)
		take_back(t, &names->v[k - 1]);
	if (unlinkat(dirfd, pending, 0) < 0)
		log_warn("%s: cannot remove " PUBLISH_PENDING_NAME "/%s: %s", t->upper->path,
			 pending, strerror(errno));
	else
		leave_pending(t);
	return r;
}
