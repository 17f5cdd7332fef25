// SPDX-License-Identifier: Apache-2.0
/* An entry is verified when the record of the next one has the sum of all before it. Only then is
 * the object made. If a stream breaks, the layer has nothing of the last entry, except data of a
 * file without a name. So a stream is resumed with that entry. */
#include "veneer/tools/delta.h"

#include "archive_library.h"
#include "delta_header.h"
#include "delta_record.h"
#include "entry_attrs.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/base/minmax.h"
#include "veneer/sys/path.h"

#include <archive.h>
#include <archive_entry.h>
#include <string.h>

/* clang-format off */
#define CALLS(CALL) \
	CALL(archive_entry_clone) CALL(archive_entry_filetype) CALL(archive_entry_free) \
	CALL(archive_entry_gid) CALL(archive_entry_hardlink) CALL(archive_entry_mode) \
	CALL(archive_entry_mtime) CALL(archive_entry_mtime_nsec) CALL(archive_entry_pathname) \
	CALL(archive_entry_rdev) CALL(archive_entry_size) CALL(archive_entry_sparse_next) \
	CALL(archive_entry_sparse_reset) CALL(archive_entry_symlink) CALL(archive_entry_uid) \
	CALL(archive_entry_xattr_next) CALL(archive_entry_xattr_reset) CALL(archive_errno) \
	CALL(archive_error_string) CALL(archive_read_data_block) CALL(archive_read_free) \
	CALL(archive_read_new) CALL(archive_read_next_header) CALL(archive_read_open) \
	CALL(archive_read_support_filter_zstd) CALL(archive_read_support_format_tar) \
	CALL(archive_set_error)
/* clang-format on */

#define STEP_BYTES ((size_t)1 << 20)

ARCHIVE_LIBRARY_LOADER(CALLS)

/* One entry of the stream. */
struct entry {
	struct archive_entry *e; /* owned; NULL: unused */
	char *path; /* owned; "." is the root */
	struct delta_record r;
	struct delta_object o;
	struct delta_xattr *xattrs; /* owned, with their names */
	size_t cap;
	char *base; /* owned; NULL: same as path */
	uint64_t header;
};

struct receiving {
	int fd;
	bool is_at_end; /* the end of the data of fd was reached */
	char *in; /* buffer for reading it */
	struct archive *a;
	struct archive_entry *e; /* owned by the library */
	const struct delta_hooks *hooks;
	struct delta_layer *layer;
	struct hash_stream *data, *base;
	char *buf;
	const char *block; /* rest of the library's block ... */
	size_t nblock;
	uint64_t block_off; /* ... and its place in the file */
	struct entry last; /* the last received entry, not verified yet */
	uint64_t index, sum, names; /* of the next entry */
	bool has_base; /* the last entry has a base */
	uint64_t base_sum; /* sum of the base data that was read */
	bool is_ended; /* the end record was received */
	char *unfinished; /* path of the file whose next part is expected; NULL: none */
	uint64_t unfinished_at;
	struct delta_received *ret;
};

static void entry_release(struct entry *n)
{
	for (size_t k = 0; k < n->o.nxattrs; k++)
		free((char *)(uintptr_t)n->xattrs[k].name);
	free(n->path);
	free(n->base);
	free(n->xattrs);
	delta_record_release(&n->r);
	if (n->e)
		lib.archive_entry_free(n->e);
	*n = (struct entry){ .e = NULL };
}

/* Log the fault, and return -EUCLEAN. */
static int refuse(const struct receiving *v, const char *path, const char *why)
{
	log_error("entry %llu of the delta, %s: %s", (unsigned long long)v->index, path, why);
	return -EUCLEAN;
}

/* Translate the result of a call of the library. */
static int check(struct receiving *v, int r)
{
	if (r == ARCHIVE_OK || r == ARCHIVE_WARN)
		return 0;
	if (v->is_at_end)
		return -EPIPE;
	r = lib.archive_errno(v->a);
	log_error("cannot read the delta: %s", lib.archive_error_string(v->a) ?: "it is damaged");
	return r == ENOMEM ? -ENOMEM : -EUCLEAN;
}

/* ---- input ---- */

static la_ssize_t read_more(struct archive *a, void *arg, const void **ret)
{
	struct receiving *v = arg;
	ssize_t n;

	do
		n = read(v->fd, v->in, STEP_BYTES);
	while (n < 0 && errno == EINTR);
	*ret = v->in;
	/* A broken connection counts as the end, too. */
	v->is_at_end |= n <= 0;
	if (n < 0)
		lib.archive_set_error(a, errno, "%s", strerror(errno));
	return n;
}

