// SPDX-License-Identifier: Apache-2.0
#include "veneer/layer/saved_attrs.h"

#include "veneer/base/buf.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/cursor.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/sys/xattr.h"

#include <fcntl.h>
#include <sys/stat.h>

#define KEEP_VERSION	1u
#define CAPABILITY_ATTR "security.capability"

static bool is_absent(ssize_t r)
{
	return r == -ENODATA || r == -EOPNOTSUPP;
}

static int store(int fd, const struct saved_attrs *s)
{
	_cleanup_(buf_release) struct buf b = { 0 };
	int r = buf_put_u32(&b, KEEP_VERSION);

	r = r ?: buf_put_u32(&b, s->mode);
	for (unsigned k = 0; k < 2; k++)
		r = r ?: buf_put_u64(&b, (uint64_t)s->times[k].tv_sec);
	for (unsigned k = 0; k < 2; k++)
		r = r ?: buf_put_u32(&b, (uint32_t)s->times[k].tv_nsec);
	if (r < 0)
		return r;
	r = xattr_set(fd, "", SAVED_ATTRS_ATTR, b.data, b.len, 0);
	return r == -EPERM || r == -EOPNOTSUPP
		       ? xattr_set(fd, "", SAVED_ATTRS_USER_ATTR, b.data, b.len, 0)
		       : r;
}

static int load(int fd, const char *attr, struct saved_attrs *ret)
{
	_cleanup_(freep) char *value = NULL;
	ssize_t len = xattr_get_alloc(fd, "", attr, &value);
	struct saved_attrs s = { .is_loaded = true };
	struct cursor c;
	uint32_t version;

	if (len < 0)
		return is_absent(len) ? 0 : (int)len;
	c = cursor_over(value, (size_t)len);
	version = cursor_u32(&c);
	s.mode = (mode_t)cursor_u32(&c);
	for (unsigned k = 0; k < 2; k++)
		s.times[k].tv_sec = (time_t)cursor_u64(&c);
	for (unsigned k = 0; k < 2; k++)
		s.times[k].tv_nsec = cursor_u32(&c);
	if (c.bad || version != KEEP_VERSION || s.mode & ~07777u ||
	    s.times[0].tv_nsec > 999999999 || s.times[1].tv_nsec > 999999999)
		return 0;
	*ret = s;
	return 1;
}

static int load_any(int fd, struct saved_attrs *ret)
{
	return load(fd, SAVED_ATTRS_ATTR, ret) ?: load(fd, SAVED_ATTRS_USER_ATTR, ret);
}

bool saved_attrs_is_there(int dirfd, const char *name)
{
	return xattr_get(dirfd, name, SAVED_ATTRS_ATTR, NULL, 0) >= 0 ||
	       xattr_get(dirfd, name, SAVED_ATTRS_USER_ATTR, NULL, 0) >= 0;
}

int saved_attrs_take(int fd, struct saved_attrs *ret)
{
	MODE_RELAX_SCOPE(fd, "");
	struct saved_attrs k = { .is_loaded = false }, old = { .is_loaded = false };
	struct stat st;
	ssize_t n = xattr_get(fd, "", CAPABILITY_ATTR, k.capability, sizeof(k.capability));
	int r = load_any(fd, &old), e = mode_relax_stat(fd, "", AT_EMPTY_PATH, &st);

	if (r < 0 || e < 0)
		return r < 0 ? r : e;
	k.times[0] = r == 1 ? old.times[0] : st.st_atim;
	k.times[1] = r == 1 ? old.times[1] : st.st_mtim;
	k.mode = st.st_mode & 07777;
	k.capability_len = n > 0 ? (size_t)n : 0;
	r = store(fd, &k);
	/* No room for one more attribute: then only a kill may cost it its times. */
	if (r < 0 && r != -ENOSPC && r != -EDQUOT && r != -E2BIG && r != -EOPNOTSUPP)
		return r;
	*ret = k;
	return 0;
}

static int forget(int fd)
{
	int r = xattr_remove(fd, "", SAVED_ATTRS_ATTR),
	    e = xattr_remove(fd, "", SAVED_ATTRS_USER_ATTR);

	/* Without privileges the first one is not there to see. */
	if (is_absent(r) || r == -EPERM)
		r = 0;
	return r ?: is_absent(e) ? 0 : e;
}

int saved_attrs_put_back(int fd, const struct saved_attrs *s)
{
	MODE_RELAX_SCOPE(fd, "");
	struct stat st;
	int r = mode_relax_stat(fd, "", AT_EMPTY_PATH, &st);

	if (r == 0 && !s->is_loaded && (st.st_mode & 07777) != s->mode)
		r = mode_relax_chmod(fd, s->mode);
	if (r < 0)
		return r;
	if (s->capability_len)
		r = xattr_set(fd, "", CAPABILITY_ATTR, s->capability, s->capability_len, 0);
	if (r == 0 && futimens(fd, s->times) < 0)
		r = -errno;
	if (r == 0)
		r = forget(fd);
	return r;
}

int saved_attrs_recover(int fd)
{
	MODE_RELAX_SCOPE(fd, "");
	struct saved_attrs k;
	int r = load_any(fd, &k), e;

	if (r != 1)
		return r;
	e = saved_attrs_put_back(fd, &k);
	return e < 0 ? e : 1;
}
