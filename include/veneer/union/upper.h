/* SPDX-License-Identifier: Apache-2.0 */
/* Access to the upper's files: descriptors of inodes with an upper entry. Each is opened by one
 * step from its directory's descriptor and checked by inode number, so that a concurrent rename
 * cannot mislead. */
#pragma once

#include "veneer/union/inode.h"

/* A descriptor of the inode's upper object, pinned until upper_unpin. Regular files O_RDWR,
 * directories O_RDONLY, others O_PATH. The inode must have an upper entry. Or -errno. */
int upper_pin(struct union_fs *t, struct inode *i);
void upper_unpin(struct inode *i);
/* The directory that has the name: fd, the descriptor of dir, or the part of the root that has
 * moved. For reading; borrowed. */
int upper_dirfd(const struct union_fs *t, const struct inode *dir, int fd, const char *name);
/* As upper_pin, for writing to a regular file. *ret_own: -1, or a descriptor that the caller closes
 * in addition to unpinning. */
int upper_pin_writable(struct union_fs *t, struct inode *i, int *ret_own);
/* An additional open flag for a new regular file, so that reads by its descriptor set no access
 * time; 0 if there is none. */
int upper_quiet_flag(const struct union_fs *t);
/* Enter the descriptor of an object that was just made (create, copy-up), so that it need not be
 * opened again. Of a regular file it is O_RDWR and has upper_quiet_flag. */
void upper_install(struct union_fs *t, struct inode *i, int fd);
/* Keep the descriptor open for the rest of the inode's life, before it loses a name, perhaps its
 * last. 0 or -errno: then the name must stay. Call under the inode's lock. */
int upper_hold(struct union_fs *t, struct inode *i);
/* Undo upper_hold if the inode has a name, by which it can be opened again. Under the inode's
 * lock. */
void upper_let_go(struct union_fs *t, struct inode *i);
/* The same for a file that never had a name, in two steps. take_share: 0, or -ENFILE if the mount
 * holds its share. hold_fresh: enter the descriptor and keep it pinned. Give an unused share back
 * (fd_cache_unhold). */
int upper_take_share(struct union_fs *t);
void upper_hold_fresh(struct union_fs *t, struct inode *i, int fd);
/* stat of the upper object, unchanged. 0 or -errno. */
int upper_stat(struct union_fs *t, struct inode *i, struct stat *ret);

/* The mirror of a directory in the upper, read at the first call. Borrowed: lives as long as the
 * inode. 0 or -errno. */
int upper_listing(struct union_fs *t, struct inode *dir, struct upper_dir **ret);
/* Give a directory that was just made an empty mirror. 0 or -ENOMEM. */
int upper_listing_empty(struct inode *dir, bool has_default_acl);
#define UPPER_DEFAULT_ACL "system.posix_acl_default"
/* Do new entries of a directory with a mirror inherit an ACL? */
bool upper_has_default_acl(const struct inode *dir);
/* Call after a change, or an attempt, of the owner or mode of i: the next new entry of the
 * directory reads again which group it inherits. */
void upper_forget_group(struct inode *i);
/* An unused name in workdir. */
void upper_temp_name(struct union_fs *t, char name[32]);
