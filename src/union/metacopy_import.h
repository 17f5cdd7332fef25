/* SPDX-License-Identifier: Apache-2.0 */
/* Files of an upper that kernel overlayfs wrote with metacopy=on (metacopy_origin.h). Such a file
 * is imported as a partial file without an own block. */
#pragma once

#include "veneer/union/inode.h"

/* Make the metacopy a partial file of base, which must have the same size (else -EUCLEAN). One
 * thread does it once; after a kill it is imported again. 0 or -errno. */
int metacopy_import(struct union_fs *t, int dirfd, const char *name, struct image_entry *base);
