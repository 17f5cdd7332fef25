/* SPDX-License-Identifier: Apache-2.0 */
/* Owner and mode in an extended attribute, as the engines store them where they may not chown:
 * "uid:gid:mode", and a type. Whether a layer does so is said by its root, which then carries the
 * attribute too; it counts for regular files and directories. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* The attribute that the layer at rootfd uses: a constant, or NULL for none. */
const char *mode_xattr_detect(int rootfd);
/* The attribute of xattr_permissions=1 or 2; NULL for 0. */
const char *mode_xattr_for_option(int xattr_permissions);
/* Is this one of the attributes that this module knows? */
bool mode_xattr_is_attr(const char *attr);

/* "uid:gid:mode[:type]" into st, which keeps its file type. False, and st untouched, for anything
 * else. */
bool mode_xattr_parse(const char *text, size_t len, struct stat *st);
/* Put the values of attr of (dirfd, name) into st, as xattr_get names objects. An unreadable or
 * malformed attribute counts as absent. */
void mode_xattr_apply(int dirfd, const char *name, const char *attr, struct stat *st);
/* Store the owner and mode of st in fd's attribute. 0 or -errno. */
int mode_xattr_store(int fd, const char *attr, const struct stat *st);
/* The mode a file really gets where its own is in the attribute: we must be able to use it. */
static inline mode_t mode_xattr_real_mode(mode_t mode)
{
	return (mode & (S_IFMT | 0777)) | 0755;
}
/* The same with an access ACL, or a default ACL to inherit: the file system keeps the group's and
 * the others' bits in the ACL, and the kernel goes by them. */
static inline mode_t mode_xattr_acl_mode(mode_t mode)
{
	return (mode & (S_IFMT | 0777)) | 0700;
}
/* An ACL may have taken bits of the owner from fd's real mode: give them back, as the server's
 * access depends on them. 0 or -errno. */
int mode_xattr_keep_access(int fd, mode_t real_mode);
/* Put mode into an access ACL, as chmod does. The file system keeps the real mode there. Other
 * values stay. */
void mode_xattr_limit_acl(void *value, size_t size, mode_t mode);
