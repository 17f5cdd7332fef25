// SPDX-License-Identifier: Apache-2.0
#include "veneer/layer/partial_xattr.h"

#include <errno.h>
#include <string.h>

#include "veneer/base/cleanup.h"
#include "veneer/base/cursor.h"
#include "veneer/base/hash.h"
#include "veneer/map/format.h"
#include "veneer/sys/path.h"

#define SUMMED_BYTES offsetof(struct format_partial, checksum)
#define NSEC_PER_SEC 1000000000u
#define FLAGS_KNOWN  (FORMAT_PARTIAL_HAS_PATH | FORMAT_PARTIAL_IS_COPY)

/* The sum covers two ranges that the checksum itself keeps apart. */
static int mark_checksum(const void *head, const void *path, size_t path_len, uint64_t *ret_sum)
{
	uint8_t joined[SUMMED_BYTES + PARTIAL_XATTR_PATH_MAX];

	if (path_len >= PARTIAL_XATTR_PATH_MAX)
		return -EUCLEAN;
	memcpy(joined, head, SUMMED_BYTES);
	if (path_len)
		memcpy(joined + SUMMED_BYTES, path, path_len);
	*ret_sum = hash_checksum(joined, SUMMED_BYTES + path_len);
	return 0;
}

static bool mark_is_valid(const struct partial_xattr *m, size_t path_len)
{
	if (m->file_id == 0 || m->lower_size > INT64_MAX || m->lower_mtime_ns >= NSEC_PER_SEC)
		return false;
	return path_len == 0 ? !m->is_copy : path_is_plain(m->path, path_len);
}

bool partial_xattr_fits(const struct partial_xattr *m, const struct stat *lower)
{
	return S_ISREG(lower->st_mode) && (uint64_t)lower->st_size == m->lower_size &&
	       lower->st_mtim.tv_sec == m->lower_mtime_s &&
	       (uint32_t)lower->st_mtim.tv_nsec == m->lower_mtime_ns;
}

static uint8_t flags_of(const struct partial_xattr *m, size_t path_len)
{
	return (path_len ? FORMAT_PARTIAL_HAS_PATH : 0) | (m->is_copy ? FORMAT_PARTIAL_IS_COPY : 0);
}

int partial_xattr_encode(const struct partial_xattr *m, struct buf *out)
{
	size_t path_len = strnlen(m->path, sizeof(m->path));

	if (path_len == sizeof(m->path) || !mark_is_valid(m, path_len))
		return -EINVAL;

	struct buf b = { 0 };
	uint64_t sum;
	int r = buf_put_u8(&b, FORMAT_PARTIAL_VERSION);

	r = r ?: buf_put_u8(&b, flags_of(m, path_len));
	r = r ?: buf_put_u16(&b, (uint16_t)path_len);
	r = r ?: buf_put_u32(&b, m->uuid_low);
	r = r ?: buf_put_u64(&b, m->file_id);
	r = r ?: buf_put_u64(&b, m->lower_size);
	r = r ?: buf_put_u64(&b, (uint64_t)m->lower_mtime_s);
	r = r ?: buf_put_u32(&b, m->lower_mtime_ns);
	r = r ?: buf_put_u32(&b, 0);
	r = r ?: mark_checksum(b.data, m->path, path_len, &sum);
	r = r ?: buf_put_u64(&b, sum);
	if (path_len)
		r = r ?: buf_put(&b, m->path, path_len);
	r = r ?: buf_put(out, b.data, b.len);
	buf_release(&b);
	return r;
}

int partial_xattr_decode(const void *p, size_t len, struct partial_xattr *ret)
{
	struct cursor c = cursor_over(p, len);
	uint8_t version = cursor_u8(&c);
	uint8_t flags = cursor_u8(&c);
	uint16_t path_len = cursor_u16(&c);
	struct partial_xattr m = { .uuid_low = cursor_u32(&c) };

	m.is_copy = flags & FORMAT_PARTIAL_IS_COPY;
	m.file_id = cursor_u64(&c);
	m.lower_size = cursor_u64(&c);
	m.lower_mtime_s = (int64_t)cursor_u64(&c);
	m.lower_mtime_ns = cursor_u32(&c);

	uint32_t reserved = cursor_u32(&c);
	uint64_t claimed = cursor_u64(&c);

	if (c.bad || version != FORMAT_PARTIAL_VERSION || (flags & ~FLAGS_KNOWN) || reserved)
		return -EUCLEAN;
	if (!!(flags & FORMAT_PARTIAL_HAS_PATH) != !!path_len ||
	    path_len >= PARTIAL_XATTR_PATH_MAX || cursor_left(&c) != path_len)
		return -EUCLEAN;

	const uint8_t *path = cursor_bytes(&c, path_len);
	uint64_t sum;

	if (mark_checksum(p, path, path_len, &sum) < 0 || sum != claimed)
		return -EUCLEAN;
	/* A NUL inside would make the string shorter than the checked one. */
	if (path_len && memchr(path, 0, path_len))
		return -EUCLEAN;
	if (path_len)
		memcpy(m.path, path, path_len);
	if (!mark_is_valid(&m, path_len))
		return -EUCLEAN;
	*ret = m;
	return 0;
}
