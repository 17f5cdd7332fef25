/* SPDX-License-Identifier: Apache-2.0 */
/* Files of an upper that kernel overlayfs wrote with metacopy=on (metacopy_origin.h). Taken over,
 * such a file is a partial file without an own block. */
#pragma once

#include "veneer/union/inode.h"

/* Make it a partial file of base, which it must have the size of (else -EUCLEAN). Done by one
 * thread once; killed in between, it is taken over again. 0 or -errno. */
int metacopy_import(struct union_fs *t, int dirfd, const char *name, struct image_entry *base);
