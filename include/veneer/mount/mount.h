/* SPDX-License-Identifier: Apache-2.0 */
/* One mount: builds its layers, image and tree from options, and takes them down. Owns all objects
 * of the mount. */
#pragma once

#include "veneer/base/htab.h"
#include "veneer/base/readdirplus_policy.h"
#include "veneer/mount/mount_dirs.h"
#include "veneer/mount/options.h"
#include "veneer/mount/upper_lock.h"
#include "veneer/mount/workdir.h"
#include "veneer/prefetch/prefetch_session.h"
#include "veneer/union/inode.h"

struct activity;
struct sb_member;

struct mount {
	struct mount_opts opts; /* owned, frozen */
	struct union_fs tree;
	struct upper_lock lock;
	struct workdir work; /* tree.workfd is its descriptor */
	struct worker *checkpoint; /* NULL: no upper, or frozen */
	struct readdir_ahead *readdir_ahead;
	struct promote_worker *promote; /* NULL: no upper, or frozen */
	struct flat_copy_worker *flat_copies; /* NULL: none are made */
	struct prefetch_session *prefetch; /* NULL: none */
	struct trace *trace; /* of the prefetch session; NULL: none */
	int state_fd; /* from state_dir_ask, until mount_start_prefetch; -1: none */
	struct readdirplus_policy readdirplus_policy;
	bool is_frozen; /* no more changes: the upper's file system became read-only, or see enum
			   mount_reopening */
	bool has_warned_override; /* has warned that owners and modes in attributes are ignored */
	bool has_begun; /* the kernel's INIT has arrived */
	bool has_passthrough; /* the kernel agreed to it; it may still refuse single files */
	_Atomic enum io_mode io; /* how files are opened; AUTO until INIT decides it */
	struct activity *activity; /* of the threads that answer its requests; NULL: not recorded */
	_Atomic uint32_t page_dup_number; /* in page_dup_limiter; 0: none */
	bool is_sb_member; /* one of several mounts in a shared superblock (shared_sb.h) */
	struct sb_member *sb_member; /* the member; NULL: the common mount */
	uint64_t node_base; /* added to node ids for the kernel (shared_sb.h) */
	uint64_t snapshot; /* the upper's head when its layers were opened (branch_chain.h) */
	_Atomic bool checks_renames; /* rollback_notify_is_known checks renames, as the kernel has
					old names */
	struct htab looked_up; /* names; under the lock of rollback_notify.c */
	uint64_t key; /* identifies its intents (intent_log.h); 0: no intent log */
};

/* Open the layers and directories of the options and of the environment. Takes opts over, also on
 * failure. On failure -errno and a sentence in err. Call mount_close in both cases. */
int mount_open(struct mount *m, struct mount_opts *opts, char *err, size_t err_size);
/* mount_open with open directories: the paths in opts are only for messages. dirs fit opts
 * (mount_dirs_fit) and are taken over, also on failure. */
int mount_open_at(struct mount *m, struct mount_opts *opts, struct mount_dirs *dirs, char *err,
		  size_t err_size);
/* How mount_reopen_at treats unfinished changes. */
enum mount_reopening {
	MOUNT_REOPENING_WHOLE, /* each one is finished or taken back */
	MOUNT_REOPENING_UNMERGED, /* a merge of snapshots that cannot be finished stays as it is */
	MOUNT_REOPENING_FROZEN, /* nothing is written to the upper, and the mount is frozen */
};
/* Reopen the mount of a dead server. With the memory files of its node table (node_table_fds), node
 * ids, generations and inode numbers stay; likewise its locks (locks_fd; -1: the kernel keeps
 * them). Descriptors that were taken over are set to -1; the node table's stay the caller's on
 * failure, for another try. image: the image of another mount that shares it, for a mount without
 * snapshots; NULL: open the image of its layers. A frozen mount can be read, and gets no request
 * that changes anything. */
struct mount_saved_tables {
	int slots_fd, names_fd, locks_fd;
	struct image *image;
	struct inode_rebuild *rebuild; /* its node table is used instead, if it has one */
	struct stats *stats; /* taken over; NULL: start at zero */
	struct locks *locks; /* taken over on success; NULL: use locks_fd */
	struct workdir work; /* taken over on success; WORKDIR_NONE: the mount makes one */
	enum mount_reopening how;
};
#define MOUNT_SAVED_TABLES_NONE       \
	((struct mount_saved_tables){ \
		.slots_fd = -1, .names_fd = -1, .locks_fd = -1, .work = WORKDIR_NONE })
int mount_reopen_at(struct mount *m, struct mount_opts *opts, struct mount_dirs *dirs,
		    struct mount_saved_tables *saved, char *err, size_t err_size);
/* Trace the first reads of the mount, and read ahead by the profile of its image. Call it after
 * INIT and before the next request. */
void mount_start_prefetch(struct mount *m);
/* Release everything; the kernel's mount is already gone. */
void mount_close(struct mount *m);
/* Leave the mount as a dying server does, for mount_reopen_at. Unlinked files and the work
 * directory stay. The upper stays locked as long as another descriptor of that lock is open. No
 * request may wait for a file lock, except of a member of a shared superblock. The node table goes
 * into the rebuild (inode_rebuild.h) if there is a usable one. Otherwise the caller gets its memory
 * files, and in any case the statistics and the file locks. Before that, unless the mount is
 * volatile, the upper is synced and its map marked clean. 0; -errno: the sync failed, and the mount
 * is left all the same. */
int mount_leave(struct mount *m, struct mount_saved_tables *left);
/* Does the kernel keep written data, and send it later (writeback=on)? Then it also owns size and
 * times of a regular file until it has sent the data. */
bool mount_keeps_writes(const struct mount *m);
/* The mode of opening files: "passthrough", "cached", "direct"; "auto" before the reply to INIT. */
const char *mount_mode(const struct mount *m);
/* The reason of that mode, a constant clause. */
const char *mount_mode_reason(const struct mount *m);

/* Translate ids between the disk and the mount, squashing included. */
uid_t mount_uid_to_disk(const struct mount *m, uid_t uid);
gid_t mount_gid_to_disk(const struct mount *m, gid_t gid);
void mount_present_ids(const struct mount *m, struct stat *st);
/* For the mount's root: an owner without a row becomes 65534, because otherwise nobody could create
 * files there. */
void mount_present_root_ids(const struct mount *m, struct stat *st);
/* Can a presented id be stored? */
bool mount_has_uid(const struct mount *m, uid_t uid);
bool mount_has_gid(const struct mount *m, gid_t gid);
/* Translate the ids in the value of an ACL attribute, in place. To disk: -EINVAL for an id without
 * a row. A malformed value is left to the file system, which refuses it. */
int mount_acl_to_disk(const struct mount *m, void *value, size_t size);
void mount_present_acl(const struct mount *m, void *value, size_t size);
/* Are owners presented as one fixed id? Then a failure to set owners is no error. */
bool mount_squashes(const struct mount *m);