/* Read the next header. 1; 0: there is none; -errno. */
static int next_header(struct receiving *v)
{
	int r = lib.archive_read_next_header(v->a, &v->e);

	v->nblock = 0;
	if (v->is_ended && (r == ARCHIVE_EOF || v->is_at_end))
		return 0;
	return r == ARCHIVE_EOF ? -EPIPE : check(v, r) ?: 1;
}

/* Read exactly len bytes at off of the entry's file. */
static int read_bytes(struct receiving *v, char *to, size_t len, uint64_t off)
{
	while (len) {
		size_t n;

		if (!v->nblock) {
			const void *p;
			la_int64_t at;
			int r = lib.archive_read_data_block(v->a, &p, &v->nblock, &at);

			if (r != ARCHIVE_OK)
				return r == ARCHIVE_EOF ? -EUCLEAN : check(v, r) ?: -EUCLEAN;
			v->block = p;
			v->block_off = (uint64_t)at;
			continue;
		}
		if (v->block_off != off)
			return -EUCLEAN;
		n = MIN(len, v->nblock);
		memcpy(to, v->block, n);
		v->block += n;
		v->nblock -= n;
		v->block_off += n;
		to += n;
		off += n;
		len -= n;
	}
	return 0;
}

/* Read the whole entry as text. */
static int read_text(struct receiving *v, char **ret, size_t *ret_len)
{
	const la_int64_t size = lib.archive_entry_size(v->e);
	int r;

	if (size < 0 || size > DELTA_TEXT_MAX)
		return -EUCLEAN;
	*ret_len = (size_t)size;
	*ret = malloc((size_t)size + 1);
	if (!*ret)
		return -ENOMEM;
	r = read_bytes(v, *ret, (size_t)size, 0);
	return r;
}

/* ---- parsing an entry ---- */

/* The path must be plain, and no component may have a reserved name of union file systems.
 * Exception: the last component of a whiteout, which may also be longer than a name. */
static bool is_allowed(const char *path, bool may_be_whiteout)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	const bool is_whiteout = may_be_whiteout && whiteout_name_kind(name) == WHITEOUT_HIDES;
	_cleanup_(freep) char *plain = NULL;

	if (asprintf(&plain, "%.*s%s", (int)(name - path), path,
		     is_whiteout ? name + WHITEOUT_PREFIX_LEN : name) < 0)
		return false;
	if (!path_is_plain(plain, strlen(plain)))
		return false;
	for (char *at = plain, *next; at; at = next) {
		next = strchr(at, '/');
		if (next)
			*next++ = '\0';
		if (whiteout_name_kind(at) != WHITEOUT_PLAIN)
			return false;
	}
	return true;
}

static int take_path(struct receiving *v, struct entry *n)
{
	size_t len;

	n->path = strdup(lib.archive_entry_pathname(n->e) ?: "");
	if (!n->path)
		return -ENOMEM;
	len = strlen(n->path);
	if (len > 1 && n->path[len - 1] == '/')
		n->path[--len] = '\0';
	if (strcmp(n->path, ".") != 0 && !is_allowed(n->path, true))
		return refuse(v, n->path, "its path leads elsewhere");
	return 0;
}

static int put_xattr(struct receiving *v, struct entry *n, const struct delta_xattr *x)
{
	char *name = strdup(x->name);

	if (!name || array_reserve(&n->xattrs, &n->cap, n->o.nxattrs + 1) < 0) {
		free(name);
		return -ENOMEM;
	}
	delta_header_decode_name(name);
	n->xattrs[n->o.nxattrs++] = (struct delta_xattr){ name, x->value, x->size };
	return entry_attrs_counts(name)
		       ? 0
		       : refuse(v, n->path, "it has an attribute that no delta may have");
}

static int take_xattr(struct receiving *v, struct entry *n, const struct delta_xattr *x,
		      bool *has_record)
{
	if (!strcmp(x->name, DELTA_RECORD_ATTR)) {
		int r = *has_record ? -EUCLEAN : delta_record_parse(x->value, x->size, &n->r);

		*has_record = r == 0;
		return r == -EUCLEAN ? refuse(v, n->path, "its record is damaged") : r;
	}
	if (!strcmp(x->name, DELTA_BASE_ATTR)) {
		if (n->base || !path_is_plain(x->value, x->size) || memchr(x->value, '\0', x->size))
			return refuse(v, n->path, "the path of its base leads elsewhere");
		n->base = strndup(x->value, x->size);
		return n->base ? 0 : -ENOMEM;
	}
	return put_xattr(v, n, x);
}

