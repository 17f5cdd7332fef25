/* SPDX-License-Identifier: Apache-2.0 */
/* The partial files of a mount that a round of the promotion completes, and their inodes. The map
 * and promote_policy.h choose them. For PROMOTE_POLICY_WRITTEN they are the files in memory that
 * are written again and again or are expected to be. */
#pragma once

#include "veneer/base/promote_policy.h"
#include "veneer/union/inode.h"

struct promote_find_candidate {
	uint64_t id;
	struct inode *i; /* referenced; NULL: not found */
};

/* Files that are in the map and not to be found in the upper, sorted: no later round searches for
 * them. */
struct promote_find_unfound {
	file_id_t *ids;
	size_t n;
};

/* Zeroed but for the first five. */
struct promote_find {
	struct union_fs *tree;
	enum promote_policy_mode mode;
	struct promote_find_unfound *unfound; /* the mount's */
	int (*go_on)(void *arg); /* 0, or -errno to give up: before each entry of the upper */
	void *arg;
	struct promote_policy_file *files; /* in the order of promotion */
	struct promote_find_candidate *found; /* the same n by id */
	size_t n, cap, found_cap;
	size_t n_wanted; /* still to be found */
	int error;
};

/* 0 or -errno; promote_find_release in any case. */
int promote_find_run(struct promote_find *r);
void promote_find_release(struct promote_find *r);
/* The inode of files[k], borrowed; NULL: not found. */
struct inode *promote_find_inode(const struct promote_find *r, size_t k);

/* Does the policy take a chunk of a file of which clip bytes are seen from below? */
bool promote_find_takes_chunk(uint64_t clip, uint64_t chunk, const uint64_t bits[2]);
/* As promote_policy_pass. */
unsigned promote_find_pass(uint64_t clip, uint64_t chunk, const uint64_t bits[2]);
/* Bytes below clip that are not the upper's own. */
uint64_t promote_find_missing(struct mapfile *map, file_id_t id, uint64_t clip);
/* Is the file one that earlier starts of the image wrote, in a mount that completes such as soon as
 * they are written (prefetch=full)? */
bool promote_find_is_expected(const struct union_fs *t, const struct inode *i);
/* Will other files fail as well? */
bool promote_find_is_fatal(int r);
