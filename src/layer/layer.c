// SPDX-License-Identifier: Apache-2.0
#include "veneer/layer/layer.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/layer/map_recover.h"
#include "veneer/layer/mode_xattr.h"
#include "veneer/layer/snapshot_links.h"
#include "veneer/sys/mmap_cache.h"
#include "veneer/sys/path.h"
#include "veneer/sys/probe.h"
#include "veneer/sys/watch.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x4000u
#endif

/* Numbers of mounts that are never given to another, where the kernel has them. */
#define MOUNT_MASK (STATX_MNT_ID | STATX_MNT_ID_UNIQUE)

int layer_open(const char *path, struct layer **ret)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : layer_open_fd(fd, path, ret);
}

int layer_open_fd(int rootfd, const char *path, struct layer **ret)
{
	_cleanup_(closep) int fd = rootfd;
	struct layer *l;
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO | STATX_BTIME | MOUNT_MASK, &st) <
	    0)
		return -errno;
	if (!S_ISDIR(st.stx_mode))
		return -ENOTDIR;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->path = strdup(path);
	if (!l->path) {
		free(l);
		return -ENOMEM;
	}
	l->refs = 1;
	l->dev = makedev(st.stx_dev_major, st.stx_dev_minor);
	l->ino = st.stx_ino;
	if (st.stx_mask & STATX_BTIME)
		l->btime = (struct timespec){ .tv_sec = st.stx_btime.tv_sec,
					      .tv_nsec = st.stx_btime.tv_nsec };
	if (st.stx_mask & STATX_MNT_ID_UNIQUE)
		l->mount_id = st.stx_mnt_id;
	if (st.stx_mask & MOUNT_MASK)
		l->root_mount = st.stx_mnt_id;
	l->rootfd = steal_fd(&fd);
	l->is_mappable = mmap_cache_serves(l->rootfd);
	l->override = mode_xattr_detect(l->rootfd);
	list_init(&l->live);
	mutex_init(&l->map_lock);
	mutex_init(&l->clone_lock);
	lock_is_private(&l->clone_lock);
	l->readonly_root = -1;
	*ret = l;
	return 0;
}

/* A subvolume in a layer has numbers of its own without being a mount. Of other file systems the
 * device may say less: overlayfs gives files that of the layer they are in. */
static bool is_subvolume(const struct layer *l, int fd, dev_t dev)
{
	struct statfs fs;

	return dev != l->dev && fstatfs(fd, &fs) == 0 &&
	       (unsigned long)fs.f_type == BTRFS_SUPER_MAGIC;
}

int layer_inner_mount(const struct layer *l, int fd, uint64_t *ret_mount, ino_t *ret_ino)
{
	struct statx st;
	dev_t dev;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | MOUNT_MASK, &st) < 0)
		return -errno;
	dev = makedev(st.stx_dev_major, st.stx_dev_minor);
	if (l->root_mount && st.stx_mask & MOUNT_MASK && st.stx_mnt_id != l->root_mount)
		*ret_mount = st.stx_mnt_id;
	else if (l->root_mount && st.stx_mask & MOUNT_MASK)
		*ret_mount = is_subvolume(l, fd, dev) ? dev : 0;
	else
		*ret_mount = dev == l->dev ? 0 : dev;
	*ret_ino = st.stx_ino;
	return 0;
}

void layer_trust_remote(struct layer *l)
{
	struct statfs fs;

	l->is_static = fstatfs(l->rootfd, &fs) == 0 && !watch_sees_type(fs.f_type);
}

void layer_note_snapshot(struct layer *l)
{
	struct stat st;

	l->is_snapshot = true;
	snapshot_links_attach(l);
	l->has_numbers = fstatat(l->rootfd, BRANCH_DIR_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

void layer_note_rest(struct layer *l)
{
	l->is_rest = true;
	branch_dir_noted_time(l->rootfd, &l->root_mtime);
}

size_t layer_below(struct layer *const *layers, size_t n, size_t k)
{
	k++;
	return k < n && layers[k]->is_rest ? k + 1 : k;
}

struct layer *layer_ref(struct layer *l)
{
	l->refs++;
	return l;
}

void layer_unref(struct layer *l)
{
	if (!l || --l->refs)
		return;
	if (l->has_windows)
		mmap_cache_forget(l);
	if (l->map)
		mapfile_close(l->map);
	snapshot_links_detach(l);
	mutex_destroy(&l->map_lock);
	mutex_destroy(&l->clone_lock);
	closep(&l->readonly_root);
	closep(&l->rootfd);
	free(l->path);
	free(l);
}

int layer_map(struct layer *l, struct mapfile **ret)
{
	/* Held over the read of the map, once in a layer's life; only threads that need this very
	 * map wait for it. */
	LOCK_SCOPE(&l->map_lock);
	if (!l->map && !l->map_error) {
		struct map_recover rec;
		struct stat st;

		if (fstatat(l->rootfd, MAPFILE_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			/* Not remembered: a live upper of another mount may get its map any
			 * time. */
			return -errno;
		}
		map_recover_init(&rec, l->rootfd, l->path, probe_true_extents(l->rootfd));
		l->map_error =
			mapfile_open(l->rootfd, -1, MAPFILE_READONLY, l->path, &rec.hook, &l->map);
		map_recover_release(&rec);
	}
	if (l->map_error) {
		int r = l->map_error;

		/* Damage stays; no memory and no descriptor do not. */
		if (r != -EUCLEAN)
			l->map_error = 0;
		return r;
	}
	*ret = l->map;
	return 0;
}

int layer_readonly_root(struct layer *l)
{
	LOCK_SCOPE(&l->clone_lock);
	if (l->readonly_root == -1) {
		int fd = path_clone_readonly(l->rootfd);

		if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM)
			return fd;
		l->readonly_root = fd < 0 ? fd - 1 : fd;
	}
	return l->readonly_root < -1 ? l->readonly_root + 1 : l->readonly_root;
}

void layer_take_readonly_root(struct layer *l, struct layer *from)
{
	LOCK_SCOPE(&l->clone_lock);
	lock_is_private(&from->clone_lock);
	if (l->readonly_root < 0 && from->readonly_root >= 0)
		l->readonly_root = steal_fd(&from->readonly_root);
}

int layer_steal_readonly_root(struct layer *l)
{
	int fd;

	LOCK_SCOPE(&l->clone_lock);
	fd = l->readonly_root;
	l->readonly_root = -1;
	return fd < 0 ? -1 : fd;
}

int layer_open_upper_map(struct layer *l, int work_fd, unsigned flags, bool has_true_extents)
{
	struct map_recover rec;
	int r;

	LOCK_SCOPE(&l->map_lock);
	map_recover_init(&rec, l->rootfd, l->path, has_true_extents);
	rec.is_ours = !(flags & MAPFILE_READONLY);
	if (has_true_extents || probe_is_ordered(l->rootfd))
		flags |= MAPFILE_ORDERED;
	r = mapfile_open(l->rootfd, work_fd, flags, l->path, &rec.hook, &l->map);
	map_recover_release(&rec);
	return r;
}
