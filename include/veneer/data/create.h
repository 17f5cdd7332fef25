/* SPDX-License-Identifier: Apache-2.0 */
/* New names in a mount: files, directories, links. The kernel holds the directory's lock during the
 * request. */
#pragma once

#include "veneer/union/inode.h"

struct create_args {
	mode_t mode; /* with the file type */
	mode_t umask; /* of the caller; not applied in a directory with a default ACL */
	dev_t rdev;
	uid_t uid; /* on disk */
	gid_t gid;
	const char *target; /* symbolic links */
	bool ignores_chown; /* squashed ids: failing to set the owner is no error */
};

/* Make (parent, name). Counts one kernel lookup on *ret. 0; -EEXIST; -EINVAL for reserved names
 * (".wh."); -EPERM for a whiteout device; -EROFS; -errno. After a failure the name does not
 * exist. */
int create_node(struct union_fs *t, struct inode *parent, const char *name,
		const struct create_args *args, struct inode **ret, struct stat *ret_st);
/* The same for a resent request, which a dead server may have carried out. The kernel saw a free
 * name and has kept the directory locked since, so an object at the name was made for this
 * request. */
int create_again(struct union_fs *t, struct inode *parent, const char *name,
		 const struct create_args *args, struct inode **ret, struct stat *ret_st);
/* Give i one more name. Results as of create_node. */
int create_link(struct union_fs *t, struct inode *i, struct inode *parent, const char *name,
		struct stat *ret_st);
/* Is the name allowed in a mount? 0, -EINVAL, -ENAMETOOLONG. */
int create_check_name(const char *name);
