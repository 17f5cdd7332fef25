/* SPDX-License-Identifier: Apache-2.0 */
/* Probes this kernel, user namespace and backing file system; each feature is tried in a scratch
 * directory, and answered once. */
#pragma once

#include <stdbool.h>

struct probe_dir {
	bool is_readonly; /* EROFS on create */
	bool has_user_xattr; /* user.* on regular files */
	bool has_trusted_xattr; /* trusted.* : privileged in the first user namespace */
	bool has_noatime; /* a new file is ours: O_NOATIME is not refused */
	bool has_tmpfile; /* O_TMPFILE and linkat of it */
	bool has_whiteout; /* mknod of character device 0:0 */
	bool has_rename_whiteout; /* renameat2(RENAME_WHITEOUT) */
	bool has_reserved_names; /* names that start with .wh., which other union file systems
				    refuse */
	bool has_acl; /* system.posix_acl_* */
	/* ext4 (with a journal that orders data) or XFS: an allocated extent survives a
	 * power cut only with its data (measured; see the design's power-cut section). */
	bool has_true_extents;
	/* btrfs: fsync of one file or directory may keep it and lose what it depends on, a whiteout
	 * or the directory it was just copied up into (tests/crash); syncfs keeps all. */
	bool wants_whole_sync;
	/* btrfs: a new file that nobody synced may have its name and attributes after a power cut,
	 * and size 0, when its directory or one above was synced (tests/crash). */
	bool wants_size_sync;
	/* ext4 without a journal: fsync of a file reaches one of its names, that which the kernel's
	 * cache has first, and for a file that had none when it was opened it may be none
	 * (tests/crash). */
	bool wants_name_sync;
};

/* Try everything on files of its own in dirfd (a work directory) and remove them again; what there
 * is no room for counts as what can be done. 0, or -errno when not even a file can be created and
 * the reason is neither EROFS nor want of room. */
int probe_work_dir(int dirfd, struct probe_dir *ret);

/* The has_true_extents of the file system that fd is on, without writing; false when in doubt. */
bool probe_true_extents(int fd);
/* After a power cut a block of the file system that fd is on reads as zeros, or as it was written
 * whole; false when in doubt. Also where no power cut leaves anything. */
bool probe_is_ordered(int fd);
/* btrfs: fsync logs a file, and of names that were moved not all. */
bool probe_wants_whole_sync(int fd);

/* May this process do more to a file than its owner? True where trusted.* attributes are there for
 * it: it has CAP_SYS_ADMIN in the first user namespace, as root has. In doubt true: what the owner
 * of a file may write is then believed less. Any thread; asks the kernel until it has answered
 * once. */
bool probe_is_trusted(void);
