// SPDX-License-Identifier: Apache-2.0
/* Reads the directories of the layer as they are, and looks each name up in the stack below. A
 * renamed directory shows its lower contents at a new place, so it is read through the stack. So
 * are all directories of an upper with snapshots. */
#include "veneer/tools/diff.h"

#include "entry_attrs.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/human_units.h"
#include "veneer/base/log.h"
#include "veneer/layer/dir_listing.h"
#include "veneer/layer/origin_xattr.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/sys/path.h"
#include "veneer/sys/xattr.h"
#include "veneer/tools/layer_stack.h"
#include "veneer/tools/report.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>

#define NOWHERE SIZE_MAX

/* A directory that is still to be read. */
struct pending {
	char *path;
	struct image_entry *image_entry,
		*below; /* below: the same path without the layer, if that is a directory */
	bool is_covered; /* nothing below shows through it, or through one above it */
	bool is_merged_anew; /* everything in it counts, not only the layer's entries */
	size_t at; /* index of its entry; NOWHERE: the root */
};

struct reading {
	struct diff *d;
	bool lists_all;
	const struct step *step;
	struct pending *dirs;
	size_t n, cap;
};

/* ---- lists ---- */

static int push(struct reading *r, const struct pending *p)
{
	if (array_reserve(&r->dirs, &r->cap, r->n + 1) < 0)
		return -ENOMEM;
	r->dirs[r->n] = *p;
	r->dirs[r->n].path = strdup(p->path);
	return r->dirs[r->n].path ? (r->n++, 0) : -ENOMEM;
}

/* path is taken over, also on failure. */
static int put(struct diff *d, char kind, uint8_t type, char *path)
{
	if (!path || array_reserve(&d->entries, &d->cap, d->n + 1) < 0) {
		free(path);
		return -ENOMEM;
	}
	d->entries[d->n++] = (struct diff_entry){ .kind = kind, .type = type, .path = path };
	return 0;
}

/* Remove the last entry. */
static void take_back(struct diff *d)
{
	free(d->entries[--d->n].path);
}

static char *join(const char *dir, const char *name)
{
	char *path;

	return asprintf(&path, "%s%s%s", dir, *dir ? "/" : "", name) < 0 ? NULL : path;
}

/* 1, 0 or -errno. dir NULL: 0. */
static int find(struct image *img, struct image_entry *dir, const char *name,
		struct image_entry **ret)
{
	int r;

	*ret = NULL;
	if (!img || !dir || dir->type != DT_DIR)
		return 0;
	r = image_lookup(img, dir, name, ret);
	return r == 0 ? 1 : r == -ENOENT ? 0 : r;
}

/* ---- one entry ---- */

/* Count the own blocks of a partial file. If they are unknown they count as 0, and veneer check
 * reports the reason. */
static void measure(struct diff *d, int fd, struct diff_entry *e)
{
	struct layer *const *layers = &d->upper;
	struct mapfile *map;
	struct partial_xattr m;
	uint64_t clip;
	blk_t n;

	if (source_read_mark(fd, "", &m, NULL) != 1)
		return;
	e->is_partial = true;
	e->is_copy = m.is_copy;
	e->blks = (e->size + BLK_BYTES - 1) >> BLK_SHIFT;
	if (e->image_entry)
		image_layers(d->full, &layers);
	if (layer_map(layers[e->image_entry ? e->image_entry->layer : 0], &map) < 0 ||
	    mapfile_clip(map, m.file_id, &clip) < 0)
		return;
	for (blk_t at = 0; at < e->blks; at += n) {
		bool is_own;

		if (mapfile_run(map, m.file_id, at, e->blks - at, &is_own, &n) < 0)
			break;
		e->own_blks += is_own ? n : 0;
	}
}

