/* SPDX-License-Identifier: Apache-2.0 */
/* Resent requests on names: a dead server may have carried them out, wholly or in part. The kernel
 * has held the directories since it first sent them, so the state on disk is the original one or
 * the work of that server. The answer is that of a request that ran once. */
#pragma once

#include "veneer/data/attr.h"
#include "veneer/recover/intent_log.h"

/* As remove_file and remove_dir. */
int replay_remove(struct union_fs *t, struct inode *parent, const char *name, bool is_dir);
/* As create_link. */
int replay_link(struct union_fs *t, struct inode *i, struct inode *parent, const char *name,
		struct stat *ret_st);
struct replay_names {
	struct inode *from;
	const char *from_name;
	struct inode *to;
	const char *to_name;
};

/* As rename_entry. n: the intent of the request, or NULL. */
int replay_rename(struct union_fs *t, const struct intent *n, const struct replay_names *names,
		  unsigned flags);

/* As attr_setxattr with XATTR_CREATE and attr_removexattr, for a first and for a resent request.
 * The first records in n whether the attribute exists. n may be NULL. */
int replay_setxattr(struct union_fs *t, struct inode *i, struct intent *n, const char *name,
		    const void *value, size_t size);
int replay_removexattr(struct union_fs *t, struct inode *i, struct intent *n, const char *name);
/* Called after attr_setid_begin, for a first and for a resent request. The first records in n the
 * mode and capability to restore; a resent one restores the values that a dead server had
 * recorded. */
void replay_setid(struct union_fs *t, struct inode *i, struct intent *n, bool keeps_capability,
		  struct attr_setid *s);

/* Make the names in the inode table match the disk for every operation that a dead server had begun
 * for the mount with this key (intent_log.h). Changes only certain names: an intent may belong to
 * an answered request, and its names to other files by now. */
void replay_settle(struct union_fs *t, uint64_t key);
