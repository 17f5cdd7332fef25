/* SPDX-License-Identifier: Apache-2.0 */
/* Opening names beneath a layer root. The only opener of layer paths: no symlink is followed,
 * no "..", nothing outside the root, whatever the layer holds (design of record, section 11). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS), O_CLOEXEC added. The
 * empty path and "." are the root itself. A trailing symlink opens with O_PATH|O_NOFOLLOW and
 * is -ELOOP otherwise. Falls back to a walk of single openat(O_NOFOLLOW) steps where openat2 is
 * missing (-ENOSYS, or -EPERM from an old seccomp filter). Descriptor or -errno. */
int path_open(int rootfd, const char *path, int flags, mode_t mode);
/* To read what is there: as path_open, and leaves its access time alone where that is allowed (its
 * owner, CAP_FOWNER). */
int path_open_quiet(int rootfd, const char *path, int flags);
/* As path_open, for directories and files that exist: -EXDEV if a mount point is on the way, that
 * of a bind mount too; -ENOSYS where openat2 is missing. */
int path_open_unmounted(int rootfd, const char *path, int flags);
/* The directory above that of fd, with O_PATH. -EXDEV if a mount is in between, also one on the
 * directory above: it may be one of our own, which nobody serves yet. Where openat2 is missing such
 * mounts are entered. */
int path_open_above(int fd);
/* Reopen a descriptor (O_PATH too, unlinked files too) with other flags, through /proc/self/fd. */
int path_reopen(int fd, int flags);
/* A clone of the mount that fd is in, with fd as its root (a file, too), which is read-only
 * whatever that mount is. Other mounts below fd are not in it. It is seen nowhere and goes when the
 * last descriptor of it is closed. -EPERM without privileges, -EINVAL in another mount
 * namespace. */
int path_clone_readonly(int fd);
/* "a/b/c" is a plain relative path: no empty, "." or ".." component, no leading or trailing
 * slash, no component over 255 bytes, total under 4096. What a mark in a layer may name. */
bool path_is_plain(const char *path, size_t len);
