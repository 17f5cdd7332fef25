/* SPDX-License-Identifier: Apache-2.0 */
/* Requests on names that come again: a server that died may have carried them out already, as a whole or in part. The
 * kernel holds the directories since before it sent them first, so what is on disk now is what was there then, or what
 * that server made of it. Answers are those of the request done once. */
#pragma once

#include "veneer/attr.h"
#include "veneer/intent.h"

/* As remove_file and remove_dir. */
int redo_remove(struct tree *t, struct inode *parent, const char *name, bool is_dir);
/* As create_link. */
int redo_link(struct tree *t, struct inode *i, struct inode *parent, const char *name, struct stat *ret_st);
/* As rename_entry. n: what was noted about it, or NULL. */
int redo_rename(struct tree *t, const struct intent *n, struct inode *old_parent, const char *old_name,
		struct inode *parent, const char *name, unsigned flags);

/* As attr_setxattr with XATTR_CREATE, and attr_removexattr: the first time, when it is noted in n whether the attribute
 * is there, and again. n may be NULL. */
int redo_setxattr(struct tree *t, struct inode *i, struct intent *n, const char *name, const void *value, size_t size);
int redo_removexattr(struct tree *t, struct inode *i, struct intent *n, const char *name);
/* After attr_setid_begin, the first time and again: what is to be put back is noted, and what a dead server took away
 * is to be put back. */
void redo_setid(struct tree *t, struct inode *i, struct intent *n, bool keeps_capability, struct attr_setid *s);

/* The names in the inode table become those on disk, of all that a dead server had begun for the mount with this key
 * (intent.h). Only what is certain: an intent may be of a request that was answered, and its names others' by now. */
void redo_settle(struct tree *t, uint64_t key);