static int take_xattrs(struct receiving *v, struct entry *n)
{
	bool has_record = false;
	struct delta_xattr x;
	int r = 0;

	lib.archive_entry_xattr_reset(n->e);
	while (r == 0 &&
	       lib.archive_entry_xattr_next(n->e, &x.name, &x.value, &x.size) == ARCHIVE_OK)
		r = take_xattr(v, n, &x, &has_record);
	n->o.xattrs = n->xattrs;
	return r == 0 && !has_record ? refuse(v, n->path, "it has no record") : r;
}

/* The caller releases n, also on failure. */
static int take_entry(struct receiving *v, struct entry *n)
{
	int r;

	n->e = lib.archive_entry_clone(v->e);
	r = n->e ? take_path(v, n) ?: take_xattrs(v, n) : -ENOMEM;
	if (r < 0)
		return r;
	n->o.path = n->path;
	n->o.st = (struct stat){
		.st_mode = lib.archive_entry_mode(n->e),
		.st_uid = (uid_t)lib.archive_entry_uid(n->e),
		.st_gid = (gid_t)lib.archive_entry_gid(n->e),
		.st_size = (off_t)lib.archive_entry_size(n->e),
		.st_rdev = lib.archive_entry_rdev(n->e),
		.st_mtim = { lib.archive_entry_mtime(n->e),
			     n->r.mtime_ns ?: lib.archive_entry_mtime_nsec(n->e) },
	};
	n->o.target = lib.archive_entry_symlink(n->e);
	/* An id of -1 would leave the owner unchanged. */
	if (n->o.st.st_size < 0 || lib.archive_entry_uid(n->e) != n->o.st.st_uid ||
	    lib.archive_entry_gid(n->e) != n->o.st.st_gid || n->o.st.st_uid == (uid_t)-1 ||
	    n->o.st.st_gid == (gid_t)-1)
		return refuse(v, n->path, "its size or owner is invalid");
	return delta_header_sum(n->e, n->path, false, &n->header);
}

/* Verify that all entries before have arrived, and on the sender's base. */
static int check_sums(struct receiving *v, const char *path, uint64_t sum, bool has_base_sum,
		      uint64_t base_sum)
{
	if (v->has_base != has_base_sum)
		return refuse(v, path, "it contradicts the entry before it");
	if (v->has_base && v->base_sum != base_sum) {
		log_error("/%s: its base, /%s, has other bytes here", v->last.path ?: "",
			  v->last.base ?: v->last.path ?: "");
		return -ESTALE;
	}
	if (sum != v->sum)
		return refuse(v, path, "the sum of all before it differs: something was lost");
	v->ret->entries = v->index;
	v->ret->sum = v->sum;
	v->ret->names = v->names;
	return 0;
}

/* ---- regular files ---- */

/* A walk over the part of a file that an entry has. */
struct walk {
	struct receiving *v;
	const struct entry *n;
	struct delta_file *f;
	uint64_t at, off, end; /* off, end: the next range of data */
	size_t zero; /* index of the next range of zeros */
};

static int receive_data(struct walk *w)
{
	struct receiving *v = w->v;
	int r = 0;

	while (r == 0 && w->at < w->end) {
		const size_t n = MIN(w->end - w->at, STEP_BYTES);

		r = read_bytes(v, v->buf, n, w->at);
		if (r < 0)
			break;
		hash_stream_add(v->data, v->buf, n);
		r = delta_layer_file_write(w->f, v->buf, n, w->at);
		w->at += n;
		v->ret->p.bytes += n;
		if (v->hooks->step)
			v->hooks->step(v->hooks->arg, &v->ret->p);
	}
	return r;
}

