/* SPDX-License-Identifier: Apache-2.0 */
/* New names in a mount: files, directories, links. The caller (the kernel) holds the directory. */
#pragma once

#include "veneer/union/inode.h"

struct create_args {
	mode_t mode; /* with the file type */
	mode_t umask; /* of the caller; not applied where a default ACL is */
	dev_t rdev;
	uid_t uid; /* on disk */
	gid_t gid;
	const char *target; /* symbolic links */
	bool ignores_chown; /* squashed ids: an owner that cannot be set is no error */
};

/* Make (parent, name). One kernel lookup is counted on *ret. 0; -EEXIST; -EINVAL for names of our
 * own
 * (".wh."); -EPERM for a whiteout device; -EROFS; -errno, and then there is nothing. */
int create_node(struct union_fs *t, struct inode *parent, const char *name,
		const struct create_args *args, struct inode **ret, struct stat *ret_st);
/* The same for a request that a server may have carried out before it died: the kernel knew that
 * the name was free, and has kept it so, so what has it now was made for this request. */
int create_again(struct union_fs *t, struct inode *parent, const char *name,
		 const struct create_args *args, struct inode **ret, struct stat *ret_st);
/* One more name for i. As create_node. */
int create_link(struct union_fs *t, struct inode *i, struct inode *parent, const char *name,
		struct stat *ret_st);
/* May a container make this name? 0, -EINVAL, -ENAMETOOLONG. */
int create_check_name(const char *name);
