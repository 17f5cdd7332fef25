/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a layer's map file by the rules of doc/SPEC.md, section 3, without trusting any of it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct check_map {
	const char *rule; /* the broken rule, at off; NULL: none */
	uint64_t off;
	bool is_damaged; /* it has to be rewritten; else a torn end, which readers ignore */
	bool is_repaired; /* the file now ends at off */
};

/* Check the map file. repairs: cut off bytes after the end of the log if they are provably unused.
 * 0, also without a map or with damage; -errno. */
int check_map_read(int rootfd, bool repairs, struct check_map *ret);
