/* SPDX-License-Identifier: Apache-2.0 */
/* One mount as saved for the next server: its record, and the record's place in the supervisor
 * state. */
#pragma once

#include "veneer/mount/mount.h"
#include "veneer/recover/supervisor_state.h"
#include "veneer/server/mount_record.h"

struct saved_mount {
	struct supervisor_state *supervisor_state; /* NULL: there is none, and nothing is saved */
	struct mount_record mount_record;
	uint32_t place;
	bool is_kept;
	struct inode_rebuild *rebuild; /* holds the mount's inodes, borrowed; NULL: none */
	/* of the mount while it is closed; NULL: the open mount has them */
	struct stats *stats;
	struct locks *locks;
	struct workdir work; /* WORKDIR_NONE: the open mount has it, or there is none */
};

/* Save the mount; the record already has its arguments and place. fuse_fd stays the caller's; it is
 * -1, and init (the kernel's first request) NULL, for a member of a shared superblock. The record
 * may have the descriptor of the ESTALE table, and has not after this. 0; or -errno, and this
 * server serves the mount all the same. */
int saved_mount_write(struct saved_mount *k, struct mount *m, int fuse_fd, const void *init,
		      size_t len);
/* Reopen the mount of a record, from duplicates of its directories and from the descriptors of its
 * tables, which are taken over. image: see struct mount_saved_tables. The caller closes *m if
 * *ret_has_mount is true. After repeated errors of the disk the mount is opened frozen, without the
 * parts that fail, and that is logged. -errno and a sentence. */
int saved_mount_reopen(struct saved_mount *k, struct image *image, struct mount *m,
		       bool *ret_has_mount, char *err, size_t err_size);
/* Take over from mount_leave everything for saved_mount_reopen, except the rebuilt inodes. */
void saved_mount_keep_left(struct saved_mount *k, const struct mount_saved_tables *left);
/* Prepare another try after a failure: return the mount's descriptors to the record, and leave the
 * mount. False: the record is incomplete. */
bool saved_mount_regain(struct saved_mount *k, struct mount *m, bool *has_mount);
/* After a failure without another try: give the rebuild up. The caller closes the mount if it is
 * open. */
void saved_mount_forget_rebuild(struct saved_mount *k);
/* Withdraw the record: no next server resumes the mount. */
void saved_mount_drop(struct saved_mount *k);
/* Withdraw the record, and close its descriptors. */
void saved_mount_release(struct saved_mount *k);
