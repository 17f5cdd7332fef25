// SPDX-License-Identifier: Apache-2.0
#include "source_mark.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/base/minmax.h"
#include "veneer/layer/metacopy_guard.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/layer/whiteout.h"
#include "veneer/layer/xattr_trust.h"
#include "veneer/map/format.h"
#include "veneer/sys/xattr.h"

#include <inttypes.h>
#include <string.h>

int source_mark_kind(int dirfd, const char *name, struct partial_xattr *ret,
		     bool *ret_is_unresolved, bool *ret_has_acl)
{
	_cleanup_(freep) char *list = NULL;
	ssize_t len = xattr_list_alloc(dirfd, name, &list);
	bool has_mark = false, has_metacopy = false, has_user_metacopy = false, has_seal = false;

	if (ret_is_unresolved)
		*ret_is_unresolved = len == 0;
	if (ret_has_acl)
		*ret_has_acl = false;
	if (len == -EOPNOTSUPP || len == -ENOSYS)
		return SOURCE_MARK_OWN;
	if (len < 0)
		return (int)len;
	for (char *a = list; a && a < list + len; a += strlen(a) + 1) {
		has_user_metacopy = has_user_metacopy || !strcmp(a, METACOPY_GUARD_USER_ATTR);
		has_metacopy = has_metacopy || !strcmp(a, WHITEOUT_METACOPY_ATTR);
		has_mark = has_mark || !strcmp(a, FORMAT_PARTIAL_ATTR);
		has_seal = has_seal || !strcmp(a, XATTR_TRUST_SEAL_ATTR);
		if (ret_has_acl && !strcmp(a, ACL_ATTR))
			*ret_has_acl = true;
	}
	/* Beside a mark a metacopy is its guard, or the origin of the mark. */
	if (has_mark) {
		_cleanup_(freep) char *value = NULL;
		ssize_t n = xattr_get_alloc(dirfd, name, FORMAT_PARTIAL_ATTR, &value);
		int r;

		if (n < 0)
			return (int)n;
		r = partial_xattr_decode(value, (size_t)n, ret);
		if (r < 0)
			return r;
		ret->is_sealed = has_seal && xattr_trust_is_sealed(dirfd, name, value, (size_t)n);
		return SOURCE_MARK_PARTIAL;
	}
	/* No kernel writes it, and the owner of a file may: it is not followed. */
	if (has_user_metacopy)
		return -EUCLEAN;
	return has_metacopy ? SOURCE_MARK_BELOW : SOURCE_MARK_OWN;
}

int source_read_mark(int dirfd, const char *name, struct partial_xattr *ret,
		     bool *ret_is_unresolved)
{
	int r = source_mark_kind(dirfd, name, ret, ret_is_unresolved, NULL);

	/* Reading one as it is would give zeros. */
	return r == SOURCE_MARK_BELOW ? -EUCLEAN : r;
}

bool source_fits_mark(const struct partial_xattr *m, const struct stat *base, const char *path,
		      const char *layer)
{
	if (partial_xattr_fits(m, base))
		return true;
	log_error("%s: %s: the lower file it was copied from is not what it was (%" PRIu64
		  " bytes then, %jd now)",
		  layer, path, m->lower_size, (intmax_t)base->st_size);
	return false;
}

int source_needs_lower(struct mapfile *map, const struct partial_xattr *m, uint64_t size)
{
	uint64_t clip;
	blk_t end, n;
	int r = (uint32_t)mapfile_uuid(map) == m->uuid_low ? mapfile_clip(map, m->file_id, &clip)
							   : -ENOENT;

	if (r < 0)
		return r;
	/* Of a clip above the size the size counts. */
	clip = MIN(clip, size);
	end = (clip + BLK_BYTES - 1) >> BLK_SHIFT;
	for (blk_t blk = 0; blk < end; blk += n) {
		bool is_own;

		r = mapfile_run(map, m->file_id, blk, end - blk, &is_own, &n);
		if (r < 0 || !is_own)
			return r < 0 ? r : 1;
	}
	return 0;
}
