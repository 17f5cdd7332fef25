/* SPDX-License-Identifier: Apache-2.0 */
/* Reaching the upper's files: descriptors of inodes that have an upper entry, opened by one step
 * from their directory's and checked to be the very object meant, so that a rename between cannot
 * mislead. */
#pragma once

#include "veneer/union/inode.h"

/* A descriptor of the inode's upper object, pinned until upper_unpin. Regular files
 * O_RDWR, directories O_RDONLY, others O_PATH. The inode has an upper entry. Or -errno. */
int upper_pin(struct union_fs *t, struct inode *i);
void upper_unpin(struct inode *i);
/* The directory that has the name: fd, which is dir's, or a part of the root that has moved. For
 * reading; borrowed. */
int upper_dirfd(const struct union_fs *t, const struct inode *dir, int fd, const char *name);
/* As upper_pin, for a regular file that is to be written. *ret_own is -1, or a descriptor that the
 * caller closes besides unpinning. */
int upper_pin_writable(struct union_fs *t, struct inode *i, int *ret_own);
/* The flag that a new regular file is opened with besides, so that what is read by its descriptor
 * sets no access time; 0 where there is none. */
int upper_quiet_flag(const struct union_fs *t);
/* Enter a descriptor that was just opened (create, copy-up), of a regular file O_RDWR and with
 * upper_quiet_flag, so that nobody need open it again. */
void upper_install(struct union_fs *t, struct inode *i, int fd);
/* Keep the descriptor open for the rest of the inode's life: it is about to lose a name, perhaps
 * its last. 0 or -errno, and then the name must stay. Under its lock, as is: */
int upper_hold(struct union_fs *t, struct inode *i);
/* ... unless it has a name, by which it can be opened again. */
void upper_let_go(struct union_fs *t, struct inode *i);
/* The same for a file that never had a name, in two steps: -ENFILE, when the mount holds its share;
 * and the pinned descriptor. A share that is not used is given back (fd_cache_unhold). */
int upper_take_share(struct union_fs *t);
void upper_hold_fresh(struct union_fs *t, struct inode *i, int fd);
/* stat of the upper object, as it is there. */
int upper_stat(struct union_fs *t, struct inode *i, struct stat *ret);

/* The mirror of a directory that is in the upper, read at the first call. Borrowed: lives as long
 * as the inode. 0 or -errno. */
int upper_listing(struct union_fs *t, struct inode *dir, struct upper_dir **ret);
/* A directory just made: it is known to be empty. 0 or -ENOMEM. */
int upper_listing_empty(struct inode *dir, bool has_default_acl);
#define UPPER_DEFAULT_ACL "system.posix_acl_default"
/* Of a directory whose listing was read: do new entries inherit an ACL? */
bool upper_has_default_acl(const struct inode *dir);
/* After a change of owner or mode of i, tried or done: if it is a directory, the next new entry
 * asks for the group that it inherits. */
void upper_forget_group(struct inode *i);
/* A name in workdir that nobody uses. */
void upper_temp_name(struct union_fs *t, char name[32]);
