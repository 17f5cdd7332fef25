/* SPDX-License-Identifier: Apache-2.0 */
/* Neighbouring snapshots of an upper become one (doc/SPEC.md, section 5). The new one is made
 * beside them, and takes the place of the topmost by one exchange of names. A replaced file stays
 * in it while its inode number is still shown. */
#pragma once

#include "veneer/layer/branch_chain.h"

/* Snapshot `to` (NULL: the parent of the live part) and its ancestors down to `from` (NULL: while
 * each has one child): ret[0..*ret_n), topmost first, room for BRANCH_CHAIN_MAX. 0; -ENOENT: there
 * is none of that name; -ENOTDIR: from is not below to; -EBUSY: something else stands on one of
 * them; -EALREADY: it is a single one. */
int branch_merge_plan(const struct branch_chain *c, const char *from, const char *to, uint64_t *ret,
		      size_t *ret_n);
/* Where the live part stands on more than 2 * keep snapshots: those of the lowest row of neighbours
 * that can become one, topmost first, so that `keep` are left where nothing else stands on any. How
 * many; 0: there is nothing to do. Room as above. */
size_t branch_merge_choose_oldest(const struct branch_chain *c, size_t keep, uint64_t *ret);
/* The empty root of the snapshot that ids[0..n) become: a descriptor, or -errno (-EEXIST: another
 * merge is under way). While it is open no process removes its merge. Under branch_dir_lock. */
int branch_merge_begin(int rootfd, const uint64_t *ids, size_t n);
/* It is filled and on the disk: it becomes snapshot ids[0], and the others go. Under
 * branch_dir_lock, and with no mount of the upper that has them open. A
 * descriptor: as long as it is open nobody but branch_merge_tidy tidies up; -EUSERS: a mount has
 * one of them open; -EBUSY, -ENOENT: the chain is another by now; -errno; then nothing has changed.
 */
int branch_merge_publish(int rootfd, const uint64_t *ids, size_t n, bool is_volatile);
/* Remove the unused rest of the snapshots that became snapshot id, which takes long. 0 or -errno;
 * the next mount that writes finishes it. */
int branch_merge_tidy(int rootfd, uint64_t id);
/* Remove a merge that was begun and not published. False: some of it is left. */
bool branch_merge_cancel(int rootfd);

/* Of the directory of snapshots: leave out of the chain the snapshots that an interrupted merge has
 * put into another one already. 0 or -errno. */
int branch_merge_look(int dir, struct branch_chain *c);
/* Finish an interrupted merge, or remove its rest; c is the chain as left by branch_merge_look. 0
 * or -errno. */
int branch_merge_recover(int dir, const struct branch_chain *c);
