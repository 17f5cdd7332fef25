// SPDX-License-Identifier: Apache-2.0
#include "delta_header.h"

#include "archive_library.h"

#include "veneer/base/buf.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* clang-format off */
#define CALLS(CALL) \
	CALL(archive_entry_filetype) CALL(archive_entry_gid) CALL(archive_entry_hardlink) \
	CALL(archive_entry_mode) CALL(archive_entry_mtime) CALL(archive_entry_mtime_nsec) \
	CALL(archive_entry_rdev) CALL(archive_entry_size) CALL(archive_entry_sparse_next) \
	CALL(archive_entry_sparse_reset) CALL(archive_entry_symlink) CALL(archive_entry_uid) \
	CALL(archive_entry_xattr_next) CALL(archive_entry_xattr_reset)
/* clang-format on */

ARCHIVE_LIBRARY_LOADER(CALLS)

static int put_text(struct buf *b, const char *s)
{
	return buf_put(b, s ? s : "", s ? strlen(s) + 1 : 1);
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

void delta_header_decode_name(char *name)
{
	char *to = name;

	for (const char *at = name; *at; at++) {
		const int high = *at == '%' ? hex_digit(at[1]) : -1,
			  low = high >= 0 ? hex_digit(at[2]) : -1;

		if (low < 0 || !(high | low)) {
			*to++ = *at;
			continue;
		}
		*to++ = (char)(high << 4 | low);
		at += 2;
	}
	*to = '\0';
}

static int put_name(struct buf *b, const char *name, bool is_written)
{
	_cleanup_(freep) char *copy = strdup(name);

	if (!copy)
		return -ENOMEM;
	if (!is_written)
		delta_header_decode_name(copy);
	return put_text(b, copy);
}

/* The sum does not depend on the order of the attributes. */
static int put_xattrs(struct buf *b, struct archive_entry *e, bool is_written)
{
	_cleanup_(buf_release) struct buf one = { 0 };
	uint64_t all = 0;
	const char *name;
	const void *value;
	size_t size;
	int r = 0;

	lib.archive_entry_xattr_reset(e);
	while (r == 0 && lib.archive_entry_xattr_next(e, &name, &value, &size) == 0) {
		one.len = 0;
		r = put_name(&one, name, is_written) ?: buf_put(&one, value, size);
		if (r == 0)
			all += hash_checksum(one.data, one.len);
	}
	return r ?: buf_put_u64(b, all);
}

/* Leave out empty ranges, which the library adds. */
static int put_sparse(struct buf *b, struct archive_entry *e)
{
	la_int64_t off, len;
	int r = 0;

	/* If reset returns 0, libarchive 3.6 has freed the list that sparse_next would read. */
	if (!lib.archive_entry_sparse_reset(e))
		return 0;
	while (r == 0 && lib.archive_entry_sparse_next(e, &off, &len) == 0)
		if (len)
			r = buf_put_u64(b, (uint64_t)off) ?: buf_put_u64(b, (uint64_t)len);
	return r;
}

static int put_object(struct buf *b, struct archive_entry *e)
{
	const mode_t type = lib.archive_entry_filetype(e);
	int r = buf_put_u32(b, lib.archive_entry_mode(e));

	r = r ?: buf_put_u64(b, (uint64_t)lib.archive_entry_uid(e));
	r = r ?: buf_put_u64(b, (uint64_t)lib.archive_entry_gid(e));
	r = r ?: buf_put_u64(b, (uint64_t)lib.archive_entry_mtime(e));
	r = r ?: buf_put_u64(b, (uint64_t)lib.archive_entry_mtime_nsec(e));
	if (type == AE_IFLNK)
		return r ?: put_text(b, lib.archive_entry_symlink(e));
	if (type == AE_IFCHR || type == AE_IFBLK)
		return r ?: buf_put_u64(b, lib.archive_entry_rdev(e));
	if (type != AE_IFREG)
		return r;
	return r ?: buf_put_u64(b, (uint64_t)lib.archive_entry_size(e)) ?: put_sparse(b, e);
}

int delta_header_sum(struct archive_entry *e, const char *path, bool is_written, uint64_t *ret)
{
	_cleanup_(buf_release) struct buf b = { 0 };
	int r = load();

	if (r < 0)
		return r;
	r = put_text(&b, path) ?: put_text(&b, lib.archive_entry_hardlink(e));
	r = r ?: put_xattrs(&b, e, is_written);
	if (r == 0 && !lib.archive_entry_hardlink(e))
		r = put_object(&b, e);
	if (r == 0)
		*ret = hash_checksum(b.data, b.len);
	return r;
}
