/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes by which the kernel's overlayfs refuses a partial file, which it would show as zeros:
 * to overlayfs it is a metacopy file with a value that is none (doc/SPEC.md, section 1). They say
 * nothing to veneer: the mark does. */
#pragma once

#include <stdbool.h>

/* Too short for a metacopy's value: since Linux 6.6 an error in every mount. */
#define METACOPY_GUARD_VALUE "vnr"
/* No path: followed by no kernel. Older ones ignore the value, and with metacopy=on they follow
 * this. */
#define METACOPY_GUARD_REDIRECT	 "/"
#define METACOPY_GUARD_USER_ATTR "user.overlay.metacopy"

enum metacopy_guard {
	METACOPY_GUARD_USER, /* for overlayfs with userxattr */
	METACOPY_GUARD_TRUSTED,
	METACOPY_GUARD_TRUSTED_REDIRECT, /* and a redirect */
};

/* The guard that the running kernel takes; has_trusted: trusted.* attributes can be written. */
enum metacopy_guard metacopy_guard_for(bool has_trusted);
/* Guard fd, which has its mark already: a guard without a mark is damage. A metacopy of overlayfs
 * that is there is replaced. 0 or -errno; where there is no room, -ENOSPC, -EDQUOT or -E2BIG. */
int metacopy_guard_set(int fd, enum metacopy_guard guard);
/* Take it away, before the mark goes. No guard at all is no error. 0 or -errno. */
int metacopy_guard_remove(int fd);
/* Is (dirfd, name) guarded, in whatever way? */
bool metacopy_guard_is_set(int dirfd, const char *name);