/* Handle the gap up to end between ranges of data. */
static int receive_gap(struct walk *w, uint64_t end)
{
	const struct delta_record *rec = &w->n->r;
	int r = 0;

	if (!rec->is_partial) {
		w->at = end;
		return 0;
	}
	while (r == 0 && w->at < end) {
		const struct delta_range *z = w->zero < rec->nzeros ? &rec->zeros[w->zero] : NULL;
		const uint64_t stop = z ? MIN(z->off, end) : end;

		if (z && z->off == w->at) {
			w->at += z->len;
			w->zero++;
			r = w->at > end ? -EUCLEAN : delta_layer_file_zeros(w->f, z->off, z->len);
		} else if (stop > w->at) {
			r = delta_layer_file_sum_base(w->f, w->at, stop - w->at, w->v->base);
			w->at = stop;
		} else {
			return -EUCLEAN;
		}
	}
	return r;
}

/* Get the next range of data. False: there is none. */
static bool next_range(struct walk *w)
{
	la_int64_t off, len;

	if (lib.archive_entry_sparse_next(w->v->e, &off, &len) != ARCHIVE_OK)
		return false;
	w->off = (uint64_t)off;
	w->end = (uint64_t)off + (uint64_t)len;
	return true;
}

static int receive_ranges(struct walk *w)
{
	const struct delta_record *rec = &w->n->r;
	int n = lib.archive_entry_sparse_reset(w->v->e), r = 0;

	w->at = rec->at;
	if (!n) {
		w->off = rec->at;
		w->end = rec->end;
		return receive_data(w);
	}
	while (r == 0 && next_range(w)) {
		/* A file without data has an empty range at its end. */
		if (w->off == w->end)
			continue;
		if (w->off < w->at || w->end > rec->end || w->end < w->off)
			return -EUCLEAN;
		r = receive_gap(w, w->off) ?: receive_data(w);
	}
	return r ?: receive_gap(w, rec->end);
}

/* Parts must follow one another, and the last one must end with the file. */
static int check_part(const struct receiving *v, const struct entry *n)
{
	const struct delta_record *r = &n->r;
	const uint64_t size = (uint64_t)n->o.st.st_size;

	if (r->is_copy && (!r->is_partial || !n->base))
		return refuse(v, n->path, "it is a copy without a base");

	if (r->end > size || (r->end == r->at && size))
		return refuse(v, n->path, "it has no part of its file");
	if (r->at ? !v->unfinished || strcmp(v->unfinished, n->path) != 0 ||
			    v->unfinished_at != r->at
		  : v->unfinished != NULL)
		return refuse(v, n->path, "a part of a file is missing");
	return 0;
}

static int note_part(struct receiving *v, const struct entry *n)
{
	free(v->unfinished);
	v->unfinished = NULL;
	if (n->r.end == (uint64_t)n->o.st.st_size)
		return 0;
	v->unfinished = strdup(n->path);
	v->unfinished_at = n->r.end;
	return v->unfinished ? 0 : -ENOMEM;
}

static int receive_file(struct receiving *v, const struct entry *n)
{
	const struct delta_base base = { .path = !n->r.is_partial ? NULL : n->base ?: n->path,
					 .size = n->r.base_size,
					 .is_own_place = !n->base && !n->r.has_links,
					 .is_copy = n->r.is_copy };
	struct delta_file f;
	struct walk w = { .v = v, .n = n, .f = &f };
	int r = check_part(v, n);

	if (r < 0)
		return r;
	r = n->r.at ? delta_layer_file_again(v->layer, &n->o, &base, n->r.at, &f)
		    : delta_layer_file_new(v->layer, &n->o, &base, &f);
	if (r == -ESTALE)
		log_error("/%s: its base, /%s, is not there as it was", n->path, base.path ?: "");
	if (r == -EUCLEAN)
		return refuse(v, n->path, "the part before is not of such a file");
	if (r < 0)
		return r;
	r = receive_ranges(&w);
	if (r == -EUCLEAN)
		refuse(v, n->path, "its data does not match its record");
	else if (r == -ESTALE)
		log_error("/%s: its base, /%s, is shorter than it was", n->path, base.path ?: "");
	delta_layer_file_close(&f);
	return r ?: note_part(v, n);
}

/* ---- verified entries ---- */

static int make_whiteout(struct receiving *v, const struct entry *n, const char *name)
{
	_cleanup_(freep) char *path = NULL;

	if (asprintf(&path, "%.*s%s", (int)(name - n->path), n->path, name + WHITEOUT_PREFIX_LEN) <
	    0)
		return -ENOMEM;
	return delta_layer_whiteout(v->layer, path);
}

static int make_link(struct receiving *v, const struct entry *n, const char *first)
{
	int r = delta_layer_link(v->layer, n->path, first);

	return r == -EUCLEAN ? refuse(v, n->path, "it links to an object that cannot have links")
			     : r;
}

