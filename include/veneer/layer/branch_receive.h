/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot that comes from elsewhere: it is filled beside the others (doc/SPEC.md, section 5),
 * and gets into the chain at once. Until then no mount sees it. */
#pragma once

#include "veneer/layer/branch_chain.h"

/* The one that is being filled in an upper. */
struct branch_receive {
	int dir; /* of the snapshots */
	int fd; /* locked: nobody else receives into this upper */
	int root; /* of the new snapshot */
	int work; /* for temporary files */
};

#define BRANCH_RECEIVE_NONE	 (struct branch_receive){ -1, -1, -1, -1 }
#define BRANCH_RECEIVE_TOKEN_MAX 256

/* Begin one in the upper at rootfd. goes_on: take over the rest of an earlier call and remove its
 * token; else that rest goes. 0; -EBUSY: another process receives into this upper; -ENOENT: there
 * is nothing to go on with; -errno. Release in every case. */
int branch_receive_begin(int rootfd, bool goes_on, struct branch_receive *ret);
/* Note how far it is, or read that ("" if nothing is noted). 0 or -errno. */
int branch_receive_keep(const struct branch_receive *b, const char *token);
int branch_receive_token(int rootfd, char ret[BRANCH_RECEIVE_TOKEN_MAX]);
/* It is filled, and on the disk: it becomes snapshot e->id of the upper. The chain has room for it,
 * and has e->parent. becomes_head: the live part, which has no entries and stands on e->parent,
 * stands on it from now on. Its root gets the attributes of the snapshot's. 0; as branch_chain_add;
 * -EBUSY: the chain is being changed; -errno. */
int branch_receive_publish(int rootfd, struct branch_receive *b, const struct branch_chain_entry *e,
			   bool becomes_head);
/* Remove all of it. */
void branch_receive_cancel(int rootfd, struct branch_receive *b);
/* The same of what an earlier call has left. 0; -ENOENT: there is nothing; -EBUSY; -errno. */
int branch_receive_abort(int rootfd);
void branch_receive_release(struct branch_receive *b);
/* The live part of an upper has no entries. 1, 0 or -errno. */
int branch_receive_is_empty(int rootfd);
