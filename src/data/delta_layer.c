// SPDX-License-Identifier: Apache-2.0
#include "veneer/data/delta_layer.h"

#include "partial_mark.h"
#include "veneer/base/array.h"
#include "veneer/base/buf.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/minmax.h"
#include "veneer/data/read.h"
#include "veneer/layer/mode_xattr.h"
#include "veneer/layer/xattr_trust.h"
#include "veneer/map/mapfile.h"
#include "veneer/sys/file.h"
#include "veneer/sys/path.h"
#include "veneer/sys/probe.h"
#include "veneer/sys/xattr.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)1 << 20)
#define FILE_NAME   "file" /* in the work directory: the file that is being made */
#define OWNS_MAX    ((size_t)1 << 20)

/* Blocks that become own. */
struct delta_own {
	blk_t blk, n;
	bool is_zero;
};

int delta_layer_open(struct delta_layer *l)
{
	/* The layer counts only when all of it is on the disk, so the map needs no syncs before. */
	const unsigned flags = MAPFILE_VOLATILE |
			       (probe_is_ordered(l->rootfd) ? MAPFILE_ORDERED : 0);

	l->buf = malloc(PIECE_BYTES);
	return l->buf ? mapfile_open(l->rootfd, l->work_fd, flags, "a received layer", NULL,
				     &l->map)
		      : -ENOMEM;
}

static int sync_all(const struct delta_layer *l)
{
	return syncfs(l->rootfd) < 0 ? -errno : 0;
}

/* A clean map asserts that all other files are on the disk. */
int delta_layer_sync(struct delta_layer *l)
{
	int r = sync_all(l);

	if (r == 0 && mapfile_count(l->map))
		r = mapfile_checkpoint(l->map, true);
	return r ?: mapfile_mark_clean(l->map) ?: sync_all(l);
}

void delta_layer_close(struct delta_layer *l)
{
	if (l->map)
		mapfile_close(l->map);
	l->map = NULL;
	free(l->buf);
	l->buf = NULL;
	free(l->owns);
	l->owns = NULL;
	l->n_owns = l->cap_owns = 0;
}

/* ---- places ---- */

/* The place of an entry. */
struct place {
	int dirfd;
	char *dir; /* path of dirfd */
	const char *name; /* in it */
};

static void place_release(struct place *p)
{
	closep(&p->dirfd);
	free(p->dir);
}

static int make_dirs(int rootfd, char *path)
{
	int r = 0;

	for (char *slash = path; r == 0 && slash; *slash = '/') {
		_cleanup_(closep) int dirfd = -1;
		char *last;

		slash = strchr(slash + 1, '/');
		if (slash)
			*slash = '\0';
		last = strrchr(path, '/');
		if (last)
			*last = '\0';
		dirfd = path_open(rootfd, last ? path : "", O_PATH | O_DIRECTORY, 0);
		if (last)
			*last = '/';
		r = dirfd < 0 ? dirfd : 0;
		if (r == 0 && mkdirat(dirfd, last ? last + 1 : path, 0700) < 0 && errno != EEXIST)
			r = -errno;
		if (!slash)
			break;
	}
	return r;
}

static int place_open(const struct delta_layer *l, const char *path, struct place *ret)
{
	const char *slash = strrchr(path, '/');

	*ret = (struct place){ .dirfd = -1, .name = slash ? slash + 1 : path };
	ret->dir = strndup(path, slash ? (size_t)(slash - path) : 0);
	if (!ret->dir)
		return -ENOMEM;
	ret->dirfd = path_open(l->rootfd, ret->dir, O_PATH | O_DIRECTORY, 0);
	if (ret->dirfd == -ENOENT) {
		int r = make_dirs(l->rootfd, ret->dir);

		ret->dirfd = r < 0 ? r : path_open(l->rootfd, ret->dir, O_PATH | O_DIRECTORY, 0);
	}
	return ret->dirfd < 0 ? ret->dirfd : 0;
}

/* ---- attributes ---- */

