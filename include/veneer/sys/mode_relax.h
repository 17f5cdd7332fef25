/* SPDX-License-Identifier: Apache-2.0 */
/* Files and directories of ours whose mode refuses their own owner. Without privileges such a mode
 * binds us, too, and a union must do more with an object than was asked of it: mark a read-only
 * file, put a copy into a read-only directory. For that moment the owner gets all of his bits, and
 * no caller of this module sees it. Only for what is ours to write: a lower layer is not. */
#pragma once

#include "veneer/base/cleanup.h"

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

struct mode_relax;

/* (dirfd, name), or dirfd itself where name is empty; a symlink is not followed. NULL: nothing to
 * give, which is always so with privileges, or not ours to give. mode_relax_end takes NULL; the
 * mode is back when the last one has ended. */
struct mode_relax *mode_relax_begin(int dirfd, const char *name);
void mode_relax_end(struct mode_relax *r);

static inline void mode_relax_endp(struct mode_relax **r)
{
	mode_relax_end(*r);
}
/* From here to the end of the block. */
#define MODE_RELAX_SCOPE(dirfd, name)                                                     \
	_cleanup_(mode_relax_endp) __attribute__((unused)) struct mode_relax *VENEER_CAT( \
		relax_, __LINE__) = mode_relax_begin(dirfd, name)

/* fstatat(2) with the mode that is meant. 0 or -errno. */
int mode_relax_stat(int dirfd, const char *name, int flags, struct stat *ret);
/* fchmod(2), which is not undone by a mode that is put back. 0 or -errno. */
int mode_relax_chmod(int fd, mode_t mode);

/* openat(2), renameat2(2) and setting attributes of a descriptor, with what is in the way relaxed:
 * dirfds, the object, and of a rename what it replaces. Result or -errno. */
int mode_relax_openat(int dirfd, const char *name, int flags);
int mode_relax_rename(int fromfd, const char *from, int tofd, const char *to, unsigned flags);
int mode_relax_set_xattr(int fd, const char *attr, const void *value, size_t size);
int mode_relax_remove_xattr(int fd, const char *attr);
