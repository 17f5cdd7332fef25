/* SPDX-License-Identifier: Apache-2.0 */
/* Files without a name (O_TMPFILE): a nameless file in the upper, which vanishes when the kernel
 * forgets it, unless it is linked. */
#pragma once

#include "veneer/data/create.h"

/* Make a nameless regular file in directory parent. Counts one kernel lookup on *ret. Its
 * descriptor is held until the file has a name. 0; -EOPNOTSUPP if the upper's file system has no
 * such files; -EROFS; other -errno. */
int tmpfile_create(struct union_fs *t, struct inode *parent, const struct create_args *args,
		   struct inode **ret, struct stat *ret_st);
/* Called when a held nameless file has got a name: it can be opened again by that name. */
void tmpfile_named(struct union_fs *t, struct inode *i);
