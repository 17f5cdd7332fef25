/* SPDX-License-Identifier: Apache-2.0 */
/* What a partial file of the upper says of the lower file under its holes. */
#pragma once

#include "veneer/union/inode.h"

/* Make the empty file behind fd a partial one, as i's: full size, no data, its map entry, its mark
 * and its guard. has_path: the mark says where the lower file is, also where that is its own place.
 * st is the lower file's, up has the owner and mode that the file is to have. Under i->lock. */
int partial_mark_make(struct union_fs *t, struct inode *i, int fd, bool has_path,
		      const struct stat *st, const struct stat *up);
/* The partial file is about to be seen under another name (attributes: NULL), or to get these
 * attributes: write into its mark where the file under its holes is, with a seal, unless its mark
 * is believed as it is. Does nothing for files that are not partial. Takes i->lock. 0; -ENOSPC,
 * -E2BIG where the path has no room and the mark is not believed without its seal; -errno. */
int partial_mark_fix(struct union_fs *t, struct inode *i, const struct stat *attributes);
