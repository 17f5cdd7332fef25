/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of an unchanged lower file: a partial file that shows the bytes of that file and has none
 * of its own. */
#pragma once

#include "veneer/union/inode.h"

/* A request to copy len bytes, at the same offset in both files. */
struct copy_reference {
	struct inode *from, *to;
	uint64_t off;
	size_t len;
};

/* Make `to`, whose upper file is fd, such a copy of `from`, or add this piece to it. Under the
 * locks of both. Returns the bytes of the piece, fewer than len only at the end of `from`; 0: copy
 * them in another way. */
size_t copy_reference_make(struct union_fs *t, const struct copy_reference *r, int fd);
