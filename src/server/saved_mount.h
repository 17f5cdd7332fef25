/* SPDX-License-Identifier: Apache-2.0 */
/* One mount as saved for the next server: its record, and the place of that in the supervisor
 * state. */
#pragma once

#include "veneer/mount/mount.h"
#include "veneer/recover/supervisor_state.h"
#include "veneer/server/mount_record.h"

struct saved_mount {
	struct supervisor_state *supervisor_state; /* NULL: none, and nothing is kept */
	struct mount_record mount_record;
	uint32_t place;
	bool is_kept;
	struct inode_rebuild *rebuild; /* the mount's inodes are there; borrowed. NULL: no */
	/* the mount's, while it is not open; NULL: it has them */
	struct stats *stats;
	struct locks *locks;
	struct workdir work; /* WORKDIR_NONE: it has it, or none */
};

/* Write down what the next server needs; the arguments and the place of the mount are in the record
 * already. fuse_fd, which stays the caller's, and the kernel's first request: -1 and none for a
 * member of a shared superblock. The descriptor of the ESTALE table may be in the record, and is
 * not after this. 0; or -errno, and this server serves the mount all the same. */
int saved_mount_write(struct saved_mount *k, struct mount *m, int fuse_fd, const void *init,
		      size_t len);
/* Open the mount of a record again, from duplicates of its directories, and by the tables' own
 * descriptors, which are taken over. image: as struct mount_saved_tables has it. *m is to be closed
 * if *ret_has_mount says so. What its disk refuses is tried some times, and then done without: the
 * mount is frozen at last, which is logged. -errno and a sentence. */
int saved_mount_reopen(struct saved_mount *k, struct image *image, struct mount *m,
		       bool *ret_has_mount, char *err, size_t err_size);
/* Keep for saved_mount_reopen what mount_leave left, but for the inodes that were made beside. */
void saved_mount_keep_left(struct saved_mount *k, const struct mount_saved_tables *left);
/* After a failure, for another try: what the mount has goes back to the record, and it is open no
 * more. False: it lacks what it is opened by. */
bool saved_mount_regain(struct saved_mount *k, struct mount *m, bool *has_mount);
/* Likewise, but that the mount, if it is open, is to be closed. */
void saved_mount_forget_rebuild(struct saved_mount *k);
/* Withdraw it: no next server resumes the mount. */
void saved_mount_drop(struct saved_mount *k);
/* Drop it, and close what it holds. */
void saved_mount_release(struct saved_mount *k);
