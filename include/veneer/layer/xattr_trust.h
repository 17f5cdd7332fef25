/* SPDX-License-Identifier: Apache-2.0 */
/* Every writer of a file may give it user.* attributes. A server with more rights than the writer
 * follows a mark to a lower file if root has sealed the mark, or if the writers could have read
 * that file (doc/SPEC.md, section 2). */
#pragma once

#include "veneer/layer/layer.h"
#include "veneer/layer/partial_xattr.h"

#include <sys/stat.h>

/* The last eight bytes before the path of a mark, its checksum: that mark was written by a process
 * that may write trusted.*. */
#define XATTR_TRUST_SEAL_ATTR "trusted.veneer.partial"

#define XATTR_TRUST_SAID                                                                       \
	"its owner could not have read the file that it stands over: mount with userxattr if " \
	"that was not forged"

/* Seal a mark, given as its bytes, before it is written at fd. 0 or -errno. */
int xattr_trust_seal(int fd, const struct buf *mark);
/* Without error: a seal without its mark says nothing. */
void xattr_trust_remove_seal(int fd);
/* The partial file fd becomes an ordinary one: guard, mark and seal go, in this order. None of them
 * is no error. 0 or -errno. */
int xattr_trust_unmark(int fd);
/* Has (dirfd, name) the seal of these bytes? In doubt no. */
bool xattr_trust_is_sealed(int dirfd, const char *name, const void *mark, size_t len);

/* Could every user who may write the file `up` have read `low`, over which it stands? At its own
 * place, that is with a mark without a path, the same directories lead to both. has_acl: of up. */
bool xattr_trust_covers(const struct stat *up, bool has_acl, bool is_at_own_place,
			const struct stat *low);
/* Does a mark, read from fd in a layer with this map, lead to low? 0, -EUCLEAN (not logged),
 * -errno. */
int xattr_trust_check(const struct layer *l, struct mapfile *map, int fd,
		      const struct partial_xattr *m, const struct stat *low);
