/* SPDX-License-Identifier: Apache-2.0 */
/* Files of an upper that kernel overlayfs wrote with metacopy=on: the attributes are the upper's, all bytes are those
 * of a lower file. Taken over, such a file is a partial file without an own block. */
#pragma once

#include "veneer/inode.h"

/* What (dirfd, name) of the upper gets its bytes from: 1 with *ret as of whiteout_metacopy, 0 when it is no such file,
 * -EUCLEAN for one whose data cannot be known. */
int adopt_metacopy_origin(int dirfd, const char *name, char origin[PATH_MAX]);
/* Make it a partial file of base, which it must have the size of (else -EUCLEAN). Done by one thread once; killed in
 * between, it is taken over again. 0 or -errno. */
int adopt_metacopy(struct tree *t, int dirfd, const char *name, struct ient *base);
