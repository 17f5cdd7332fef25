/* SPDX-License-Identifier: Apache-2.0 */
/* Owner, mode, times and extended attributes of any inode; a lower one is copied up without its
 * data. */
#pragma once

#include "veneer/base/lock.h"
#include "veneer/union/inode.h"

struct intent;

int attr_chmod(struct union_fs *t, struct inode *i, mode_t mode);
/* (uid_t)-1 and (gid_t)-1 leave that one alone. */
int attr_chown(struct union_fs *t, struct inode *i, uid_t uid, gid_t gid);
/* As utimensat(2): UTIME_NOW, UTIME_OMIT. */
int attr_utimens(struct union_fs *t, struct inode *i, const struct timespec times[2]);
/* The mode that is left after a write or truncation by an unprivileged process. Cheap when there
 * are no set-id bits. is_in_group says whether the caller is in a group (on disk), and is asked
 * only where that matters: NULL, in none. 1: *ret_mode is to be set; 0: nothing is to be cleared;
 * -errno. */
int attr_without_setid(struct union_fs *t, struct inode *i,
		       bool (*is_in_group)(void *arg, gid_t gid), void *arg, mode_t *ret_mode);
/* Set that mode. */
int attr_kill_setid(struct union_fs *t, struct inode *i, bool (*is_in_group)(void *arg, gid_t gid),
		    void *arg);
/* Clear the set-group-id bit alone, of a directory too. */
int attr_kill_setgid(struct union_fs *t, struct inode *i);
/* Around a write or truncation whose caller keeps set-id bits (CAP_FSETID): a server without
 * privileges loses them by its own write, in any case. begin takes one of tree->setid_locks and
 * remembers the mode, end puts it back and gives the lock back. Nothing happens with privileges.
 * attr_chmod of such a file belongs between the two. */
struct attr_setid {
	mutex_t *lock; /* NULL: nothing to do */
	mode_t mode; /* 0: it has no such bits */
	ssize_t capability_len; /* 0: to be lost as by any write, or not there */
	char capability[24];
	struct intent *noted; /* what is put back is in it (replay_setid), or NULL */
	bool is_keeping; /* counted in tree->keeping */
	bool is_disturbed; /* with keeps_capability: another change is under way, so that no
			      capability comes back */
};
/* keeps_capability: what is written is a mapping's pages, to which stores cost the file nothing.
 * With that, or with is_again (the request comes again), the lock is taken with privileges too
 * where there may be something to put back. */
void attr_setid_begin(struct union_fs *t, struct inode *i, bool keeps_capability, bool is_again,
		      struct attr_setid *s);
/* r is how the change ended; the answer is r, or what putting the bits back failed with. They are
 * put back after a change that failed, too. */
int attr_setid_end(struct union_fs *t, struct inode *i, struct attr_setid *s, int r);
/* Around every change of a file's bytes, owner, mode or attributes by a request but what is written
 * back of a mapping: nothing that such a write took away for a moment, in this server or in one
 * that died of it, comes back onto what the change makes. key and unique are the request's own
 * (intent_log.h), whose slot stays. */
void attr_change_begin(struct union_fs *t, struct inode *i, uint64_t key, uint64_t unique);
void attr_change_end(struct inode *i);

/* The flags of chattr(1), IMAGE_IMMUTABLE and so on (image.h): of what a change would meet. A
 * copied directory keeps those of its lower ones that refuse changes. -errno. */
int attr_protection(struct union_fs *t, struct inode *i);

/* Names of union file systems are hidden (-ENODATA) and cannot be set or removed (-EPERM). */
ssize_t attr_getxattr(struct union_fs *t, struct inode *i, const char *name, void *value,
		      size_t size);
int attr_setxattr(struct union_fs *t, struct inode *i, const char *name, const void *value,
		  size_t size, int flags);
int attr_removexattr(struct union_fs *t, struct inode *i, const char *name);
/* size 0: the length needed. Only names that are shown; trusted ones if sees_trusted, which is
 * asked only when there are some, says so (NULL: yes). */
ssize_t attr_listxattr(struct union_fs *t, struct inode *i, bool (*sees_trusted)(void *arg),
		       void *arg, char *list, size_t size);
