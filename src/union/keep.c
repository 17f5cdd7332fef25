// SPDX-License-Identifier: Apache-2.0
#include "veneer/keep.h"

#include "veneer/buf.h"
#include "veneer/cleanup.h"
#include "veneer/xattr.h"

#include <string.h>
#include <sys/stat.h>

#define KEEP_VERSION 1u
#define KEEP_BYTES 32u

static int store(int fd, const struct keep *s)
{
	_cleanup_(buf_release) struct buf b = { 0 };
	int r = buf_put_u32(&b, KEEP_VERSION);

	r = r ?: buf_put_u32(&b, s->mode);
	for (unsigned k = 0; k < 2; k++)
		r = r ?: buf_put_u64(&b, (uint64_t)s->times[k].tv_sec);
	for (unsigned k = 0; k < 2; k++)
		r = r ?: buf_put_u32(&b, (uint32_t)s->times[k].tv_nsec);
	r = r ?: buf_put(&b, s->capability, s->capability_len);
	return r ?: xattr_set(fd, "", KEEP_ATTR, b.data, b.len, 0);
}

int keep_load(int fd, struct keep *ret)
{
	_cleanup_(freep) char *value = NULL;
	ssize_t len = xattr_get_alloc(fd, "", KEEP_ATTR, &value);
	struct keep s = { .capability_len = 0 };
	struct cursor c;
	uint32_t version;

	if (len < 0)
		return len == -ENODATA || len == -EOPNOTSUPP ? 0 : (int)len;
	c = cursor_over(value, (size_t)len);
	version = cursor_u32(&c);
	s.mode = (mode_t)cursor_u32(&c);
	for (unsigned k = 0; k < 2; k++)
		s.times[k].tv_sec = (time_t)cursor_u64(&c);
	for (unsigned k = 0; k < 2; k++)
		s.times[k].tv_nsec = cursor_u32(&c);
	s.capability_len = cursor_left(&c);
	if (c.bad || version != KEEP_VERSION || s.mode & ~07777u || s.times[0].tv_nsec > 999999999 ||
	    s.times[1].tv_nsec > 999999999 || s.capability_len > sizeof(s.capability))
		return 0;
	memcpy(s.capability, value + KEEP_BYTES, s.capability_len);
	*ret = s;
	return 1;
}

int keep_take(int fd, struct keep *ret)
{
	struct keep k;
	struct stat st;
	ssize_t n = xattr_get(fd, "", "security.capability", k.capability, sizeof(k.capability));
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	k.times[0] = st.st_atim;
	k.times[1] = st.st_mtim;
	k.mode = st.st_mode & 07777;
	k.capability_len = n > 0 ? (size_t)n : 0;
	r = store(fd, &k);
	/* No room for one more attribute: then only a kill may cost it its times. */
	if (r < 0 && r != -ENOSPC && r != -EDQUOT && r != -E2BIG && r != -EOPNOTSUPP)
		return r;
	*ret = k;
	return 0;
}

int keep_put_back(int fd, const struct keep *s)
{
	struct stat st;
	int r = 0;

	if (fstat(fd, &st) < 0)
		return -errno;
	if ((st.st_mode & 07777) != s->mode && fchmod(fd, s->mode) < 0)
		return -errno;
	if (s->capability_len)
		r = xattr_set(fd, "", "security.capability", s->capability, s->capability_len, 0);
	if (r == 0 && futimens(fd, s->times) < 0)
		r = -errno;
	if (r == 0)
		r = xattr_remove(fd, "", KEEP_ATTR);
	return r == -ENODATA || r == -EOPNOTSUPP ? 0 : r;
}
