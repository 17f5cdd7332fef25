// SPDX-License-Identifier: Apache-2.0
/* A directory comes after its contents, so that the receiver can set its times at once. A file with
 * much data is split into several entries, between which a stream can be resumed. */
#include "veneer/tools/delta.h"

#include "archive_fill.h"
#include "archive_library.h"
#include "delta_extents.h"
#include "delta_header.h"
#include "delta_record.h"
#include "first_names.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"
#include "veneer/base/log.h"
#include "veneer/base/minmax.h"
#include "veneer/data/read.h"
#include "veneer/layer/whiteout.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

/* clang-format off */
#define CALLS(CALL) \
	CALL(archive_entry_clear) CALL(archive_entry_free) CALL(archive_entry_new) \
	CALL(archive_entry_set_hardlink) CALL(archive_entry_set_mode) \
	CALL(archive_entry_set_mtime) CALL(archive_entry_set_pathname) \
	CALL(archive_entry_set_size) CALL(archive_entry_sparse_add_entry) \
	CALL(archive_entry_xattr_add_entry) CALL(archive_errno) CALL(archive_error_string) \
	CALL(archive_write_add_filter_none) CALL(archive_write_add_filter_zstd) \
	CALL(archive_write_close) CALL(archive_write_data) CALL(archive_write_free) \
	CALL(archive_write_header) CALL(archive_write_new) CALL(archive_write_open_fd) \
	CALL(archive_write_set_bytes_in_last_block) CALL(archive_write_set_bytes_per_block) \
	CALL(archive_write_set_format_pax) CALL(archive_write_set_options)
/* clang-format on */

#define STEP_BYTES  ((size_t)1 << 20)
#define BLOCK_BYTES (256 << 10) /* size of a write */
#define PART_BYTES  ((uint64_t)64 << 20) /* limit of data in one entry of a file */
#define HOLE_BYTES  ((size_t)256 << 20) /* size of the zeros that stand for data of the base */

ARCHIVE_LIBRARY_LOADER(CALLS)

/* A directory whose entries are being written; its own entry follows. */
struct open_dir {
	char *path; /* owned */
	const struct diff_entry *e; /* NULL: the directory itself is unchanged */
};

struct sending {
	const struct diff *d;
	const struct delta_head *head;
	const struct delta_hooks *hooks;
	struct archive *a; /* NULL: only measure */
	struct archive_entry *entry;
	struct first_names firsts;
	struct open_dir *dirs;
	size_t n, cap;
	char *buf;
	const char *hole; /* HOLE_BYTES zeros that take no memory */
	struct hash_stream *data, *base;
	uint64_t index, sum, names; /* of the next entry */
	bool has_base_sum;
	uint64_t base_sum;
	struct delta_progress p;
	bool has_said; /* the error was already logged */
};

static int check(struct sending *s, int r)
{
	if (r == ARCHIVE_OK || r == ARCHIVE_WARN)
		return 0;
	r = lib.archive_errno(s->a);
	log_error("cannot write the delta: %s",
		  r > 0 ? strerror(r) : lib.archive_error_string(s->a));
	s->has_said = true;
	return r > 0 ? -r : -EIO;
}

static void tell(struct sending *s)
{
	if (s->hooks->step)
		s->hooks->step(s->hooks->arg, &s->p);
}

/* Is this entry left out, because the receiver has it already, or nothing is written? */
static bool is_skipped(const struct sending *s)
{
	return !s->a || s->index < s->head->first;
}

/* ---- one entry ---- */

static int begin_entry(struct sending *s, const char *path)
{
	lib.archive_entry_clear(s->entry);
	lib.archive_entry_set_pathname(s->entry, path);
	return 0;
}

