/* SPDX-License-Identifier: Apache-2.0 */
/* Files without a name (O_TMPFILE): one in the upper, which goes when the kernel forgets it unless
 * it is linked. */
#pragma once

#include "veneer/data/create.h"

/* Make a nameless regular file that belongs to directory parent. One kernel lookup is counted on
 * *ret. Its descriptor is held until it has a name. 0; -EOPNOTSUPP where the upper has no such
 * files; -EROFS; other -errno. */
int tmpfile_create(struct union_fs *t, struct inode *parent, const struct create_args *args,
		   struct inode **ret, struct stat *ret_st);
/* A file that had no name, and was held therefore, has got one: from now on it can be opened again
 * by it. */
void tmpfile_named(struct union_fs *t, struct inode *i);
