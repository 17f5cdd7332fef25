/* SPDX-License-Identifier: Apache-2.0 */
/* Refills a partial file whose own blocks the map has lost. */
#pragma once

#include "veneer/layer/source.h"

/* Make it an ordinary file. Blocks with data stay; blocks that read as zeros become the lower
 * file's, up to its former end (lower_size, of the mark). Zeros written over data of the lower file
 * are lost. So are capabilities, if other users may write the file. fd: for reading and writing. If
 * it is stopped half-way, the file is as before, and it can be repeated. 0; -EIO: the lower file
 * cannot be read; -errno. */
int check_refill_from_lower(int fd, struct source *low, uint64_t lower_size, uint64_t *ret_bytes);
