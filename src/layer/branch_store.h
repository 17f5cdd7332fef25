/* SPDX-License-Identifier: Apache-2.0 */
/* The content of the directory of snapshots: the chain, and the root of each snapshot
 * (branch_dir.h).
 */
#pragma once

#include "veneer/layer/branch_chain.h"

#define BRANCH_STORE_DIGITS 16
#define BRANCH_STORE_SUFFIX 4 /* the longest */
#define BRANCH_STORE_NEW    ".new" /* of one that is being taken */

/* The name of a snapshot's root there. */
struct branch_store_place {
	char name[BRANCH_STORE_DIGITS + BRANCH_STORE_SUFFIX + 1];
};

struct branch_store_place branch_store_place_of(uint64_t id, const char *suffix);
/* "<id>" with that suffix, and nothing else. */
bool branch_store_is_place(const char *name, const char *suffix, uint64_t *ret_id);
/* A directory, no symlink, for reading: a descriptor or -errno. */
int branch_store_open_at(int dirfd, const char *name);
/* The root of a snapshot that the chain has: a descriptor or -errno. */
int branch_store_open_root(int dir, uint64_t id);
/* That of all snapshots of the layer at rootfd. -ENOENT: there is none; -EUCLEAN: it is no
 * directory; -errno. */
int branch_store_open_all(int rootfd);
/* The chain there, as branch_dir_load. */
int branch_store_read(int dir, struct branch_chain *ret);
/* Replace it. 0 or -errno and it is as it was. */
int branch_store_write(int dir, const struct branch_chain *next, bool is_volatile);