/* fd may be O_PATH. The owner comes first: chown clears capabilities and set-id bits. */
static int set_attributes(int fd, const struct delta_object *o)
{
	const struct timespec times[] = { o->st.st_mtim, o->st.st_mtim };
	char self[sizeof("/proc/self/fd/-2147483648")];
	int r = fchownat(fd, "", o->st.st_uid, o->st.st_gid, AT_EMPTY_PATH) < 0 ? -errno : 0;

	for (size_t k = 0; r == 0 && k < o->nxattrs; k++)
		r = xattr_set(fd, "", o->xattrs[k].name, o->xattrs[k].value, o->xattrs[k].size, 0);
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	if (r == 0 && !S_ISLNK(o->st.st_mode) && chmod(self, o->st.st_mode & 07777) < 0)
		r = -errno;
	return r == 0 && utimensat(fd, "", times, AT_EMPTY_PATH) < 0 ? -errno : r;
}

/* ---- other objects ---- */

int delta_layer_whiteout(struct delta_layer *l, const char *path)
{
	_cleanup_(place_release) struct place p = { .dirfd = -1 };
	int r = place_open(l, path, &p);

	return r ?: whiteout_make(&l->style, p.dirfd, p.name);
}

/* Refuse a file whose mark has no path: by another name the mark would mean another lower file. */
static int may_have_links(int dirfd, const char *name)
{
	struct partial_xattr m;
	struct stat st;
	int r;

	if (whiteout_name_kind(name) != WHITEOUT_PLAIN)
		return -EUCLEAN;
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? -EUCLEAN : -errno;
	if (S_ISDIR(st.st_mode) || whiteout_is_device(st.st_mode, st.st_rdev))
		return -EUCLEAN;
	r = S_ISREG(st.st_mode) ? source_read_mark(dirfd, name, &m, NULL) : 0;
	return r == 1 && !*m.path ? -EUCLEAN : MIN(r, 0);
}

int delta_layer_link(struct delta_layer *l, const char *path, const char *first)
{
	_cleanup_(place_release) struct place p = { .dirfd = -1 }, from = { .dirfd = -1 };
	int r = place_open(l, path, &p) ?: place_open(l, first, &from);

	r = r ?: may_have_links(from.dirfd, from.name);
	if (r == 0 && linkat(from.dirfd, from.name, p.dirfd, p.name, 0) < 0)
		r = -errno;
	return r;
}

static int make_node(int dirfd, const char *name, const struct delta_object *o)
{
	const mode_t type = o->st.st_mode & S_IFMT;
	int r = type == S_IFLNK ? symlinkat(o->target ?: "", dirfd, name)
				: mknodat(dirfd, name, type | 0600, o->st.st_rdev);

	return r < 0 ? -errno : 0;
}

