/* SPDX-License-Identifier: Apache-2.0 */
/* The server's own files and directories whose mode denies their owner. Such a mode also binds an
 * unprivileged server. But a union must do more with an object than a program asked for: mark a
 * read-only file, place a copy in a read-only directory. For that moment the owner gets all of his
 * bits, and no caller of this module sees it. Only for objects that the server may write, so not
 * for a lower layer. */
#pragma once

#include "veneer/base/cleanup.h"

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

struct mode_relax;

/* (dirfd, name), or dirfd itself if name is empty; a symlink is not followed. NULL: there is
 * nothing to relax, as always with privileges, or the object is not the server's. mode_relax_end
 * takes NULL; the last one restores the mode. */
struct mode_relax *mode_relax_begin(int dirfd, const char *name);
void mode_relax_end(struct mode_relax *r);

static inline void mode_relax_endp(struct mode_relax **r)
{
	mode_relax_end(*r);
}
/* Relaxed from here to the end of the block. */
#define MODE_RELAX_SCOPE(dirfd, name)                                                     \
	_cleanup_(mode_relax_endp) __attribute__((unused)) struct mode_relax *VENEER_CAT( \
		relax_, __LINE__) = mode_relax_begin(dirfd, name)

/* fstatat(2) with the intended mode. 0 or -errno. */
int mode_relax_stat(int dirfd, const char *name, int flags, struct stat *ret);
/* fchmod(2); restoring the relaxed mode does not undo it. 0 or -errno. */
int mode_relax_chmod(int fd, mode_t mode);

/* openat(2), renameat2(2) and setting attributes of a descriptor, with the modes of the
 * directories, the object, and of a rename its target relaxed. Result or -errno. */
int mode_relax_openat(int dirfd, const char *name, int flags);
int mode_relax_rename(int fromfd, const char *from, int tofd, const char *to, unsigned flags);
int mode_relax_set_xattr(int fd, const char *attr, const void *value, size_t size);
int mode_relax_remove_xattr(int fd, const char *attr);