/* Write the header of the entry, and its record in an attribute. *sum is the sum of the header. */
static int write_header(struct sending *s, const char *path, struct delta_record *r, uint64_t *sum)
{
	_cleanup_(freep) char *text = NULL;
	int k;

	r->sum = s->sum;
	r->has_base_sum = s->has_base_sum;
	r->base_sum = s->base_sum;
	text = delta_record_format(r);
	if (!text)
		return -ENOMEM;
	lib.archive_entry_xattr_add_entry(s->entry, DELTA_RECORD_ATTR, text, strlen(text));
	k = delta_header_sum(s->entry, path, true, sum);
	return k ?: check(s, lib.archive_write_header(s->a, s->entry));
}

/* Compare the names with the token: snapshots may have been squashed meanwhile, so that the
 * receiver has entries of another list. */
static int check_names(struct sending *s)
{
	if (!s->head->first || s->index != s->head->first || s->names == s->head->names)
		return 0;
	log_error("%s: it has changed since the interrupted stream", s->head->name);
	s->has_said = true;
	return -EINVAL;
}

static int end_entry(struct sending *s, const char *path, const struct delta_record *r,
		     uint64_t header)
{
	const uint64_t data = hash_stream_take(s->data), base = hash_stream_take(s->base);

	if (!is_skipped(s)) {
		s->sum = delta_record_next_sum(s->sum, header, data, base);
		s->has_base_sum = r->is_partial;
		s->base_sum = base;
	}
	s->names = delta_record_next_names(s->names, path, r->at, r->end);
	s->index++;
	s->p.entries++;
	tell(s);
	return check_names(s);
}

/* Write an entry without data; only its record is still missing. */
static int write_simple(struct sending *s, const char *path, struct delta_record *r)
{
	uint64_t header = 0;
	int k = is_skipped(s) ? 0 : write_header(s, path, r, &header);

	return k ?: end_entry(s, path, r, header);
}

static int write_whiteout(struct sending *s, const char *of)
{
	const char *slash = strrchr(of, '/');
	const int dir = slash ? (int)(slash - of) + 1 : 0;
	_cleanup_(freep) char *path = NULL;

	if (asprintf(&path, "%.*s" WHITEOUT_PREFIX "%s", dir, of, of + dir) < 0)
		return -ENOMEM;
	begin_entry(s, path);
	lib.archive_entry_set_mode(s->entry, S_IFREG | 0600);
	lib.archive_entry_set_size(s->entry, 0);
	lib.archive_entry_set_mtime(s->entry, 0, 0);
	return write_simple(s, path, &(struct delta_record){ .end = 0 });
}

static int write_link(struct sending *s, const char *path, const char *first)
{
	begin_entry(s, path);
	lib.archive_entry_set_mode(s->entry, S_IFREG | 0600);
	lib.archive_entry_set_hardlink(s->entry, first);
	return write_simple(s, path, &(struct delta_record){ .end = 0 });
}

/* Begin the entry of an object with all its attributes. */
static int begin_object(struct sending *s, const char *path, struct image_entry *e,
			struct delta_record *record, struct stat *ret_st)
{
	_cleanup_(closep) int fd = image_open_path(s->d->full, e);
	int r = fd < 0 ? fd : image_stat(s->d->full, e, ret_st);

	begin_entry(s, path);
	lib.archive_entry_set_size(s->entry, 0);
	r = r ?: archive_fill_stat(s->entry, ret_st);
	if (r == 0 && ret_st->st_mtim.tv_sec < 0)
		record->mtime_ns = (uint32_t)ret_st->st_mtim.tv_nsec;
	return r ?: archive_fill_xattrs(s->entry, fd, ret_st, image_override(s->d->full, e), NULL);
}

/* ---- regular files ---- */

/* One entry of a file: a part of it. */
struct part {
	const struct delta_extents *x;
	struct source *src;
	uint64_t size, at, end;
	size_t first, next; /* indices of its extents */
};

