/* SPDX-License-Identifier: Apache-2.0 */
/* Probes this kernel, user namespace and backing file system: tries each feature in a scratch
 * directory, once. */
#pragma once

#include <stdbool.h>

struct probe_dir {
	bool is_readonly; /* EROFS on create */
	bool has_user_xattr; /* user.* on regular files */
	bool has_trusted_xattr; /* trusted.* : privileged in the first user namespace */
	bool has_noatime; /* new files belong to the server: O_NOATIME is not refused */
	bool has_tmpfile; /* O_TMPFILE and linkat of it */
	bool has_whiteout; /* mknod of character device 0:0 */
	bool has_rename_whiteout; /* renameat2(RENAME_WHITEOUT) */
	/* names that start with .wh., which other union file systems refuse */
	bool has_reserved_names;
	bool has_acl; /* system.posix_acl_* */
	/* ext4 (with a journal that orders data) or XFS: an allocated extent survives a
	 * power cut only with its data (measured; see the design's power-cut section). */
	bool has_true_extents;
	/* btrfs: fsync of one file or directory may keep it and lose an entry that it depends on,
	 * such as a whiteout or the directory of its copy-up (tests/crash); syncfs keeps all. */
	bool wants_whole_sync;
	/* btrfs: when a new file's directory or one above was synced, but not the file, it may have
	 * its name and attributes after a power cut, and size 0 (tests/crash). */
	bool wants_size_sync;
	/* ext4 without a journal: fsync of a file reaches one of its names, the first in the
	 * kernel's cache. For a file that had no name when it was opened it may reach none
	 * (tests/crash). */
	bool wants_name_sync;
};

/* Try everything on scratch files in dirfd (a work directory) and remove them again. A feature that
 * fails for lack of room counts as present. 0, or -errno if not even a file can be created, for
 * another reason than EROFS or lack of room. */
int probe_work_dir(int dirfd, struct probe_dir *ret);

/* has_true_extents of the file system of fd, without writing; false when in doubt. */
bool probe_true_extents(int fd);
/* After a power cut, does each block of the file system of fd read as zeros or as it was written,
 * whole? False when in doubt. True also if a power cut leaves nothing. */
bool probe_is_ordered(int fd);
/* btrfs: fsync logs a file, but not all of its names that were moved. */
bool probe_wants_whole_sync(int fd);

/* May this process do more to a file than its owner? True if it can use trusted.* attributes: it
 * has CAP_SYS_ADMIN in the first user namespace, like root. In doubt true: then attributes that a
 * file's owner may write are trusted less. Any thread; reads the answer once and keeps it. */
bool probe_is_trusted(void);
