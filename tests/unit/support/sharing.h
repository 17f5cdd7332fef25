/* SPDX-License-Identifier: Apache-2.0 */
/* A shared superblock over a socket: the common mount of "lower", and members with uppers of their
 * own. Everything asserts. */
#pragma once

#include "support/fuse_kernel.h"
#include "support/tree.h"

#include "sharedsb/shared_sb-internal.h"

#define SHARING_MEMBERS 2

struct sharing {
	struct tree_dirs *common; /* mounted without an upper; its lower is everybody's */
	struct tree_dirs *d[SHARING_MEMBERS];
	struct shared_sb *g;
	struct sb_member *c[SHARING_MEMBERS]; /* owner: d[i]; NULL: not joined */
	struct fuse_kernel k;
	unsigned n_unused; /* calls for a member that the kernel does not know any more */
};

/* cmocka fixtures: the directories, with lower/file ("text"), lower/other and lower/dir/inside. */
int sharing_setup(void **state);
int sharing_teardown(void **state);
/* Mount all of them with more options, and have both members join. */
void sharing_start(struct sharing *s, const char *options);
/* Join and leave. secret as sb_member_join has it. */
void sharing_join(struct sharing *s, unsigned i, const uint32_t *secret);
void sharing_leave(struct sharing *s, unsigned i);
/* The kernel's id of a node of a member; of its root, which is looked up. */
uint64_t sharing_node(const struct sharing *s, unsigned i, uint64_t own);
uint64_t sharing_root(struct sharing *s, unsigned i);
/* The kernel's id of a path in a member. */
uint64_t sharing_look(struct sharing *s, unsigned i, const char *path);
