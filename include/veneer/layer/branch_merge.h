/* SPDX-License-Identifier: Apache-2.0 */
/* Neighbouring snapshots of an upper become one (doc/SPEC.md, section 5): that is made beside them,
 * and takes the place of the topmost by one exchange of names. What it replaces stays in it as far
 * as an inode number of that is still shown. */
#pragma once

#include "veneer/layer/branch_chain.h"

/* Snapshot `to` (NULL: the one that the live part stands on) and those below it down to `from`
 * (NULL: as far as nothing else stands on one of them): ret[0..*ret_n), topmost first, room for
 * BRANCH_CHAIN_MAX. 0; -ENOENT: there is none of that name; -ENOTDIR: from is not below to; -EBUSY:
 * something else stands on one of them; -EALREADY: it is a single one. */
int branch_merge_plan(const struct branch_chain *c, const char *from, const char *to, uint64_t *ret,
		      size_t *ret_n);
/* The empty root of what ids[0..n) become: a descriptor, or -errno (-EEXIST: another merge is under
 * way). As long as it is open nobody removes what it is of. Under branch_dir_lock. */
int branch_merge_begin(int rootfd, const uint64_t *ids, size_t n);
/* It is filled and on the disk: it becomes snapshot ids[0], and the others go. Under
 * branch_dir_lock, and with no mount of the upper that has them open. A
 * descriptor: as long as it is open nobody but branch_merge_tidy tidies up; -EUSERS: a mount has
 * one of them open; -EBUSY, -ENOENT: the chain is another by now; -errno; then nothing has changed.
 */
int branch_merge_publish(int rootfd, const uint64_t *ids, size_t n, bool is_volatile);
/* What is of no use any more of those that became snapshot id is removed, which takes long. 0 or
 * -errno; the next mount that writes does what is left. */
int branch_merge_tidy(int rootfd, uint64_t id);
/* Remove what was begun and not published. */
void branch_merge_cancel(int rootfd);

/* Of the directory of snapshots: leave out of the chain what an interrupted merge has put into
 * another snapshot already. 0 or -errno. */
int branch_merge_look(int dir, struct branch_chain *c);
/* Finish an interrupted merge, or remove what it left; c is what branch_merge_look left of the
 * chain. 0 or -errno. */
int branch_merge_recover(int dir, const struct branch_chain *c);
