/* SPDX-License-Identifier: Apache-2.0 */
/* rename(2) within a mount. */
#pragma once

#include "veneer/union/inode.h"

/* flags: 0, RENAME_NOREPLACE or RENAME_EXCHANGE. Files of lower layers move without their data. A
 * directory of a lower layer moves with a redirect; -EXDEV where the upper holds none or the path
 * does not fit, and the caller then copies it, as with overlayfs. 0 or -errno. */
int rename_entry(struct union_fs *t, struct inode *old_parent, const char *old_name,
		 struct inode *parent, const char *name, unsigned flags);