/* Find the part that begins at p->end. */
static void find_part(const struct delta_extents *x, struct part *p)
{
	uint64_t data = 0;
	size_t nzeros = 0;

	p->at = p->end;
	p->first = p->next;
	while (p->next < x->n && data < PART_BYTES && nzeros < DELTA_ZEROS_MAX) {
		data += x->v[p->next].kind == DELTA_EXTENT_DATA ? x->v[p->next].len : 0;
		nzeros += x->v[p->next].kind == DELTA_EXTENT_ZEROS;
		p->end = x->v[p->next].off + x->v[p->next].len;
		p->next++;
	}
}

/* Split extents, so that none has more data than a part. */
static int split_extents(struct delta_extents *x)
{
	struct delta_extents split = { .base = x->base,
				       .base_size = x->base_size,
				       .is_copy = x->is_copy };
	int r = 0;

	for (size_t k = 0; r == 0 && k < x->n; k++) {
		struct delta_extent e = x->v[k];

		while (r == 0 && e.len) {
			const uint64_t len = e.kind == DELTA_EXTENT_DATA ? MIN(e.len, PART_BYTES)
									 : e.len;

			r = array_reserve(&split.v, &split.cap, split.n + 1);
			if (r == 0)
				split.v[split.n++] = (struct delta_extent){ e.off, len, e.kind };
			e.off += len;
			e.len -= len;
		}
	}
	split.data = x->data;
	free(x->v);
	*x = split;
	return r;
}

static int add_zeros(struct delta_record *r, const struct delta_extent *e)
{
	struct delta_range *more = realloc(r->zeros, (r->nzeros + 1) * sizeof(*more));

	if (!more)
		return -ENOMEM;
	r->zeros = more;
	r->zeros[r->nzeros++] = (struct delta_range){ e->off, e->len };
	return 0;
}

/* Describe the data of the entry, and the zeros of a partial file. */
static int fill_part(struct sending *s, const struct part *p, struct delta_record *r)
{
	uint64_t data = 0;
	int k = 0;

	for (size_t i = p->first; k == 0 && i < p->next; i++) {
		const struct delta_extent *e = &p->x->v[i];

		if (e->kind == DELTA_EXTENT_DATA) {
			lib.archive_entry_sparse_add_entry(s->entry, (la_int64_t)e->off,
							   (la_int64_t)e->len);
			data += e->len;
		}
		if (e->kind == DELTA_EXTENT_ZEROS && r->is_partial)
			k = add_zeros(r, e);
	}
	if (p->size && !data)
		lib.archive_entry_sparse_add_entry(s->entry, (la_int64_t)p->size, 0);
	return k;
}

static int write_bytes(struct sending *s, const char *p, uint64_t len)
{
	while (len) {
		const size_t n = p == s->hole ? MIN(len, HOLE_BYTES) : len;
		const la_ssize_t done = lib.archive_write_data(s->a, p, n);

		if (done <= 0)
			return check(s, ARCHIVE_FATAL);
		len -= (uint64_t)done;
		p += p == s->hole ? 0 : done;
	}
	return 0;
}

static int send_extent(struct sending *s, const struct part *p, const struct delta_extent *e)
{
	int r = 0;

	for (uint64_t off = e->off; r == 0 && off < e->off + e->len;) {
		const size_t n = MIN(e->off + e->len - off, STEP_BYTES);

		r = read_source(p->src, s->buf, n, off);
		if (r < 0)
			break;
		hash_stream_add(e->kind == DELTA_EXTENT_DATA ? s->data : s->base, s->buf, n);
		if (e->kind == DELTA_EXTENT_DATA) {
			s->p.bytes += n;
			r = write_bytes(s, s->buf, n);
		}
		tell(s);
		off += n;
	}
	/* The library leaves these zeros out, as they are not in a range. */
	return r == 0 && e->kind == DELTA_EXTENT_BASE ? write_bytes(s, s->hole, e->len) : r;
}

