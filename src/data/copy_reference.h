/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of a file that lies unchanged in the layers below: a partial file that shows that one's
 * bytes, and has none of its own. */
#pragma once

#include "veneer/union/inode.h"

/* What a program asks to copy: so many bytes, from this offset in one file to the same in the
 * other. */
struct copy_reference {
	struct inode *from, *to;
	uint64_t off;
	size_t len;
};

/* Make `to`, whose upper file is fd, such a copy of `from`, or add this piece to it. Under the
 * locks of both. The bytes of the piece, fewer than were asked for at the end of `from` alone; 0:
 * they are to be copied in another way. */
size_t copy_reference_make(struct union_fs *t, const struct copy_reference *r, int fd);
