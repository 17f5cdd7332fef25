/* SPDX-License-Identifier: Apache-2.0 */
/* After a boot that ended badly: finds the partial files of a layer by their marks and reads from
 * the backing file system which of their blocks reached the disk (design of record, section 3). */
#pragma once

#include "veneer/mapfile.h"

struct recover {
	struct mapfile_rebuild hook;	/* for mapfile_open */
	int rootfd;			/* borrowed */
	const char *name;		/* borrowed; for messages */
	bool has_true_extents, is_scanned;
	struct recover_file *files;
	size_t n;
};

void recover_init(struct recover *r, int rootfd, const char *name, bool has_true_extents);
void recover_release(struct recover *r);
