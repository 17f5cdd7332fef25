/* SPDX-License-Identifier: Apache-2.0 */
/* The place of a file's bytes, as its attributes say. */
#pragma once

#include "veneer/layer/source.h"

#define ACL_ATTR "system.posix_acl_access"

enum { SOURCE_MARK_OWN, SOURCE_MARK_PARTIAL, SOURCE_MARK_BELOW };

/* One of these, with *ret filled for a partial file; or -errno. -EUCLEAN: damaged, or forged. The
 * last two may be NULL: there is no attribute at all; it has an access list. */
int source_mark_kind(int dirfd, const char *name, struct partial_xattr *ret,
		     bool *ret_is_unresolved, bool *ret_has_acl);
