/* SPDX-License-Identifier: Apache-2.0 */
/* Owner, mode, times and extended attributes of any inode. A change copies a lower file up without
 * its data. */
#pragma once

#include "veneer/base/lock.h"
#include "veneer/union/inode.h"

struct intent;

int attr_chmod(struct union_fs *t, struct inode *i, mode_t mode);
/* (uid_t)-1 and (gid_t)-1 leave that id unchanged. */
int attr_chown(struct union_fs *t, struct inode *i, uid_t uid, gid_t gid);
/* As utimensat(2): UTIME_NOW, UTIME_OMIT. */
int attr_utimens(struct union_fs *t, struct inode *i, const struct timespec times[2]);
/* The mode that a write or truncation by an unprivileged process leaves. Cheap for a file without
 * set-id bits. is_in_group tells whether the caller is in a group (an id on disk); it is called
 * only for a set-group-id file without group execution. NULL: the caller is in none. 1: set
 * *ret_mode; 0: no bit is to be cleared; -errno. */
int attr_without_setid(struct union_fs *t, struct inode *i,
		       bool (*is_in_group)(void *arg, gid_t gid), void *arg, mode_t *ret_mode);
/* Set the mode that attr_without_setid computes. */
int attr_kill_setid(struct union_fs *t, struct inode *i, bool (*is_in_group)(void *arg, gid_t gid),
		    void *arg);
/* Clear the set-group-id bit alone, also of a directory. */
int attr_kill_setgid(struct union_fs *t, struct inode *i);
/* Around a write or truncation by a caller that keeps set-id bits (CAP_FSETID): the write of an
 * unprivileged server clears them in any case. So attr_setid_begin takes one of tree->setid_locks
 * and saves the mode, and attr_setid_end restores the mode and releases the lock. Both do nothing
 * in a privileged server. attr_chmod of such a file is called between the two. */
struct attr_setid {
	mutex_t *lock; /* NULL: nothing to do */
	mode_t mode; /* 0: the file has no set-id bits */
	ssize_t capability_len; /* 0: no capability is to be restored */
	char capability[24];
	struct intent *noted; /* holds the saved mode and capability (replay_setid), or NULL */
	bool is_keeping; /* counted in tree->keeping */
	/* with keeps_capability: another change is under way, so the capability is not restored */
	bool is_disturbed;
};
/* keeps_capability: the write stores the pages of a mapping, and stores to a mapping leave a file's
 * capability alone. With keeps_capability or is_again (a resent request), a privileged server also
 * takes the lock if there may be something to restore. */
void attr_setid_begin(struct union_fs *t, struct inode *i, bool keeps_capability, bool is_again,
		      struct attr_setid *s);
/* r is the result of the change. Restores the bits also after a failed change. Returns r, or the
 * error of restoring if r is 0. */
int attr_setid_end(struct union_fs *t, struct inode *i, struct attr_setid *s, int r);
/* Around every change of a file's bytes, owner, mode or attributes by a request, except the
 * writeback of a mapping. Such a writeback, in this server or in one that died, restores no set-id
 * bits or capability over a change that this pair encloses. Key and unique number identify the
 * request's own intent (intent_log.h), whose slot stays. */
void attr_change_begin(struct union_fs *t, struct inode *i, uint64_t key, uint64_t unique);
void attr_change_end(struct inode *i);

/* The flags of chattr(1), IMAGE_IMMUTABLE and so on (image.h), that a change has to respect. A
 * copied-up directory keeps those flags of its lower directories that refuse changes. Flags or
 * -errno. */
int attr_protection(struct union_fs *t, struct inode *i);

/* Attributes of union file systems are hidden (-ENODATA); setting or removing one is -EPERM. */
ssize_t attr_getxattr(struct union_fs *t, struct inode *i, const char *name, void *value,
		      size_t size);
int attr_setxattr(struct union_fs *t, struct inode *i, const char *name, const void *value,
		  size_t size, int flags);
int attr_removexattr(struct union_fs *t, struct inode *i, const char *name);
/* size 0: return the needed length. Lists shown names only. sees_trusted is called if there are
 * trusted names and tells whether to list them; NULL: list them. */
ssize_t attr_listxattr(struct union_fs *t, struct inode *i, bool (*sees_trusted)(void *arg),
		       void *arg, char *list, size_t size);