static int make_dir(struct receiving *v, const struct entry *n)
{
	int r;

	if (!n->r.is_same)
		return delta_layer_directory(v->layer, &n->o, n->r.is_opaque);
	r = delta_layer_same_directory(v->layer, n->path);
	if (r == -ESTALE)
		log_error("/%s: there is no such directory in the layers below", n->path);
	return r;
}

static int make_file(struct receiving *v, const struct entry *n)
{
	int r = delta_layer_file_settle(v->layer);

	return r ?: v->unfinished ? r : delta_layer_file_place(v->layer, &n->o);
}

static const char *name_of(const struct entry *n)
{
	const char *slash = strrchr(n->path, '/');

	return slash ? slash + 1 : n->path;
}

static int make(struct receiving *v, const struct entry *n)
{
	const char *first = lib.archive_entry_hardlink(n->e), *name = name_of(n);

	if (whiteout_name_kind(name) != WHITEOUT_PLAIN)
		return make_whiteout(v, n, name);
	if (first)
		return make_link(v, n, first);
	if (S_ISDIR(n->o.st.st_mode))
		return make_dir(v, n);
	return S_ISREG(n->o.st.st_mode) ? make_file(v, n) : delta_layer_special(v->layer, &n->o);
}

/* ---- entries ---- */

static bool is_file(const struct entry *n)
{
	return whiteout_name_kind(name_of(n)) == WHITEOUT_PLAIN && S_ISREG(n->o.st.st_mode) &&
	       !lib.archive_entry_hardlink(n->e);
}

static int check_object(const struct receiving *v, struct entry *n)
{
	if (n->r.is_socket && S_ISREG(n->o.st.st_mode))
		n->o.st.st_mode = S_IFSOCK | (n->o.st.st_mode & 07777);
	if (whiteout_is_device(n->o.st.st_mode, n->o.st.st_rdev))
		return refuse(v, n->path, "it is a whiteout that is a device");
	switch (n->o.st.st_mode & S_IFMT) {
	case S_IFDIR:
	case S_IFREG:
	case S_IFLNK:
	case S_IFCHR:
	case S_IFBLK:
	case S_IFIFO:
	case S_IFSOCK:
		return 0;
	default:
		return refuse(v, n->path, "a layer cannot have its type");
	}
}

/* Check the entry by itself. */
static int check_entry(const struct receiving *v, struct entry *n)
{
	const char *first = lib.archive_entry_hardlink(n->e);
	const mode_t type = n->o.st.st_mode & S_IFMT;

	if (!strcmp(n->path, ".") && (first || type != S_IFDIR || n->r.is_same))
		return refuse(v, n->path, "the root is no directory");
	if (whiteout_name_kind(name_of(n)) != WHITEOUT_PLAIN)
		return first || n->o.st.st_size || type != S_IFREG
			       ? refuse(v, n->path, "a file may not have its name")
			       : 0;
	if (first)
		return is_allowed(first, false)
			       ? 0
			       : refuse(v, n->path, "it is a link that leads elsewhere");
	return check_object(v, n);
}

/* A resumed stream may begin within a file. */
static int resume_part(struct receiving *v, const struct entry *n)
{
	if (!v->ret->head.first || v->index != v->ret->head.first || !n->r.at || !is_file(n))
		return 0;
	v->unfinished = strdup(n->path);
	v->unfinished_at = n->r.at;
	return v->unfinished ? 0 : -ENOMEM;
}

static int say(const struct entry *n, int r)
{
	if (r < 0 && r != -EUCLEAN && r != -ESTALE && r != -EPIPE)
		log_error("/%s: %s", n->path, strerror(-r));
	return r;
}

/* The last entry is verified: make its object. */
static int make_last(struct receiving *v)
{
	int r = v->last.e ? say(&v->last, make(v, &v->last)) : 0;

	entry_release(&v->last);
	return r;
}

static int begin_entry(struct receiving *v, struct entry *n)
{
	int r = check_entry(v, n) ?: resume_part(v, n);

	if (r == 0 && v->unfinished && (!is_file(n) || strcmp(v->unfinished, n->path) != 0))
		return refuse(v, n->path, "a part of a file is missing");
	return r ?: is_file(n) ? receive_file(v, n) : 0;
}