/* Without lower layers: is the entry marked as a copy of a lower one? */
static bool says_it_is_copied(int fd, const struct diff_entry *e)
{
	char path[PATH_MAX];

	return (e->is_partial && !e->is_copy) || e->type == DT_DIR ||
	       origin_xattr_read(fd, "", false, path) == 1 ||
	       xattr_get(fd, "", "trusted.overlay.origin", NULL, 0) >= 0 ||
	       xattr_get(fd, "", "user.overlay.origin", NULL, 0) >= 0;
}

static bool is_same_dir(struct diff *d, struct image_entry *a, struct image_entry *b)
{
	struct stat x, y;

	_cleanup_(closep) int fd_a = image_open_path(d->full, a);
	_cleanup_(closep) int fd_b = image_open_path(d->below, b);

	return fd_a >= 0 && fd_b >= 0 && image_stat(d->full, a, &x) == 0 &&
	       image_stat(d->below, b, &y) == 0 && x.st_mtim.tv_sec == y.st_mtim.tv_sec &&
	       x.st_mtim.tv_nsec == y.st_mtim.tv_nsec && entry_attrs_same(fd_a, &x, fd_b, &y) == 1;
}

/* An entry of the directory was added or removed. */
static void note_changed(struct reading *r, const struct pending *in)
{
	if (in->at != NOWHERE && !r->d->entries[in->at].kind)
		r->d->entries[in->at].kind = 'C';
}

/* fd: in the layer, O_PATH; -1: the entry is visible there, but in a layer below. */
static int add(struct reading *r, const struct pending *in, const char *name, int fd,
	       struct image_entry *e, struct image_entry *below)
{
	struct pending p = { .image_entry = e,
			     .is_merged_anew = in->is_merged_anew,
			     .is_covered = in->is_covered };
	struct diff *d = r->d;
	struct diff_entry *to;
	struct stat st;
	int k = put(d, 'A', DT_UNKNOWN, join(in->path, name));

	if (k < 0)
		return k;
	step_take(r->step, d->n, r->n);
	to = &d->entries[d->n - 1];
	to->image_entry = e;
	k = e ? image_stat(d->full, e, &st) : fstat(fd, &st) < 0 ? -errno : 0;
	/* In a layer in use the entry may be gone or replaced by now. */
	if (k == -ENOENT || k == -ESTALE) {
		take_back(d);
		return 0;
	}
	if (k < 0)
		return k;
	to->type = IFTODT(st.st_mode);
	to->size = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
	if (fd >= 0 && S_ISREG(st.st_mode))
		measure(d, fd, to);
	if (d->full ? below != NULL : says_it_is_copied(fd, to))
		to->kind = 'C';
	/* 0: undecided until an entry in it is added or removed. Below a covered directory it is a
	 * different directory. */
	if (d->full && !in->is_covered && below && below->type == DT_DIR && to->type == DT_DIR &&
	    is_same_dir(d, e, below))
		to->kind = 0;
	if (d->full && !below)
		note_changed(r, in);
	if (to->type != DT_DIR)
		return 0;
	p.path = to->path;
	p.at = d->n - 1;
	p.below = below && below->type == DT_DIR ? below : NULL;
	return push(r, &p);
}

static int add_deleted(struct reading *r, const struct pending *in, const char *dir,
		       const char *name, struct image_entry *below, bool is_implied)
{
	struct diff *d = r->d;
	size_t at = d->n;
	int k = put(d, 'D', below ? below->type : DT_UNKNOWN, join(dir, name));
	ssize_t n;

	if (k < 0)
		return k;
	d->entries[at].is_implied = is_implied;
	note_changed(r, in);
	if (!r->lists_all || !below || below->type != DT_DIR)
		return 0;
	/* Use a loop, because an image decides the depth. Children are appended, and so visited
	 * later. */
	for (size_t i = at; i < d->n; i++) {
		struct image_entry *e;

		k = image_lookup_path(d->below, d->entries[i].path, &e);
		if (k < 0 || e->type != DT_DIR)
			continue;
		n = image_count(d->below, e);
		for (ssize_t c = 0; c < n; c++) {
			struct image_entry *child = image_child(e, (size_t)c);

			k = put(d, 'D', child->type, join(d->entries[i].path, child->name));
			if (k < 0)
				return k;
			d->entries[d->n - 1].is_implied = true;
		}
	}
	return 0;
}