static int send_part(struct sending *s, const struct part *p)
{
	int r = p->at ? write_bytes(s, s->hole, p->at) : 0;

	for (size_t k = p->first; r == 0 && k < p->next; k++)
		r = p->x->v[k].kind == DELTA_EXTENT_ZEROS ? write_bytes(s, s->hole, p->x->v[k].len)
							  : send_extent(s, p, &p->x->v[k]);
	return r;
}

static bool is_covered(const struct sending *s)
{
	for (size_t k = 0; k < s->n; k++)
		if (s->dirs[k].e && s->dirs[k].e->is_opaque)
			return true;
	return false;
}

static int write_part(struct sending *s, const struct diff_entry *e, const struct part *p)
{
	struct delta_record r = { .is_partial = p->x->base != NULL,
				  .is_copy = p->x->base && p->x->is_copy,
				  .base_size = p->x->base_size,
				  .at = p->at,
				  .end = p->end };
	uint64_t header = 0;
	struct stat st;
	int k = 0;

	if (!is_skipped(s)) {
		k = begin_object(s, e->path, e->image_entry, &r, &st);
		lib.archive_entry_set_size(s->entry, (la_int64_t)p->size);
		r.has_links = k == 0 && st.st_nlink > 1;
		k = k ?: fill_part(s, p, &r);
		if (p->x->base && (r.is_copy || strcmp(p->x->base, e->path) != 0 || is_covered(s)))
			lib.archive_entry_xattr_add_entry(s->entry, DELTA_BASE_ATTR, p->x->base,
							  strlen(p->x->base));
		k = k ?: write_header(s, e->path, &r, &header);
		k = k ?: send_part(s, p);
	} else if (!s->a) {
		for (size_t i = p->first; i < p->next; i++)
			s->p.bytes += p->x->v[i].kind == DELTA_EXTENT_DATA ? p->x->v[i].len : 0;
	}
	k = k ?: end_entry(s, e->path, &r, header);
	delta_record_release(&r);
	return k;
}

static int write_file(struct sending *s, const struct diff_entry *e, uint64_t size)
{
	_cleanup_(delta_extents_release) struct delta_extents x = { 0 };
	struct part p = { .x = &x, .size = size };
	int r = image_source(s->d->full, e->image_entry, &p.src);

	r = r ?: delta_extents_find(s->d, p.src, e->path, size, &x);
	r = r ?: split_extents(&x);
	s->p.whole += size;
	do {
		find_part(&x, &p);
		r = r ?: write_part(s, e, &p);
	} while (r == 0 && p.end < size);
	return r;
}

/* ---- objects ---- */

static int write_special(struct sending *s, const struct diff_entry *e)
{
	struct delta_record r = { .end = 0 };
	struct stat st;
	int k = begin_object(s, e->path, e->image_entry, &r, &st);

	if (k < 0)
		return k;
	/* A tar has no sockets. */
	r.is_socket = S_ISSOCK(st.st_mode);
	if (r.is_socket)
		lib.archive_entry_set_mode(s->entry, S_IFREG | (st.st_mode & 07777));
	if (S_ISLNK(st.st_mode))
		k = archive_fill_target(s->entry, s->d->full, e->image_entry);
	return k ?: write_simple(s, e->path, &r);
}

static int write_object(struct sending *s, const struct diff_entry *e)
{
	const char *first = NULL;
	struct stat st;
	int r = image_stat(s->d->full, e->image_entry, &st);

	if (r == 0 && st.st_nlink > 1)
		first = first_names_of(&s->firsts, e, &st);
	if (r < 0)
		return r;
	return first		     ? write_link(s, e->path, first)
	       : S_ISREG(st.st_mode) ? write_file(s, e, (uint64_t)st.st_size)
				     : write_special(s, e);
}

/* ---- directories ---- */

