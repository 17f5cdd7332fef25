/* SPDX-License-Identifier: Apache-2.0 */
/* After a boot that ended badly: finds the partial files of a layer by their marks and reads from
 * the backing file system which of their blocks reached the disk (design of record, section 3). */
#pragma once

#include "veneer/map/mapfile.h"

struct map_recover_file;
struct map_recover_run;
struct map_recover {
	struct mapfile_rebuild hook; /* for mapfile_open */
	int rootfd; /* borrowed */
	const char *name; /* borrowed; for messages */
	bool has_true_extents, is_scanned;
	bool is_ours; /* nobody else sees the layer as it is: modes may be relaxed for a moment
			 (mode_relax.h) */
	bool by_content; /* runs are of blocks that do not read as zeros, not of extents */
	bool is_partial; /* not all could be looked at: absence proves nothing */
	struct map_recover_file *files; /* ascending by id once scanned */
	struct map_recover_run *runs;
	size_t nfiles, nruns;
};

void map_recover_init(struct map_recover *r, int rootfd, const char *name, bool has_true_extents);
void map_recover_release(struct map_recover *r);

/* Call own for each run of blocks of fd that do not read as zeros, in ascending order, until it
 * fails. *ret_size: of the file. 0, the result of own, or -errno; -ENOENT: no regular file. */
int map_recover_contents(int fd, int (*own)(void *own_arg, blk_t blk, blk_t n), void *own_arg,
			 uint64_t *ret_size);
/* No block of the first lower_size bytes of fd reads as zeros. 1, 0 or -errno. */
int map_recover_is_whole(int fd, uint64_t lower_size);

/* The file fd (borrowed, readable; or the -errno of opening it) carries a mark that its layer's
 * map does not know: enter it again if its record was lost in a bad boot. 0; -ENOENT when it
 * cannot have been: the mark or the map is damaged; -errno. */
struct partial_xattr;
struct layer;
int map_recover_enter(struct layer *l, struct mapfile *map, const struct partial_xattr *m, int fd);
