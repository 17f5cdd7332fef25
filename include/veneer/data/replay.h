/* SPDX-License-Identifier: Apache-2.0 */
/* Requests on names that come again: a server that died may have carried them out already, as a
 * whole or in part. The kernel holds the directories since before it sent them first, so what is on
 * disk now is what was there then, or what that server made of it. Answers are those of the request
 * done once. */
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

/* As rename_entry. n: what was noted about it, or NULL. */
int replay_rename(struct union_fs *t, const struct intent *n, const struct replay_names *names,
		  unsigned flags);

/* As attr_setxattr with XATTR_CREATE, and attr_removexattr: the first time, when it is noted in n
 * whether the attribute is there, and again. n may be NULL. */
int replay_setxattr(struct union_fs *t, struct inode *i, struct intent *n, const char *name,
		    const void *value, size_t size);
int replay_removexattr(struct union_fs *t, struct inode *i, struct intent *n, const char *name);
/* After attr_setid_begin, the first time and again: what is to be put back is noted, and what a
 * dead server took away is to be put back. */
void replay_setid(struct union_fs *t, struct inode *i, struct intent *n, bool keeps_capability,
		  struct attr_setid *s);

/* The names in the inode table become those on disk, of all that a dead server had begun for the
 * mount with this key (intent_log.h). Only what is certain: an intent may be of a request that was
 * answered, and its names others' by now. */
void replay_settle(struct union_fs *t, uint64_t key);