static int write_dir(struct sending *s, const struct open_dir *dir)
{
	struct delta_record r = { .is_same = !dir->e, .is_opaque = dir->e && dir->e->is_opaque };
	struct stat st;
	int k = 0;

	if (dir->e) {
		k = begin_object(s, dir->path, dir->e->image_entry, &r, &st);
	} else {
		begin_entry(s, dir->path);
		lib.archive_entry_set_mode(s->entry, S_IFDIR | 0700);
		lib.archive_entry_set_mtime(s->entry, 0, 0);
	}
	return k ?: write_simple(s, dir->path, &r);
}

/* Write and leave the directories that do not contain the path. */
static int leave_dirs(struct sending *s, const char *path)
{
	int r = 0;

	while (r == 0 && s->n) {
		struct open_dir *top = &s->dirs[s->n - 1];
		const size_t len = strlen(top->path);

		if (!strncmp(path, top->path, len) && path[len] == '/')
			break;
		r = write_dir(s, top);
		free(top->path);
		s->n--;
	}
	return r;
}

static int enter_dir(struct sending *s, const char *path, size_t len, const struct diff_entry *e)
{
	if (array_reserve(&s->dirs, &s->cap, s->n + 1) < 0)
		return -ENOMEM;
	s->dirs[s->n] = (struct open_dir){ strndup(path, len), e };
	return s->dirs[s->n].path ? (s->n++, 0) : -ENOMEM;
}

/* Enter the directories above the path that have not changed themselves. */
static int enter_dirs(struct sending *s, const char *path)
{
	const char *at = path + (s->n ? strlen(s->dirs[s->n - 1].path) + 1 : 0);
	int r = 0;

	while (r == 0 && (at = strchr(at, '/'))) {
		r = enter_dir(s, path, (size_t)(at - path), NULL);
		at++;
	}
	return r;
}

static int write_entry(struct sending *s, const struct diff_entry *e)
{
	int r;

	if (e->kind == 'D' && e->is_implied)
		return 0;
	r = leave_dirs(s, e->path) ?: enter_dirs(s, e->path);
	if (r < 0)
		return r;
	if (e->kind == 'D')
		return write_whiteout(s, e->path);
	return e->type == DT_DIR ? enter_dir(s, e->path, strlen(e->path), e) : write_object(s, e);
}

/* ---- all ---- */

/* The order of characters: the end of a path, the slash, then all bytes of names. */
static int rank(unsigned char c)
{
	return c == '/' ? 1 : c ? c + 1 : 0;
}

/* Sort the contents of a directory directly after it. */
static int by_path(const void *a, const void *b)
{
	const unsigned char *x = (const void *)(*(const struct diff_entry *const *)a)->path;
	const unsigned char *y = (const void *)(*(const struct diff_entry *const *)b)->path;

	while (*x && *x == *y) {
		x++;
		y++;
	}
	return rank(*x) - rank(*y);
}

static int write_entries(struct sending *s)
{
	const struct diff *d = s->d;
	_cleanup_(freep) const struct diff_entry **sorted = calloc(d->n + 1, sizeof(*sorted));
	int r = sorted ? 0 : -ENOMEM;

	for (size_t k = 0; r == 0 && k < d->n; k++)
		sorted[k] = &d->entries[k];
	if (r == 0)
		qsort(sorted, d->n, sizeof(*sorted), by_path);
	for (size_t k = 0; r == 0 && k < d->n; k++) {
		r = write_entry(s, sorted[k]);
		if (r < 0 && !s->has_said)
			log_error("%s/%s: %s", d->upper->path, sorted[k]->path,
				  strerror(r == -EUCLEAN ? EIO : -r));
	}
	return r ?: leave_dirs(s, "");
}

static int write_root(struct sending *s)
{
	struct delta_record r = { .end = 0 };
	struct stat st;
	int k = begin_object(s, ".", image_root(s->d->full), &r, &st);

	return k ?: write_simple(s, ".", &r);
}

