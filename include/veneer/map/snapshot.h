/* SPDX-License-Identifier: Apache-2.0 */
/* The header and the snapshot half of a map file, from bytes. */
#pragma once

#include "veneer/map/table.h"

/* The damage that a reader found, for the line that names it. */
struct snapshot_damage {
	uint64_t off;
	const char *rule;
};

/* 0, or -EUCLEAN with the rule broken. *ret is in host order. */
int snapshot_header_decode(const void *p, size_t len, struct format_map_header *ret,
			   const char **ret_why);
/* Seed of the snapshot's first record. */
uint64_t snapshot_seed(const struct format_map_header *h);

/* Apply a record of the snapshot, if it may stand there. As table_apply. */
int snapshot_apply(struct table *t, const struct record *rec, const struct format_map_header *h,
		   const char **ret_why);
/* Read header and snapshot of fd into t, which is initialised. 0; -EUCLEAN with *ret_damage; other
 * -errno. */
int snapshot_load(int fd, struct table *t, struct format_map_header *ret,
		  struct snapshot_damage *ret_damage);
