/* SPDX-License-Identifier: Apache-2.0 */
/* Names, attributes and bytes of the made-up disk, as the calls of a kernel see them. All return
 * -errno on failure. Owns nothing. */
#pragma once

#include "disk.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#define FS_DEV makedev(254, 7)

/* Inode of (dir, name); "." and ".." too. */
int fs_look_up(struct disk *d, uint32_t dir, const char *name);
/* A new object; its inode. target: of a symlink, or NULL. */
int fs_make(struct disk *d, uint32_t dir, const char *name, mode_t mode, dev_t rdev,
	    const char *target);
int fs_make_nameless(struct disk *d, mode_t mode);
int fs_link(struct disk *d, uint32_t ino, uint32_t dir, const char *name);
int fs_unlink(struct disk *d, uint32_t dir, const char *name, bool is_dir);
struct fs_place {
	uint32_t dir;
	const char *name;
};
int fs_rename(struct disk *d, const struct fs_place *from, const struct fs_place *to,
	      unsigned flags);

int64_t fs_read(struct disk *d, uint32_t ino, void *p, size_t len, int64_t off);
int64_t fs_write(struct disk *d, uint32_t ino, const void *p, size_t len, int64_t off);
int fs_truncate(struct disk *d, uint32_t ino, int64_t size);
int fs_fallocate(struct disk *d, uint32_t ino, int mode, int64_t off, int64_t len);
int64_t fs_seek(struct disk *d, uint32_t ino, int64_t off, int whence);

void fs_stat(struct disk *d, uint32_t ino, struct stat *ret);
int fs_set_mode(struct disk *d, uint32_t ino, mode_t mode);
int fs_set_owner(struct disk *d, uint32_t ino, uid_t uid, gid_t gid);
int fs_set_times(struct disk *d, uint32_t ino, const struct timespec times[2]);
int64_t fs_get_xattr(struct disk *d, uint32_t ino, const char *name, void *p, size_t size);
int64_t fs_list_xattrs(struct disk *d, uint32_t ino, char *p, size_t size);
struct fs_xattr {
	const char *name;
	const void *value;
	size_t size;
	int flags;
};
int fs_set_xattr(struct disk *d, uint32_t ino, const struct fs_xattr *x);
int fs_remove_xattr(struct disk *d, uint32_t ino, const char *name);
