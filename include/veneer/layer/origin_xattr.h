/* SPDX-License-Identifier: Apache-2.0 */
/* The origin attribute of a whole copy in an upper, so that it shows the same inode number in every
 * later mount. Partial files and merged directories have other records. A hint: nothing but the
 * number comes from it. */
#pragma once

#include "veneer/layer/whiteout.h"

/* Attribute with a plain path in the layers below (doc/SPEC.md, section 1). Symlinks and special
 * files can only have the privileged one. */
#define ORIGIN_XATTR_TRUSTED_ATTR "trusted.veneer.origin"
#define ORIGIN_XATTR_USER_ATTR	  "user.veneer.origin"

/* Note it at fd, which may be O_PATH. Where it cannot be noted the number will change: no error. */
void origin_xattr_write(const struct whiteout_style *st, int fd, const char *path);
/* 1 with a plain path, 0 when there is none that makes sense. is_doubted: the first attribute alone
 * counts. */
int origin_xattr_read(int dirfd, const char *name, bool is_doubted, char path[PATH_MAX]);
