/* SPDX-License-Identifier: Apache-2.0 */
/* One mount: builds its layers, image and tree from options, and takes them down. Owns every object
 * of it. */
#pragma once

#include "veneer/base/readdirplus_policy.h"
#include "veneer/mount/mount_dirs.h"
#include "veneer/mount/options.h"
#include "veneer/mount/upper_lock.h"
#include "veneer/prefetch/prefetch_session.h"
#include "veneer/union/inode.h"

struct activity;
struct sb_member;

struct mount {
	struct mount_opts opts; /* owned, frozen */
	struct union_fs tree;
	struct upper_lock lock;
	char *work_name; /* our directory below workdir/work */
	int work_parent;
	struct checkpoint *checkpoint; /* NULL without an upper, or frozen */
	struct readdir_ahead *readdir_ahead;
	struct promote_worker *promote; /* likewise */
	struct prefetch_session *learning; /* NULL: nothing is learned */
	struct trace *trace; /* the learning's; NULL without */
	int state_fd; /* state_dir_ask, until mount_learn; -1 */
	struct readdirplus_policy readdirplus_policy;
	bool is_frozen; /* the upper's file system became read-only before a server died: nothing is
			   changed */
	bool has_doubted_override; /* and said so */
	bool has_begun; /* the kernel's INIT has come */
	bool has_passthrough; /* the kernel agreed to it; files may be refused all the same */
	_Atomic enum io_mode io; /* how files are opened; AUTO until that is settled */
	struct activity *activity; /* of threads that answer its requests; NULL: not noted */
	_Atomic uint32_t sent_as; /* number of the account of what it is sent (page_dup_limiter.h);
				     0: none is kept */
	bool is_sb_member; /* it is one of several of one file system (shared_sb.h), */
	struct sb_member *sb_member; /* namely this one; NULL: the one that they have in common */
	uint64_t node_base; /* what the kernel's node ids have above ours (shared_sb.h); 0:
			     * nothing */
	uint64_t key; /* whose intents are its own (intent_log.h); 0: no journal is kept */
};

/* Open everything that the options, and the environment, name. opts is taken over, also on failure.
 * On failure -errno and one sentence in err. Call mount_close in both cases. */
int mount_open(struct mount *m, struct mount_opts *opts, char *err, size_t err_size);
/* The same of directories that are open: the paths in opts are for messages only. dirs fit opts
 * (mount_dirs_fit) and are taken over, also on failure. */
int mount_open_at(struct mount *m, struct mount_opts *opts, struct mount_dirs *dirs, char *err,
		  size_t err_size);
/* A mount of a server that is dead, with the memory files of its node table (node_table_fds): node
 * ids, generations and inode numbers are what they were; and its locks (locks_fd; -1: the kernel
 * keeps them). The descriptors are taken over, also on failure. image: of another mount, which it
 * had in common with that; NULL: that of its layers. Where the upper's file system is read-only by
 * now, the mount is frozen: it can be read, and requests that change anything are not for it. */
struct mount_left {
	int slots_fd, names_fd, locks_fd;
	struct image *image;
};
int mount_reopen_at(struct mount *m, struct mount_opts *opts, struct mount_dirs *dirs,
		    const struct mount_left *left, char *err, size_t err_size);
/* The mount is about to be served: learn what it is asked for first, and read ahead what is known
 * of its image. Before its first request but INIT. */
void mount_learn(struct mount *m);
/* Give everything back. The kernel has let go of the mount. */
void mount_close(struct mount *m);
/* How files are opened: "passthrough", "cached", "direct"; "auto" as long as the mount does not
 * answer. */
const char *mount_mode(const struct mount *m);
/* Why that one: a clause, constant. */
const char *mount_mode_reason(const struct mount *m);

/* Ids between disk and what is presented, squashing included. */
uid_t mount_uid_to_disk(const struct mount *m, uid_t uid);
gid_t mount_gid_to_disk(const struct mount *m, gid_t gid);
void mount_present_ids(const struct mount *m, struct stat *st);
/* Of the mount's root: an owner without a row is 65534, or nobody could make anything there. */
void mount_present_root_ids(const struct mount *m, struct stat *st);
/* Is a presented id one that can be stored? */
bool mount_has_uid(const struct mount *m, uid_t uid);
bool mount_has_gid(const struct mount *m, gid_t gid);
/* The ids in the value of an ACL attribute, in place. to_disk: -EINVAL if one has no place there.
 * What is no ACL is left to the file system to refuse. */
int mount_acl_to_disk(const struct mount *m, void *value, size_t size);
void mount_present_acl(const struct mount *m, void *value, size_t size);
/* Some id is presented as another: owners that cannot be set are no error. */
bool mount_squashes(const struct mount *m);
