/* SPDX-License-Identifier: Apache-2.0 */
/* The snapshots of an upper, in a hidden directory of its root (doc/SPEC.md, section 5). Each has
 * the entries of the root at its time, moved there one by one, and a chain holds their order. A
 * crash at any moment leaves the tree before a step or after it. */
#pragma once

#include "veneer/layer/branch_chain.h"

#include <time.h>

#define BRANCH_DIR_NAME ".wh..wh.branches"

/* The chain of the layer at rootfd. 0; -ENOENT: it has none; -EUCLEAN, -EPROTO as
 * branch_chain_parse; -errno. */
int branch_dir_load(int rootfd, struct branch_chain *ret);
/* The root of a snapshot of that layer, for reading: a descriptor, or -errno. No symlink is
 * followed. */
int branch_dir_open(int rootfd, uint64_t id);

/* The path of that root, malloc'd; NULL on no memory. */
char *branch_dir_path(const char *root, uint64_t id);
/* The unfinished snapshot of a crash, which the chain does not have: until it is taken back, its
 * entries stand right below those of the root. *ret: 0 if there is none. 0; -EUCLEAN: there are
 * several; -errno. */
int branch_dir_pending(int rootfd, const struct branch_chain *chain, uint64_t *ret);

/* Is one being taken, or was when a crash came, so that a map has names in the root and in the
 * snapshot? 1, 0 or -errno. */
int branch_dir_is_interrupted(int rootfd, const struct branch_chain *chain);

/* The modification time that a root had before entries of it moved into a pending snapshot, which
 * is open for reading. *ret is left alone where that has none. */
void branch_dir_noted_time(int dirfd, struct timespec *ret);
/* The one that the root is to get where a snapshot that the chain has was not finished. *ret is
 * left alone where all are. */
void branch_dir_taken_time(int rootfd, const struct branch_chain *chain, struct timespec *ret);

/* Finish or take back an operation that the last mount did not end. The upper is locked, and no
 * other code has looked into it. 0, also without such an operation, or -errno. */
int branch_dir_recover(int rootfd);
/* The same of a mount in use: a merge of snapshots that cannot be finished is left to the next
 * mount, with a line in the log. The snapshots on top of it show the same before and after. */
int branch_dir_recover_unmerged(int rootfd);
/* Nobody else changes the chain as long as the descriptor that this gives is open. -ENOENT: there
 * is none, nor a snapshot; -EBUSY: somebody does now; -errno. */
int branch_dir_lock(int rootfd);
/* While the root of a snapshot is open by a descriptor for which this was called it is not removed.
 * 0, or -EBUSY: it is being removed. */
int branch_dir_hold(int snapshot_fd);
/* Is any snapshot of that layer held by a mount (branch_dir_hold)? 1, 0 or -errno. */
int branch_dir_is_held(int rootfd);
/* Remove a snapshot on which nothing stands, under branch_dir_lock. 0; -ENOENT; -EBUSY as
 * branch_chain_remove; -EUSERS: a mount holds it (branch_dir_hold); -EUCLEAN, -EPROTO; -errno. */
int branch_dir_delete(int rootfd, const char *name);
/* The live part, which is empty, takes the entries of the only snapshot, which goes. Of a locked
 * upper, under branch_dir_lock. A chain without snapshots is left. 0; -EBUSY: there are others;
 * -EUSERS as branch_dir_delete; -EUCLEAN, -EPROTO; -errno. */
int branch_dir_dissolve(int rootfd);
/* Add a snapshot to the chain, between the live part and its parent. name: "" is filled in, with
 * the time. 0; -EIO; as branch_chain_add. */
int branch_dir_plan(struct branch_chain *c, char name[BRANCH_CHAIN_NAME_MAX + 1], uint64_t *ret_id);
/* Move all entries of the root, which gets no request meanwhile, into a new snapshot `id`, whose
 * root has the attributes of this one, and make next, which has that snapshot, the chain. All of it
 * is on the disk when this returns, unless is_volatile. 0, or -errno and everything is where it
 * was. */
int branch_dir_take(int rootfd, uint64_t id, const struct branch_chain *next, bool is_volatile);
/* The directory of all snapshots, which is made if it is not there: a descriptor or -errno. */
int branch_dir_make(int rootfd);
/* Remove it if it is empty. */
void branch_dir_unmake(int rootfd);
/* Give the root of an upper owner, mode, attributes and times of a snapshot's. An attribute that
 * cannot be set is logged. */
void branch_dir_adopt(int rootfd, uint64_t id);
