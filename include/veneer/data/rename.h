/* SPDX-License-Identifier: Apache-2.0 */
/* rename(2) within a mount. */
#pragma once

#include "veneer/union/inode.h"

/* flags: 0, RENAME_NOREPLACE or RENAME_EXCHANGE. Files of lower layers move without their data. A
 * directory of a lower layer moves with a redirect, if the mount writes redirects. -EXDEV if it
 * does not, or if the original path does not fit into an attribute: the caller then copies, as with
 * overlayfs. 0 or -errno. */
int rename_entry(struct union_fs *t, struct inode *old_parent, const char *old_name,
		 struct inode *parent, const char *name, unsigned flags);
