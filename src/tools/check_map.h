/* SPDX-License-Identifier: Apache-2.0 */
/* A layer's map file held against the rules of doc/SPEC.md, section 3, without believing any of
 * it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct check_map {
	const char *rule; /* the rule broken, at off; NULL: none */
	uint64_t off;
	bool is_damaged; /* so that it has to be written anew; else a torn end, which readers pass
			    over */
	bool is_repaired; /* the file ends at off now */
};

/* repairs: cut off what stands behind the log's end where that is provably nothing. 0, also without
 * a map or with damage; -errno. */
int check_map_read(int rootfd, bool repairs, struct check_map *ret);
