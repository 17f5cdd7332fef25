/* SPDX-License-Identifier: Apache-2.0 */
/* The file that says which snapshots of an upper there are and which of them stand below its live
 * part (doc/SPEC.md, section 5). Pure: text to struct and back. Names and numbers are checked, so
 * that no name or number of a hostile text leads out of the directory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BRANCH_CHAIN_VERSION  1
#define BRANCH_CHAIN_NAME_MAX 64
#define BRANCH_CHAIN_MAX      4096 /* snapshots of one upper */
#define BRANCH_CHAIN_BYTES    (1u << 20) /* of the text, at most */

struct branch_chain_entry {
	uint64_t id; /* never 0, and never given twice */
	uint64_t parent; /* the snapshot that it stands on; 0: none */
	int64_t time_ns; /* when it was taken, CLOCK_REALTIME */
	char name[BRANCH_CHAIN_NAME_MAX + 1];
};

/* Zeroed is empty. A parent comes before its children. */
struct branch_chain {
	uint64_t head; /* the snapshot that the live part stands on; 0: none */
	size_t n;
	struct branch_chain_entry *entries;
};

/* 0; -EUCLEAN: it is no such text, or damaged, or contradicts itself; -EPROTO: a newer version
 * wrote it; -ENOMEM. */
int branch_chain_parse(const char *text, size_t len, struct branch_chain *ret);
/* The text, malloc'd. 0; -E2BIG; -ENOMEM. */
int branch_chain_format(const struct branch_chain *c, char **ret, size_t *ret_len);
void branch_chain_release(struct branch_chain *c);

/* A letter or digit, then these, dots, dashes and underscores. */
bool branch_chain_is_name(const char *name);
/* NULL: there is none. Borrowed until the next change. */
const struct branch_chain_entry *branch_chain_by_id(const struct branch_chain *c, uint64_t id);
const struct branch_chain_entry *branch_chain_by_name(const struct branch_chain *c,
						      const char *name);
/* The number of snapshots from id down to the bottom; with ret, their numbers too, topmost
 * first. */
size_t branch_chain_below(const struct branch_chain *c, uint64_t id, uint64_t *ret);
/* One more, at the end. 0; -EEXIST: the number or the name is in use; -EINVAL: no name, or no such
 * parent; -E2BIG: there are BRANCH_CHAIN_MAX; -ENOMEM. */
int branch_chain_add(struct branch_chain *c, const struct branch_chain_entry *e);
/* One less. 0; -ENOENT: there is none of this number; -EBUSY: the live part or another snapshot
 * stands on it. */
int branch_chain_remove(struct branch_chain *c, uint64_t id);
/* Snapshot id takes in those of ids[0..n) that stand right below it, which go. 0; -EBUSY: something
 * else stands on one of them, and the chain is changed in part. */
int branch_chain_absorb(struct branch_chain *c, uint64_t id, const uint64_t *ids, size_t n);
/* invariants.h */
const char *branch_chain_check_invariants(const struct branch_chain *c);
