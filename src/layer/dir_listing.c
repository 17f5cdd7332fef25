// SPDX-License-Identifier: Apache-2.0
#include "veneer/layer/dir_listing.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define LISTING_BUF (32 * 1024)

static int add_name(struct dir_listing *l, const char *name, uint32_t *ret_off)
{
	size_t len = strlen(name) + 1;

	if (l->names_len + len > UINT32_MAX)
		return -EOVERFLOW;
	if (array_reserve(&l->names, &l->names_cap, l->names_len + len) < 0)
		return -ENOMEM;
	memcpy(l->names + l->names_len, name, len);
	*ret_off = (uint32_t)l->names_len;
	l->names_len += len;
	return 0;
}

static int add_entry(struct dir_listing *l, const char *name, struct dir_listing_entry e)
{
	int r = add_name(l, name, &e.name_off);

	r = r ?: array_reserve(&l->entries, &l->cap, l->n + 1);
	if (r == 0)
		l->entries[l->n++] = e;
	return r;
}

/* The number with which FUSE servers that make no numbers of their own list every entry, sshfs for
 * one. */
#define INO_UNKNOWN UINT32_MAX

static int classify(struct dir_listing *l, int dirfd, const struct dirent64 *de)
{
	struct dir_listing_entry e = { .type = de->d_type, .ino = de->d_ino };
	struct stat st;

	if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
		return 0;
	switch (whiteout_name_kind(de->d_name)) {
	case WHITEOUT_OPAQUE:
		l->is_opaque = true;
		return 0;
	case WHITEOUT_META:
		return 0;
	case WHITEOUT_HIDES:
		e.is_hiding = true;
		return add_entry(l, de->d_name + WHITEOUT_PREFIX_LEN, e);
	case WHITEOUT_PLAIN:
		break;
	}
	if (e.type == DT_UNKNOWN || e.type == DT_CHR || e.ino == INO_UNKNOWN) {
		if (fstatat(dirfd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return errno == ENOENT ? 0 : -errno;
		e.type = IFTODT(st.st_mode);
		if (e.ino == INO_UNKNOWN)
			e.ino = st.st_ino;
		e.is_whiteout = whiteout_is_device(st.st_mode, st.st_rdev);
	}
	return add_entry(l, de->d_name, e);
}

int dir_listing_read(int dirfd, struct dir_listing *ret)
{
	_cleanup_(freep) char *buf = malloc(LISTING_BUF);

	*ret = (struct dir_listing){ 0 };
	if (!buf)
		return -ENOMEM;
	if (lseek(dirfd, 0, SEEK_SET) < 0)
		return -errno;
	for (;;) {
		ssize_t n = getdents64(dirfd, buf, LISTING_BUF);

		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		for (ssize_t off = 0; off < n;) {
			const struct dirent64 *de = (const struct dirent64 *)(buf + off);
			int r = classify(ret, dirfd, de);

			if (r < 0)
				return r;
			off += de->d_reclen;
		}
	}
}

void dir_listing_note_files(struct dir_listing *l, int dirfd)
{
	for (size_t i = 0; i < l->n; i++) {
		struct dir_listing_entry *e = &l->entries[i];

		if (e->type == DT_REG && !e->is_hiding)
			e->is_whiteout = whiteout_is_file(dirfd, dir_listing_name(l, e));
	}
}

void dir_listing_release(struct dir_listing *l)
{
	free(l->entries);
	free(l->names);
	*l = (struct dir_listing){ 0 };
}