/* Add the lower entries that the covered directory hides and does not contain. */
static int add_covered(struct reading *r, const struct pending *in)
{
	ssize_t n = image_count(r->d->below, in->below);
	int k = 0;

	if (in->at != NOWHERE)
		r->d->entries[in->at].is_opaque = true;
	/* It has changed, even if it has the names and times of the lower one. */
	note_changed(r, in);
	for (ssize_t c = 0; k == 0 && c < n; c++) {
		struct image_entry *child = image_child(in->below, (size_t)c), *e;

		k = find(r->d->full, in->image_entry, child->name, &e);
		/* The root has no entry that could imply it for all. */
		k = k == 0  ? add_deleted(r, in, in->path, child->name, child, in->at != NOWHERE)
		    : k < 0 ? k
			    : 0;
	}
	return n < 0 ? (int)n : k;
}

/* ---- directories ---- */

static int read_entry(struct reading *r, const struct pending *in, int dirfd, const char *name,
		      bool is_whiteout)
{
	struct diff *d = r->d;
	struct image_entry *e, *below;
	int k = find(d->below, in->below, name, &below);

	if (k < 0)
		return k;
	if (is_whiteout)
		return (below && !in->is_covered) || !d->full
			       ? add_deleted(r, in, in->path, name, below, false)
			       : 0;
	k = find(d->full, in->image_entry, name, &e);
	/* A ".wh.NAME" beside it hides it. */
	if (k <= 0 && d->full)
		return k;

	_cleanup_(closep) int fd = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	return add(r, in, name, fd, e, below);
}

