/* SPDX-License-Identifier: Apache-2.0 */
/* Looks one name up in one directory of a mount: does upper or image answer, and with which
 * inode? */
#pragma once

#include "veneer/union/inode.h"
#include "veneer/union/restore.h"

enum lookup_where { LOOKUP_NOWHERE, LOOKUP_LOWER, LOOKUP_UPPER };

struct lookup_state {
	enum lookup_where where;
	struct image_entry
		*below; /* the lower directory's entry of that name, visible or not; NULL: none */
	struct upper_dir_entry up; /* valid if LOOKUP_UPPER, or is_whiteout */
	bool is_whiteout; /* the upper hides the lower entry */
};

/* The visible entry at name. No system call once both directories are loaded. 0 or -errno. */
int lookup_state(struct union_fs *t, struct inode *dir, const char *name, struct lookup_state *ret);
/* The inode of a name, referenced (inode_grant or inode_unref), and its attributes. -ENOENT;
 * -errno. */
int lookup_name(struct union_fs *t, struct inode *dir, const char *name, struct inode **ret,
		struct stat *ret_st);
/* Call before using an inode that a dead server may have left: resolves it. 0, also for a resolved
 * inode; -ESTALE: its object no longer exists; -errno: a later call may succeed. */
static inline int lookup_restore(struct union_fs *t, struct inode *i)
{
	return inode_is_resolved(i) ? 0 : restore_inode(t, i);
}
/* Call before a name is made, removed or renamed: an inode that a dead server left by that name is
 * resolved, or loses the name. 0 or -errno. */
int lookup_settle(struct union_fs *t, struct inode *dir, const char *name);
/* Attributes as shown (before id mapping), with inode number, link count and blocks corrected. 0 or
 * -errno. */
int lookup_stat(struct union_fs *t, struct inode *i, struct stat *ret);

/* One step of a listing. *pos: 0 at the start; then the position after the entry, which stays valid
 * when other entries appear or vanish. 1 with an entry, 0 at the end, -errno. "." and ".." are not
 * listed. */
struct lookup_entry {
	char name[NAME_MAX + 1];
	uint64_t ino;
	uint8_t type;
};
int lookup_next(struct union_fs *t, struct inode *dir, uint64_t *pos, struct lookup_entry *ret);
/* 1: no entry is visible in it; 0: it has one; -errno. */
int lookup_dir_is_empty(struct union_fs *t, struct inode *dir);