static void take_sums(struct receiving *v, const struct entry *n)
{
	const uint64_t data = hash_stream_take(v->data);

	v->base_sum = hash_stream_take(v->base);
	v->has_base = n->r.is_partial;
	v->sum = delta_record_next_sum(v->sum, n->header, data, v->base_sum);
	v->names = delta_record_next_names(v->names, n->path, n->r.at, n->r.end);
	v->index++;
	v->ret->p.entries++;
	if (v->hooks->step)
		v->hooks->step(v->hooks->arg, &v->ret->p);
}

static int receive_entry(struct receiving *v)
{
	struct entry n = { .e = NULL };
	int r = take_entry(v, &n);

	r = r ?: check_sums(v, n.path, n.r.sum, n.r.has_base_sum, n.r.base_sum);
	r = r ?: make_last(v);
	r = r ?: say(&n, begin_entry(v, &n));
	if (r < 0) {
		entry_release(&n);
		return r;
	}
	take_sums(v, &n);
	v->last = n;
	return 0;
}

/* ---- all ---- */

static bool is_at(const struct receiving *v, const char *path)
{
	const char *is = lib.archive_entry_pathname(v->e);

	return is && !strcmp(is, path) && lib.archive_entry_filetype(v->e) == AE_IFREG;
}

static int receive_head(struct receiving *v)
{
	_cleanup_(freep) char *text = NULL;
	size_t len = 0;
	int r = next_header(v);

	if (r < 0)
		return r;
	r = is_at(v, DELTA_HEAD_PATH) ? read_text(v, &text, &len) : -EUCLEAN;
	r = r ?: delta_record_parse_head(text, len, &v->ret->head);
	if (r == -EUCLEAN)
		log_error("this is no delta of veneer");
	else if (r == -EPROTO)
		log_error("a newer version has written this delta");
	v->index = v->ret->entries = v->ret->head.first;
	v->sum = v->ret->sum = v->ret->head.sum;
	v->names = v->ret->names = v->ret->head.names;
	return r;
}

static int receive_end(struct receiving *v)
{
	_cleanup_(freep) char *text = NULL;
	struct delta_end end;
	size_t len = 0;
	int r = read_text(v, &text, &len) ?: delta_record_parse_end(text, len, &end);

	if (r == 0 && (end.entries != v->index || v->unfinished))
		r = -EUCLEAN;
	if (r == -EUCLEAN)
		return refuse(v, DELTA_END_PATH, "entries are missing");
	v->is_ended = true;
	r = r ?: check_sums(v, DELTA_END_PATH, end.sum, end.has_base_sum, end.base_sum);
	return r ?: make_last(v);
}

static int receive_all(struct receiving *v)
{
	int r = 1;

	while ((r = next_header(v)) == 1) {
		if (v->is_ended)
			return refuse(v, DELTA_END_PATH, "data follows the end");
		r = is_at(v, DELTA_END_PATH) ? receive_end(v) : receive_entry(v);
		if (r < 0)
			return r;
	}
	return r;
}

static int open_archive(struct receiving *v)
{
	int r;

	v->in = malloc(STEP_BYTES);
	v->buf = malloc(STEP_BYTES);
	v->data = hash_stream_new();
	v->base = hash_stream_new();
	v->a = lib.archive_read_new();
	if (!v->in || !v->buf || !v->data || !v->base || !v->a)
		return -ENOMEM;
	r = check(v, lib.archive_read_support_format_tar(v->a));
	r = r ?: check(v, lib.archive_read_support_filter_zstd(v->a));
	return r ?: check(v, lib.archive_read_open(v->a, v, NULL, read_more, NULL));
}

int delta_receive(int fd, const struct delta_target *to, const struct delta_hooks *hooks,
		  struct delta_received *ret)
{
	struct receiving v = { .fd = fd, .hooks = hooks, .ret = ret };
	int r = load();

	*ret = (struct delta_received){ .entries = 0 };
	if (r < 0)
		return r;
	r = open_archive(&v) ?: receive_head(&v);
	if (r == -EPIPE) {
		log_error("the delta has no beginning");
		r = -EUCLEAN;
	}
	r = r ?: to->begin(to->arg, &ret->head, &v.layer);
	r = r ?: receive_all(&v);
	if (v.a)
		lib.archive_read_free(v.a);
	entry_release(&v.last);
	hash_stream_free(v.data);
	hash_stream_free(v.base);
	free(v.unfinished);
	free(v.in);
	free(v.buf);
	return r;
}