static int read_layer_dir(struct reading *r, struct pending *in, bool *ret_is_redirected)
{
	_cleanup_(closep) int fd =
		path_open_quiet(r->d->upper->rootfd, in->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	_cleanup_(dir_listing_release) struct dir_listing l = { 0 };
	char redirect[PATH_MAX];
	int k = fd < 0 ? fd : dir_listing_read(fd, &l), kind;
	bool has_files = false;

	if (k < 0)
		return k == -ENOENT ? 0 : k;
	kind = whiteout_dir_marks(fd, false, redirect, &has_files);
	if (in->at == NOWHERE)
		kind = WHITEOUT_DIR_MERGED;
	if (kind < 0)
		return kind;
	if (has_files)
		dir_listing_note_files(&l, fd);
	*ret_is_redirected = kind == WHITEOUT_DIR_REDIRECTED && r->d->full;
	if (*ret_is_redirected)
		return 0;
	in->is_covered |= kind == WHITEOUT_DIR_OPAQUE || l.is_opaque;
	for (size_t i = 0; k == 0 && i < l.n; i++)
		k = read_entry(r, in, fd, dir_listing_name(&l, &l.entries[i]),
			       l.entries[i].is_whiteout || l.entries[i].is_hiding);
	return k == 0 && in->is_covered && in->below ? add_covered(r, in) : k;
}

static int read_merged_dir(struct reading *r, struct pending *in)
{
	struct diff *d = r->d;
	ssize_t n = image_count(d->full, in->image_entry);
	int k = in->below ? add_covered(r, in) : 0;

	in->is_covered = true;
	for (ssize_t c = 0; k == 0 && c < n; c++) {
		struct image_entry *e = image_child(in->image_entry, (size_t)c), *below;
		_cleanup_(freep) char *path = e->layer == 0 ? image_layer_path(e) : NULL;
		_cleanup_(closep) int fd =
			path ? path_open(d->upper->rootfd, path, O_PATH | O_NOFOLLOW, 0) : -1;

		k = find(d->below, in->below, e->name, &below);
		k = k < 0 ? k : add(r, in, e->name, fd, e, below);
	}
	return n < 0 ? (int)n : k;
}

/* Does the entry come unchanged from the layers below? */
static bool is_unchanged(const struct diff *d, const struct image_entry *e,
			 const struct image_entry *below)
{
	return below && e->layer == below->layer + d->n_upper && e->d_ino == below->d_ino;
}

static int add_stacked(struct reading *r, const struct pending *in, struct image_entry *e)
{
	struct diff *d = r->d;
	_cleanup_(closep) int fd = -1;
	struct image_entry *below;
	int k = find(d->below, in->below, e->name, &below);

	if (k < 0 || is_unchanged(d, e, below))
		return k < 0 ? k : 0;
	if (e->layer < d->n_upper)
		fd = image_open_path(d->full, e);
	return add(r, in, e->name, fd, e, below);
}

/* Read a directory of an upper with snapshots. */
static int read_stacked_dir(struct reading *r, const struct pending *in)
{
	struct diff *d = r->d;
	ssize_t n = image_count(d->full, in->image_entry),
		n_below = in->below ? image_count(d->below, in->below) : 0;
	int k = n < 0 ? (int)n : n_below < 0 ? (int)n_below : 0;

	for (ssize_t c = 0; k == 0 && c < n; c++)
		k = add_stacked(r, in, image_child(in->image_entry, (size_t)c));
	for (ssize_t c = 0; k == 0 && c < n_below; c++) {
		struct image_entry *below = image_child(in->below, (size_t)c), *e;

		k = find(d->full, in->image_entry, below->name, &e);
		k = k == 0  ? add_deleted(r, in, in->path, below->name, below, false)
		    : k < 0 ? k
			    : 0;
	}
	return k;
}

static int read_dir(struct reading *r, struct pending *in)
{
	const bool is_stacked = r->d->n_upper > 1;
	bool is_redirected = false;
	int k = is_stacked	     ? read_stacked_dir(r, in)
		: in->is_merged_anew ? 0
				     : read_layer_dir(r, in, &is_redirected);

	if (is_redirected)
		in->is_merged_anew = true;
	if (k == 0 && in->is_merged_anew)
		k = read_merged_dir(r, in);
	if (k < 0)
		log_error("%s/%s: %s", r->d->upper->path, in->path, strerror(-k));
	return k;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct diff_entry *)a)->path, ((const struct diff_entry *)b)->path);
}

static int read_all(struct reading *r)
{
	struct diff *d = r->d;
	char none[] = "";
	int k = push(r, &(struct pending){ .path = none,
					   .image_entry = d->full ? image_root(d->full) : NULL,
					   .below = d->below ? image_root(d->below) : NULL,
					   .at = NOWHERE });
	size_t n = 0;

	while (k == 0 && r->n) {
		struct pending in = r->dirs[--r->n];

		k = read_dir(r, &in);
		free(in.path);
	}
	while (r->n)
		free(r->dirs[--r->n].path);
	free(r->dirs);
	/* Drop directories that are only listed because of their contents, and have not changed. */
	for (size_t i = 0; i < d->n; i++)
		if (d->entries[i].kind)
			d->entries[n++] = d->entries[i];
		else
			free(d->entries[i].path);
	d->n = n;
	if (n)
		qsort(d->entries, n, sizeof(*d->entries), by_path);
	return k;
}

/* ---- the stack ---- */

int diff_read_stack(const struct layer_stack *s, size_t n_upper, bool lists_all,
		    const struct step *step, struct diff *ret)
{
	struct reading r = { .d = ret, .lists_all = lists_all, .step = step };
	int k = 0;

	*ret = (struct diff){ .upper = layer_ref(s->v[0]), .n_upper = n_upper };
	if (s->n > n_upper)
		k = image_new(s->v, s->n, &ret->full)
			    ?: image_new(s->v + n_upper, s->n - n_upper, &ret->below);
	return k ?: read_all(&r);
}

