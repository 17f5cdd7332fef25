/* SPDX-License-Identifier: Apache-2.0 */
/* One mount: builds its layers, image and tree from options, and takes them down. Owns every object
 * of it. */
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
	struct worker *checkpoint; /* NULL without an upper, or frozen */
	struct readdir_ahead *readdir_ahead;
	struct promote_worker *promote; /* likewise */
	struct flat_copy_worker *flat_copies; /* NULL: none are made */
	struct prefetch_session *prefetch; /* NULL: none */
	struct trace *trace; /* the prefetch session's; NULL without */
	int state_fd; /* state_dir_ask, until mount_start_prefetch; -1 */
	struct readdirplus_policy readdirplus_policy;
	bool is_frozen; /* nothing is changed: the upper's file system became read-only while the
			   mount was used, or enum mount_reopening says so */
	bool has_warned_override; /* that owners and modes in attributes are ignored */
	bool has_begun; /* the kernel's INIT has come */
	bool has_passthrough; /* the kernel agreed to it; files may be refused all the same */
	_Atomic enum io_mode io; /* how files are opened; AUTO until that is settled */
	struct activity *activity; /* of threads that answer its requests; NULL: not noted */
	_Atomic uint32_t page_dup_number; /* its number in the page_dup_limiter; 0: none */
	bool is_sb_member; /* it is one of several of one file system (shared_sb.h), */
	struct sb_member *sb_member; /* namely this one; NULL: the common mount */
	uint64_t node_base; /* added to node ids for the kernel (shared_sb.h) */
	uint64_t
		snapshot; /* that the upper stood on when its layers were opened (branch_chain.h) */
	_Atomic bool checks_renames; /* rollback_notify_is_known does */
	struct htab looked_up; /* names; under the lock of rollback_notify.c */
	uint64_t key; /* of its intents (intent_log.h); 0: no journal is kept */
};

/* Open everything that the options, and the environment, name. Takes over opts, also on failure. On
 * failure -errno and one sentence in err. Call mount_close in both cases. */
int mount_open(struct mount *m, struct mount_opts *opts, char *err, size_t err_size);
/* Likewise with directories that are open: the paths in opts are for messages only. dirs fit opts
 * (mount_dirs_fit) and are taken over, also on failure. */
int mount_open_at(struct mount *m, struct mount_opts *opts, struct mount_dirs *dirs, char *err,
		  size_t err_size);
/* How much of an unfinished change mount_reopen_at deals with. */
enum mount_reopening {
	MOUNT_REOPENING_WHOLE, /* what was under way is finished or taken back */
	MOUNT_REOPENING_UNMERGED, /* a merge of snapshots that cannot be finished is left */
	MOUNT_REOPENING_FROZEN, /* the upper is written nowhere, and the mount is frozen */
};
/* Open the mount of a dead server again, with the memory files of its node table (node_table_fds),
 * so that node ids, generations and inode numbers stay; and of its locks (locks_fd; -1: the kernel
 * keeps them). Those that it takes over are -1 then: the node table's not on failure, so that it
 * can be tried again. image: that of another mount, which shared it, for one that has no snapshots;
 * NULL: that of its layers. A frozen mount can be read, and gets no request that changes
 * anything. */
struct mount_saved_tables {
	int slots_fd, names_fd, locks_fd;
	struct image *image;
	struct inode_rebuild *rebuild; /* the node table is there instead, if it has one */
	struct stats *stats; /* taken over; NULL: they begin anew */
	struct locks *locks; /* taken over but on failure; NULL: locks_fd says */
	struct workdir work; /* likewise; WORKDIR_NONE: the mount makes one */
	enum mount_reopening how;
};
#define MOUNT_SAVED_TABLES_NONE       \
	((struct mount_saved_tables){ \
		.slots_fd = -1, .names_fd = -1, .locks_fd = -1, .work = WORKDIR_NONE })
int mount_reopen_at(struct mount *m, struct mount_opts *opts, struct mount_dirs *dirs,
		    struct mount_saved_tables *saved, char *err, size_t err_size);
/* Trace what the mount reads first, and read ahead by the profile of its image. After INIT and
 * before the next request. */
void mount_start_prefetch(struct mount *m);
/* Release everything. The kernel's mount is gone. */
void mount_close(struct mount *m);
/* Leave it as a server that dies does, for mount_reopen_at: unlinked files stay, the work directory
 * too, and the upper is locked as long as a descriptor of that lock is open elsewhere. No
 * request waits for a lock of a file but of a member of a shared superblock. The node table goes to
 * what was made beside it (inode_rebuild.h), if there is any and it can be used, otherwise its
 * memory files are the caller's; so are the counters and the locks of files. First, unless the
 * mount is volatile, all of the upper is synced and its map marked as such. 0; -errno: that failed,
 * and it is left all the same. */
int mount_leave(struct mount *m, struct mount_saved_tables *left);
/* Does the kernel keep what programs write, and send it later (writeback=on)? Then size and times
 * of a regular file are the kernel's until it has. */
bool mount_keeps_writes(const struct mount *m);
/* How files are opened: "passthrough", "cached", "direct"; "auto" before the reply to INIT. */
const char *mount_mode(const struct mount *m);
/* The reason of that mode, a constant clause. */
const char *mount_mode_reason(const struct mount *m);

/* Ids between disk and what is presented, squashing included. */
uid_t mount_uid_to_disk(const struct mount *m, uid_t uid);
gid_t mount_gid_to_disk(const struct mount *m, gid_t gid);
void mount_present_ids(const struct mount *m, struct stat *st);
/* For the mount's root: an owner without a row is 65534, or nobody could make anything there. */
void mount_present_root_ids(const struct mount *m, struct stat *st);
/* Is a presented id one that can be stored? */
bool mount_has_uid(const struct mount *m, uid_t uid);
bool mount_has_gid(const struct mount *m, gid_t gid);
/* Translate the ids in the value of an ACL attribute, in place. To disk: -EINVAL for an id without
 * a row. A value that is no ACL stays as it is, and the file system refuses it. */
int mount_acl_to_disk(const struct mount *m, void *value, size_t size);
void mount_present_acl(const struct mount *m, void *value, size_t size);
/* Are owners presented as one fixed id? Then owners that cannot be set are no error. */
bool mount_squashes(const struct mount *m);
