/* SPDX-License-Identifier: Apache-2.0 */
/* The disk space of one layer, compared with whole-file copy-up. */
#pragma once

#include "veneer/base/step.h"

#include <stdint.h>

struct du {
	uint64_t data_bytes; /* blocks of regular files */
	uint64_t map_bytes; /* of the block map */
	uint64_t other_bytes; /* of directories and symbolic links */
	uint64_t inodes; /* without whiteouts */
	uint64_t whiteouts;
	uint64_t partial_files;
	uint64_t partial_bytes; /* blocks of partial files; part of data_bytes */
	uint64_t whole_bytes; /* data_bytes if each partial file were a whole copy */
};

/* Measure the layer at path, which may be in use; step may be NULL. 0, or -errno after a line in
 * the log. */
int du_layer(const char *path, const struct step *step, struct du *ret);