int delta_layer_special(struct delta_layer *l, const struct delta_object *o)
{
	_cleanup_(place_release) struct place p = { .dirfd = -1 };
	_cleanup_(closep) int fd = -1;
	int r = place_open(l, o->path, &p) ?: make_node(p.dirfd, p.name, o);

	if (r < 0)
		return r;
	fd = openat(p.dirfd, p.name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : set_attributes(fd, o);
}

/* Open a directory, and make it if it is missing. */
static int open_directory(struct delta_layer *l, const char *path)
{
	_cleanup_(place_release) struct place p = { .dirfd = -1 };
	int r = 0, fd;

	if (!strcmp(path, "."))
		return path_open(l->rootfd, "", O_RDONLY | O_DIRECTORY, 0);
	r = place_open(l, path, &p);
	if (r == 0 && mkdirat(p.dirfd, p.name, 0700) < 0 && errno != EEXIST)
		r = -errno;
	if (r < 0)
		return r;
	fd = openat(p.dirfd, p.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int set_opaque(const struct delta_layer *l, int fd, const char *path)
{
	_cleanup_(closep) int mark = -1;

	if (strcmp(path, ".") != 0)
		return whiteout_set_opaque(&l->style, fd);
	/* Only the file makes a root opaque. */
	mark = openat(fd, WHITEOUT_OPAQUE_NAME, O_CREAT | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
	return mark < 0 ? -errno : 0;
}

int delta_layer_directory(struct delta_layer *l, const struct delta_object *o, bool is_opaque)
{
	_cleanup_(closep) int fd = open_directory(l, o->path);
	int r = fd < 0 ? fd : is_opaque ? set_opaque(l, fd, o->path) : 0;

	return r ?: set_attributes(fd, o);
}

static bool counts(const char *attr)
{
	return !whiteout_is_reserved_attr(attr) || mode_xattr_is_attr(attr);
}

int delta_layer_same_directory(struct delta_layer *l, const char *path)
{
	struct delta_object o = { .path = path };
	_cleanup_(closep) int fd = -1, from = -1;
	struct image_entry *e;
	int r = image_lookup_path(l->below, path, &e);

	if (r < 0 || e->type != DT_DIR)
		return r < 0 && r != -ENOENT && r != -ENOTDIR ? r : -ESTALE;
	fd = open_directory(l, path);
	from = image_open_path(l->below, e);
	if (fd < 0 || from < 0)
		return fd < 0 ? fd : from;
	r = image_stat(l->below, e, &o.st) ?: xattr_copy(from, fd, counts);
	return r ?: set_attributes(fd, &o);
}

/* ---- regular files ---- */

/* -ESTALE: the delta was made against another file. */
static int find_base(struct delta_layer *l, const struct delta_base *base, struct source **ret,
		     struct stat *ret_st)
{
	struct image_entry *e;
	int r = image_lookup_path(l->below, base->path, &e);

	if (r < 0)
		return r == -ENOENT || r == -ENOTDIR ? -ESTALE : r;
	if (e->type != DT_REG)
		return -ESTALE;
	r = image_stat(l->below, e, ret_st) ?: image_source(l->below, e, ret);
	return r < 0 ? r : (uint64_t)ret_st->st_size != base->size ? -ESTALE : 0;
}

static bool has_acl(const struct delta_object *o)
{
	for (size_t k = 0; k < o->nxattrs; k++)
		if (!strcmp(o->xattrs[k].name, "system.posix_acl_access"))
			return true;
	return false;
}

/* As partial_mark_make. */
static int mark(struct delta_file *f, const struct delta_object *o, const struct delta_base *base,
		const struct stat *low)
{
	struct delta_layer *l = f->l;
	struct partial_xattr m = { .is_copy = base->is_copy,
				   .lower_size = (uint64_t)low->st_size,
				   .lower_mtime_s = low->st_mtim.tv_sec,
				   .lower_mtime_ns = (uint32_t)low->st_mtim.tv_nsec };
	int r;

	if (!base->is_own_place ||
	    (l->style.has_trusted && !xattr_trust_covers(&o->st, has_acl(o), true, low))) {
		if (strlen(base->path) >= sizeof(m.path))
			return -ENAMETOOLONG;
		strcpy(m.path, base->path);
	}
	f->clip = MIN(m.lower_size, (uint64_t)o->st.st_size);
	r = mapfile_file_new(l->map, f->clip, &f->id);
	if (r < 0)
		return r;
	m.file_id = f->id;
	m.uuid_low = (uint32_t)mapfile_uuid(l->map);
	r = partial_mark_write(&l->style, f->fd, &m,
			       *m.path && !m.is_copy &&
				       xattr_trust_covers(&o->st, has_acl(o), false, low));
	r = r ?: partial_mark_guard(&l->style, f->fd);
	return partial_mark_needs_no_guard(r) && source_read_mark(f->fd, "", &m, NULL) == 1 ? 0 : r;
}

/* Remove a file that was not placed. */
static int drop_file(struct delta_layer *l)
{
	struct partial_xattr m;

	l->n_owns = 0;
	if (source_read_mark(l->work_fd, FILE_NAME, &m, NULL) == 1)
		mapfile_file_gone(l->map, m.file_id);
	return unlinkat(l->work_fd, FILE_NAME, 0) < 0 && errno != ENOENT ? -errno : 0;
}

int delta_layer_file_new(struct delta_layer *l, const struct delta_object *o,
			 const struct delta_base *base, struct delta_file *ret)
{
	struct stat low;
	int r = drop_file(l);

	*ret = (struct delta_file){ .l = l, .fd = -1, .size = (uint64_t)o->st.st_size };
	if (base->path)
		r = r ?: find_base(l, base, &ret->base, &low);
	if (r < 0)
		return r;
	ret->fd = openat(l->work_fd, FILE_NAME, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC,
			 0600);
	if (ret->fd < 0 || ftruncate(ret->fd, o->st.st_size) < 0)
		r = -errno;
	if (r == 0 && base->path)
		r = mark(ret, o, base, &low);
	if (r < 0)
		closep(&ret->fd);
	l->owner = ret->id;
	return r;
}

/* All parts of the file have the base of its mark. */
static int check_base(const struct partial_xattr *m, const struct delta_object *o,
		      const struct delta_base *base, const struct stat *low)
{
	if (*m->path ? strcmp(m->path, base->path) != 0
		     : !base->is_own_place || strcmp(o->path, base->path) != 0)
		return -EUCLEAN;
	return m->lower_size == (uint64_t)low->st_size && m->lower_mtime_s == low->st_mtim.tv_sec &&
			       m->lower_mtime_ns == (uint32_t)low->st_mtim.tv_nsec
		       ? 0
		       : -ESTALE;
}

static int open_again(struct delta_layer *l, const struct delta_object *o,
		      const struct delta_base *base, uint64_t at, struct delta_file *f)
{
	struct partial_xattr m;
	struct stat st, low;
	int r = fstat(f->fd, &st) < 0 ? -errno : source_read_mark(f->fd, "", &m, NULL);

	if (r >= 0 && (!S_ISREG(st.st_mode) || st.st_size != o->st.st_size || r != !!base->path))
		return -EUCLEAN;
	if (r == 1) {
		f->id = m.file_id;
		r = find_base(l, base, &f->base, &low)
			    ?: check_base(&m, o, base, &low)
				       ?: mapfile_clip(l->map, m.file_id, &f->clip);
	}
	/* Drop the bytes of an interrupted part: no checksum covers them. */
	if (r == 0 && (ftruncate(f->fd, (off_t)at) < 0 || ftruncate(f->fd, o->st.st_size) < 0))
		r = -errno;
	return r;
}

int delta_layer_file_again(struct delta_layer *l, const struct delta_object *o,
			   const struct delta_base *base, uint64_t at, struct delta_file *ret)
{
	int r;

	*ret = (struct delta_file){ .l = l, .size = (uint64_t)o->st.st_size };
	ret->fd = openat(l->work_fd, FILE_NAME, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (ret->fd < 0)
		return errno == ENOENT ? -EUCLEAN : -errno;
	r = open_again(l, o, base, at, ret);
	if (r < 0)
		closep(&ret->fd);
	l->n_owns = 0;
	l->owner = ret->id;
	return r;
}

/* Keep the blocks until the part is verified; delta_layer_file_settle records them in the map. */
static int note_own(struct delta_layer *l, blk_t blk, blk_t n, bool is_zero)
{
	struct delta_own *last = l->n_owns ? &l->owns[l->n_owns - 1] : NULL;

	if (last && last->is_zero == is_zero && last->blk + last->n == blk) {
		last->n += n;
		return 0;
	}
	if (l->n_owns == OWNS_MAX)
		return -EFBIG;
	if (array_reserve(&l->owns, &l->cap_owns, l->n_owns + 1) < 0)
		return -ENOMEM;
	l->owns[l->n_owns++] = (struct delta_own){ blk, n, is_zero };
	return 0;
}

/* Length of the run of zero blocks, or of non-zero blocks, at p. */
static size_t find_run(const char *p, size_t len, bool *ret_is_zero)
{
	size_t n = MIN(len, (size_t)BLK_BYTES);

	*ret_is_zero = buf_is_zero(p, n);
	while (n < len && buf_is_zero(p + n, MIN(len - n, (size_t)BLK_BYTES)) == *ret_is_zero)
		n += MIN(len - n, (size_t)BLK_BYTES);
	return n;
}

static bool is_of_blocks(const struct delta_file *f, uint64_t off, uint64_t len)
{
	return off % BLK_BYTES == 0 && (len % BLK_BYTES == 0 || off + len == f->size);
}

/* Blocks that are zeros stay holes. */
int delta_layer_file_write(struct delta_file *f, const void *data, size_t len, uint64_t off)
{
	const char *p = data;
	int r = 0;

	if (f->id && !is_of_blocks(f, off, len))
		return -EUCLEAN;
	while (r == 0 && len) {
		bool is_zero;
		const size_t n = find_run(p, len, &is_zero);

		r = is_zero ? 0 : file_pwrite(f->fd, p, n, (off_t)off);
		if (r == 0 && f->id && off < f->clip)
			r = note_own(f->l, off >> BLK_SHIFT, (n + BLK_BYTES - 1) >> BLK_SHIFT,
				     is_zero);
		p += n;
		off += n;
		len -= n;
	}
	return r;
}

/* Nothing of the base shows from the clip on. */
static bool is_edge(const struct delta_file *f, uint64_t off)
{
	return off % BLK_BYTES == 0 || off >= f->clip;
}

int delta_layer_file_zeros(struct delta_file *f, uint64_t off, uint64_t len)
{
	const uint64_t end = MIN(off + len, f->clip);
	const blk_t blk = off >> BLK_SHIFT, last = (end + BLK_BYTES - 1) >> BLK_SHIFT;

	if (!f->id)
		return 0;
	if (!is_edge(f, off) || !is_edge(f, off + len))
		return -EUCLEAN;
	return off < f->clip ? note_own(f->l, blk, last - blk, true) : 0;
}

int delta_layer_file_sum_base(struct delta_file *f, uint64_t off, uint64_t len,
			      struct hash_stream *sum)
{
	int r = f->base && off <= f->clip && len <= f->clip - off ? 0 : -ESTALE;

	while (r == 0 && len) {
		const size_t n = MIN(len, PIECE_BYTES);

		r = read_source(f->base, f->l->buf, n, off);
		if (r == 0)
			hash_stream_add(sum, f->l->buf, n);
		off += n;
		len -= n;
	}
	return r;
}

void delta_layer_file_close(struct delta_file *f)
{
	closep(&f->fd);
}

static int put_own(struct delta_layer *l, const struct delta_own *own)
{
	int r = 0;

	for (blk_t done = 0, n; r == 0 && done < own->n; done += n) {
		n = MIN(own->n - done, (blk_t)(PIECE_BYTES >> BLK_SHIFT));
		r = mapfile_reserve(l->map, n)
			    ?: (own->is_zero ? mapfile_own_zeros : mapfile_own)(l->map, l->owner,
										own->blk + done, n);
	}
	return r;
}

int delta_layer_file_settle(struct delta_layer *l)
{
	int r = 0;

	for (size_t k = 0; r == 0 && k < l->n_owns; k++)
		r = put_own(l, &l->owns[k]);
	l->n_owns = 0;
	return r;
}

int delta_layer_file_place(struct delta_layer *l, const struct delta_object *o)
{
	_cleanup_(closep) int fd = openat(l->work_fd, FILE_NAME, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_(place_release) struct place p = { .dirfd = -1 };
	int r = fd < 0 ? -errno : place_open(l, o->path, &p);

	r = r ?: set_attributes(fd, o);
	if (r == 0 && renameat2(l->work_fd, FILE_NAME, p.dirfd, p.name, RENAME_NOREPLACE) < 0)
		r = -errno;
	return r;
}
