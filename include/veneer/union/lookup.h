/* SPDX-License-Identifier: Apache-2.0 */
/* Looks one name up in one directory of a mount: which of upper and image answers, and as what
 * inode. */
#pragma once

#include "veneer/union/inode.h"
#include "veneer/union/restore.h"

enum lookup_where { LOOKUP_NOWHERE, LOOKUP_LOWER, LOOKUP_UPPER };

struct lookup_state {
	enum lookup_where where;
	struct image_entry
		*below; /* what the lower directory has of that name, seen or not; NULL: nothing */
	struct upper_dir_entry up; /* valid if LOOKUP_UPPER, or is_whiteout */
	bool is_whiteout; /* the upper hides what is below */
};

/* The entry that is seen at name. No system call once both directories are known. 0 or -errno. */
int lookup_state(struct union_fs *t, struct inode *dir, const char *name, struct lookup_state *ret);
/* The inode of a name, referenced (inode_grant or inode_unref), and its attributes. -ENOENT;
 * -errno. */
int lookup_name(struct union_fs *t, struct inode *dir, const char *name, struct inode **ret,
		struct stat *ret_st);
/* An inode that a dead server left is filled before anything is asked of it. 0 (also for any
 * other); -ESTALE: what it was is nowhere to be found; -errno, and the next time may be better. */
static inline int lookup_restore(struct union_fs *t, struct inode *i)
{
	return inode_is_resolved(i) ? 0 : restore_inode(t, i);
}
/* Before a name is made, removed or renamed: whatever a dead server left by that name is filled, or
 * has lost it. */
int lookup_settle(struct union_fs *t, struct inode *dir, const char *name);
/* Attributes as presented (before id mapping): number, link count and blocks put right. */
int lookup_stat(struct union_fs *t, struct inode *i, struct stat *ret);

/* One step of a listing. *pos: 0 at the start; afterwards the position behind the entry, which
 * stays valid whatever comes and goes. 1 with an entry, 0 at the end, -errno. "." and ".." are not
 * listed. */
struct lookup_entry {
	char name[NAME_MAX + 1];
	uint64_t ino;
	uint8_t type;
};
int lookup_next(struct union_fs *t, struct inode *dir, uint64_t *pos, struct lookup_entry *ret);
/* 1: nothing is seen in it, 0: something is, -errno. */
int lookup_dir_is_empty(struct union_fs *t, struct inode *dir);