static int write_text(struct sending *s, const char *path, char *text)
{
	const size_t len = text ? strlen(text) : 0;
	int r = text ? begin_entry(s, path) : -ENOMEM;

	if (r == 0 && s->a) {
		lib.archive_entry_set_mode(s->entry, S_IFREG | 0600);
		lib.archive_entry_set_size(s->entry, (la_int64_t)len);
		lib.archive_entry_set_mtime(s->entry, 0, 0);
		r = check(s, lib.archive_write_header(s->a, s->entry)) ?: write_bytes(s, text, len);
	}
	free(text);
	return r;
}

static int write_all(struct sending *s)
{
	int r = write_text(s, DELTA_HEAD_PATH, delta_record_format_head(s->head));

	s->sum = s->head->sum;
	r = r ?: write_entries(s) ?: write_root(s);
	return r
		       ?: write_text(s, DELTA_END_PATH,
				     delta_record_format_end(
					     &(struct delta_end){ .entries = s->index,
								  .sum = s->sum,
								  .has_base_sum = s->has_base_sum,
								  .base_sum = s->base_sum }));
}

static int open_archive(struct sending *s, bool is_compressed, int fd)
{
	int r;

	s->a = lib.archive_write_new();
	if (!s->a)
		return -ENOMEM;
	r = check(s, lib.archive_write_set_format_pax(s->a));
	r = r ?: check(s, lib.archive_write_set_options(s->a, "xattrheader=SCHILY"));
	r = r
		    ?: check(s, is_compressed ? lib.archive_write_add_filter_zstd(s->a)
					      : lib.archive_write_add_filter_none(s->a));
	r = r ?: check(s, lib.archive_write_set_bytes_per_block(s->a, BLOCK_BYTES));
	r = r ?: check(s, lib.archive_write_set_bytes_in_last_block(s->a, 1));
	return r ?: check(s, lib.archive_write_open_fd(s->a, fd));
}

static int open_all(struct sending *s, bool is_compressed, int fd)
{
	void *hole = mmap(NULL, HOLE_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			  -1, 0);

	s->hole = hole == MAP_FAILED ? NULL : hole;
	s->entry = lib.archive_entry_new();
	s->buf = malloc(STEP_BYTES);
	s->data = hash_stream_new();
	s->base = hash_stream_new();
	if (!s->hole || !s->entry || !s->buf || !s->data || !s->base)
		return -ENOMEM;
	return fd < 0 ? 0 : open_archive(s, is_compressed, fd);
}

/* As in diff_tar.c: an unfinished archive stays until the process ends, so that it does not look
 * complete. */
static struct archive *volatile unfinished;

static void release(struct sending *s, bool is_whole)
{
	while (s->n)
		free(s->dirs[--s->n].path);
	free(s->dirs);
	first_names_release(&s->firsts);
	if (s->a && is_whole)
		lib.archive_write_free(s->a);
	else
		unfinished = s->a;
	lib.archive_entry_free(s->entry);
	hash_stream_free(s->data);
	hash_stream_free(s->base);
	free(s->buf);
	if (s->hole)
		munmap((void *)(uintptr_t)s->hole, HOLE_BYTES);
}

int delta_send(const struct diff *d, const struct delta_head *head, bool is_compressed, int fd,
	       const struct delta_hooks *hooks, struct delta_progress *ret)
{
	struct sending s = { .d = d, .head = head, .hooks = hooks };
	int r = load();

	*ret = s.p;
	if (r < 0)
		return r;
	r = open_all(&s, is_compressed, fd);
	r = r ?: write_all(&s);
	if (r == 0 && s.index < head->first) {
		log_error("%s has fewer entries than the interrupted stream", d->upper->path);
		r = -EINVAL;
	}
	if (r == 0 && s.a)
		r = check(&s, lib.archive_write_close(s.a));
	*ret = s.p;
	release(&s, r == 0);
	return r;
}