int diff_read(const char *upper, char *const *lower, size_t n_lower, bool lists_all,
	      const struct step *step, struct diff *ret)
{
	_cleanup_(layer_stack_release) struct layer_stack s = { 0 };
	size_t n_upper;
	int k = layer_stack_put_upper(&s, upper);

	*ret = (struct diff){ 0 };
	n_upper = s.n;
	if (k == 0 && s.n > 1 && !n_lower) {
		log_error("%s has snapshots: name its lower layers, -o lowerdir=A[:B...]", upper);
		k = -EINVAL;
	}
	for (size_t i = 0; k == 0 && i < n_lower; i++)
		k = layer_stack_put_lower(&s, lower[i]);
	return k ?: diff_read_stack(&s, n_upper, lists_all, step, ret);
}

void diff_release(struct diff *d)
{
	for (size_t i = 0; i < d->n; i++)
		free(d->entries[i].path);
	free(d->entries);
	image_unref(d->full);
	image_unref(d->below);
	layer_unref(d->upper);
	*d = (struct diff){ 0 };
}

/* ---- the list ---- */

static const char *colour_of(char kind)
{
	return kind == 'A' ? "\033[32m" : kind == 'D' ? "\033[31m" : "\033[33m";
}

int diff_print(const struct diff *d, bool has_colours, FILE *out)
{
	for (size_t i = 0; i < d->n; i++) {
		const struct diff_entry *e = &d->entries[i];
		_cleanup_(freep) char *path = report_line(e->path);

		if (!path)
			return -ENOMEM;
		fprintf(out, "%s%c%s /%s", has_colours ? colour_of(e->kind) : "", e->kind,
			has_colours ? "\033[0m" : "", path);
		if (e->is_partial)
			fprintf(out, " (%s of %s of 4 KiB, %s of %s)",
				human_units_count(e->own_blks).text,
				human_units_of(e->blks, "block").text,
				human_units_bytes(e->own_blks << BLK_SHIFT).text,
				human_units_bytes(e->size).text);
		fputc('\n', out);
	}
	return ferror(out) ? -EIO : 0;
}

static const char *type_name(uint8_t type)
{
	switch (type) {
	case DT_REG:
		return "file";
	case DT_DIR:
		return "directory";
	case DT_LNK:
		return "symlink";
	case DT_UNKNOWN:
		return "unknown";
	default:
		return "special";
	}
}

static json_t *entry_json(const struct diff_entry *e)
{
	_cleanup_(freep) char *path = report_path(e->path), *full = NULL;
	char kind[2] = { e->kind, '\0' };
	json_t *j;

	if (!path || asprintf(&full, "/%s", path) < 0)
		return NULL;
	j = json_pack("{ss, ss, ss}", "kind", kind, "path", full, "type", type_name(e->type));
	if (j && e->type == DT_REG && e->kind != 'D')
		json_object_set_new(j, "size", json_integer((json_int_t)e->size));
	if (j && e->is_partial)
		json_object_set_new(j, "partial",
				    json_pack("{sI, sI, si}", "own_blocks", (json_int_t)e->own_blks,
					      "blocks", (json_int_t)e->blks, "block_bytes",
					      BLK_BYTES));
	return j;
}

int diff_print_json(const struct diff *d, FILE *out)
{
	json_t *list = json_array(), *j;
	int r = list ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < d->n; i++)
		if (json_array_append_new(list, entry_json(&d->entries[i])) < 0)
			r = -ENOMEM;
	j = json_pack("{sb, so}", "exact", d->full != NULL, "changes", list);
	if (r == 0)
		r = j && json_dumpf(j, out, JSON_INDENT(2)) == 0 ? 0 : -EIO;
	fputc('\n', out);
	json_decref(j);
	return r;
}
