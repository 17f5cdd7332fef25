/* SPDX-License-Identifier: Apache-2.0 */
/* A partial file of which the map has lost which blocks are its own. */
#pragma once

#include "veneer/layer/source.h"

/* Make it an ordinary file: blocks with bytes stay, those that read as zeros become the lower
 * file's, as far as that reached (lower_size, of the mark). Zeros that had been written over bytes
 * of the lower file are lost by that, and so are capabilities of files that others than the caller
 * may write. fd: for reading and writing. Stopped half-way it is as it was, and can be begun again.
 * 0, -EIO when the lower file cannot be read, -errno. */
int check_refill_from_lower(int fd, struct source *low, uint64_t lower_size, uint64_t *ret_bytes);
