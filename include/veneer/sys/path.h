/* SPDX-License-Identifier: Apache-2.0 */
/* Opens names beneath a layer root. The only opener of layer paths: no symlink is followed, no
 * "..", nothing outside the root, for any content of the layer (design of record, section 11). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS), O_CLOEXEC added. The
 * empty path and "." are the root itself. A trailing symlink opens with O_PATH|O_NOFOLLOW and
 * is -ELOOP otherwise. Falls back to a walk of single openat(O_NOFOLLOW) steps where openat2 is
 * missing (-ENOSYS, or -EPERM from an old seccomp filter). Descriptor or -errno. */
int path_open(int rootfd, const char *path, int flags, mode_t mode);
/* As path_open, for reading; preserves the access time if permitted (the file's owner,
 * CAP_FOWNER). */
int path_open_quiet(int rootfd, const char *path, int flags);
/* As path_open, for existing directories and files. -EXDEV if a mount point is on the path,
 * including a bind mount; -ENOSYS without openat2. */
int path_open_unmounted(int rootfd, const char *path, int flags);
/* The parent directory of fd, with O_PATH. -EXDEV if a mount is in between, including one on the
 * parent: that may be a mount of this server, which nobody serves yet. Without openat2 such mounts
 * are entered. */
int path_open_above(int fd);
/* Reopen a descriptor (O_PATH too, unlinked files too) with other flags, through /proc/self/fd. */
int path_reopen(int fd, int flags);
/* A clone of the mount of fd with fd as its root (may be a file), read-only even if that mount is
 * not. It contains no other mounts below fd. It is visible nowhere and ends when its last
 * descriptor is closed. -EPERM without privileges, -EINVAL in another mount namespace. */
int path_clone_readonly(int fd);
/* Is "a/b/c" a plain relative path? No empty, "." or ".." component, no leading or trailing slash,
 * no component over 255 bytes, total under 4096. Marks in layers may contain only these. */
bool path_is_plain(const char *path, size_t len);
