// SPDX-License-Identifier: Apache-2.0
/* Walks the directories that the snapshots show together. The entry of each name, and the lower
 * entry below it, come from each layer by path: the image of the stack would keep all of them in
 * memory. */
#include "veneer/data/snapshot_merge.h"

#include "snapshot_merge_file.h"
#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/layer/dir_listing.h"
#include "veneer/layer/origin_xattr.h"
#include "veneer/layer/path_resolve.h"
#include "veneer/layer/snapshot_ino.h"
#include "veneer/layer/snapshot_number.h"
#include "veneer/sys/path.h"
#include "veneer/sys/xattr.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The entry that the snapshots show at a path. */
struct found {
	enum path_resolve_kind kind; /* ABSENT: none in the snapshots; the tree below shows */
	size_t idx; /* the topmost layer that has it */
	char path[PATH_MAX]; /* in that layer */
	bool has_below; /* the tree below shows through; a directory is merged with it */
	char below[PATH_MAX]; /* in the tree that they stand on */
};

struct directory {
	char *path;
	char *below; /* the path that it is merged with below; NULL: with none */
	size_t idx;
	char *there; /* in layers[idx] */
};

struct merger {
	struct snapshot_merge *m;
	struct layer *const *layers;
	size_t n;
	struct snapshot_merge_files files;
	struct directory *dirs; /* all; a parent before its children */
	size_t ndirs, cap;
};

static int look(const struct merger *g, const char *path, struct found *ret)
{
	char here[PATH_MAX];

	if (strlen(path) >= sizeof(here))
		return -ENAMETOOLONG;
	*ret = (struct found){ .kind = PATH_RESOLVE_ABSENT, .has_below = true };
	strcpy(here, path);
	for (size_t k = 0; k < g->m->n; k++) {
		struct path_resolve_step s;
		int r = path_resolve_visit(g->layers[k], here, &s);

		if (r < 0)
			return r;
		if (s.kind != PATH_RESOLVE_ABSENT && ret->kind == PATH_RESOLVE_ABSENT) {
			ret->kind = s.kind;
			ret->idx = k;
			strcpy(ret->path, here);
		}
		/* An entry other than a directory hides everything below. */
		ret->has_below = s.has_below && (s.kind == PATH_RESOLVE_ABSENT ||
						 s.kind == PATH_RESOLVE_DIRECTORY);
		if (!ret->has_below)
			break;
		strcpy(here, s.path);
	}
	strcpy(ret->below, ret->has_below ? here : "");
	return 0;
}

/* Find the entry at a path of the tree below. PATH_RESOLVE_ABSENT: there is none. */
static int look_below(const struct merger *g, const char *path, enum path_resolve_kind *ret)
{
	char here[PATH_MAX];

	*ret = PATH_RESOLVE_ABSENT;
	strcpy(here, path);
	for (size_t k = g->m->n; k < g->n; k = layer_below(g->layers, g->n, k)) {
		struct path_resolve_step s;
		int r = path_resolve_visit_parts(g->layers, g->n, &k, here, &s);

		if (r < 0)
			return r;
		if (s.kind != PATH_RESOLVE_ABSENT) {
			*ret = s.kind == PATH_RESOLVE_HIDDEN ? PATH_RESOLVE_ABSENT : s.kind;
			return 0;
		}
		if (!s.has_below)
			return 0;
		strcpy(here, s.path);
	}
	return 0;
}

static int join(const char *dir, const char *name, char ret[PATH_MAX])
{
	return snprintf(ret, PATH_MAX, "%s%s%s", dir, *dir ? "/" : "", name) < PATH_MAX
		       ? 0
		       : -ENAMETOOLONG;
}

/* The path in the tree below that a name covers by its place. NULL: none. */
static const char *place_below(const struct directory *d, const char *name, char buf[PATH_MAX])
{
	return d->below && join(d->below, name, buf) == 0 ? buf : NULL;
}

/* ---- objects other than regular files ---- */

static int add_whiteout(struct merger *g, const struct directory *d, int dirfd, const char *name)
{
	char buf[PATH_MAX];
	int r;

	/* Write the whiteout even if it covers nothing now: the lower layers may have been given
	 * wrongly. */
	if (!place_below(d, name, buf))
		return 0;
	/* A whiteout by name may exist: two layers hid the name. */
	r = whiteout_make(g->m->style, dirfd, name);
	return r == -EEXIST ? 0 : r;
}

/* Takes the strings over, also on failure. has_below: d.below must not be NULL. */
static int push(struct merger *g, struct directory d, bool has_below)
{
	if (d.path && d.there && !d.below == !has_below &&
	    array_reserve(&g->dirs, &g->cap, g->ndirs + 1) == 0) {
		g->dirs[g->ndirs++] = d;
		return 0;
	}
	free(d.path);
	free(d.there);
	free(d.below);
	return -ENOMEM;
}

/* fd: a directory that is not merged with one below, or an object other than a regular file. */
static int note_number(struct merger *g, const struct found *f, int fd)
{
	char path[PATH_MAX];
	uint64_t number;
	int r = snapshot_ino_descend(g->m->image, f->idx, f->path, g->m->n, &number, path);

	if (r == 1 && f->kind == PATH_RESOLVE_OTHER)
		origin_xattr_write(g->m->style, fd, path);
	return r == 0 ? snapshot_number_write(fd, number) : r < 0 ? r : 0;
}

static int make_symlink(int from, int dirfd, const char *name)
{
	char target[PATH_MAX + 1];
	ssize_t n = readlinkat(from, "", target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	return symlinkat(target, dirfd, name) < 0 ? -errno : 0;
}

/* A symlink, socket, fifo or device that is being merged. */
struct node {
	const struct found *found;
	int from;
	struct stat st;
	int dirfd; /* of the new layer */
	const char *dir; /* its path there */
	const char *name;
};

static int make_node(const struct node *o)
{
	if (S_ISLNK(o->st.st_mode))
		return make_symlink(o->from, o->dirfd, o->name);
	return mknodat(o->dirfd, o->name, (o->st.st_mode & S_IFMT) | 0600, o->st.st_rdev) < 0
		       ? -errno
		       : 0;
}

static int finish_node(struct merger *g, const struct node *o)
{
	_cleanup_(closep) int fd = openat(o->dirfd, o->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	int r = fd < 0 ? -errno : note_number(g, o->found, fd);

	return r ?: snapshot_merge_attributes(o->from, &o->st, fd);
}

/* Make a new inode. Only a trusted attribute can state the inode number that such an object
 * shows. */
static int copy_node(struct merger *g, const struct node *o)
{
	int r = make_node(o);

	/* root may lack the permission to make devices. */
	if (r == -EPERM)
		return snapshot_links_make(g->m->links, o->from, o->dirfd, o->name);
	r = r ?: finish_node(g, o);
	return r ?: snapshot_merge_files_note(&g->files, &o->st, o->dir, o->name);
}

static int add_other(struct merger *g, const struct directory *d, const struct found *f, int dirfd,
		     const char *name)
{
	_cleanup_(closep) int fd =
		path_open(g->layers[f->idx]->rootfd, f->path, O_PATH | O_NOFOLLOW, 0);
	struct node o = { .found = f, .from = fd, .dirfd = dirfd, .dir = d->path, .name = name };
	int r = fd < 0 ? fd : fstat(fd, &o.st) < 0 ? -errno : 0;

	r = r ?: snapshot_merge_files_link(&g->files, &o.st, dirfd, name);
	if (r)
		return r < 0 ? r : 0;
	r = snapshot_merge_keeps_number(g->m, fd, f->idx, f->path);
	if (r < 0)
		return r;
	if (r == 0 && g->m->style->has_trusted)
		return copy_node(g, &o);
	return snapshot_links_make(g->m->links, fd, dirfd, name);
}

/* Merge the new directory with the same lower directory as in the snapshots. *ret: there is one. */
static int lead_below(struct merger *g, const struct found *f, const char *own, int fd, bool *ret)
{
	enum path_resolve_kind kind = PATH_RESOLVE_ABSENT;
	int r = f->has_below ? look_below(g, f->below, &kind) : 0;

	*ret = kind == PATH_RESOLVE_DIRECTORY;
	if (r < 0 || (*ret && own && !strcmp(own, f->below)))
		return r;
	if (*ret)
		return whiteout_set_redirect(g->m->style, fd, f->below);
	if (own && !f->has_below)
		return whiteout_set_opaque(g->m->style, fd);
	r = own ? look_below(g, own, &kind) : 0;
	return r < 0 || !own || kind != PATH_RESOLVE_DIRECTORY
		       ? r
		       : whiteout_set_opaque(g->m->style, fd);
}

static int add_directory(struct merger *g, size_t parent, const struct found *f, int dirfd,
			 const char *name)
{
	char path[PATH_MAX], buf[PATH_MAX];
	const char *own = place_below(&g->dirs[parent], name, buf);
	_cleanup_(closep) int fd = -1;
	bool is_merged = false;
	int r = join(g->dirs[parent].path, name, path);

	if (r == 0 && mkdirat(dirfd, name, 0700) < 0)
		r = -errno;
	if (r < 0)
		return r;
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = fd < 0 ? -errno : lead_below(g, f, own, fd, &is_merged);
	r = r ?: is_merged ? 0 : note_number(g, f, fd);
	return r
		       ?: push(g,
			       (struct directory){ .path = strdup(path),
						   .below = is_merged ? strdup(f->below) : NULL,
						   .idx = f->idx,
						   .there = strdup(f->path) },
			       is_merged);
}

/* ---- one name ---- */

static int add(struct merger *g, size_t parent, int dirfd, const char *name)
{
	const struct directory *d = &g->dirs[parent];
	char path[PATH_MAX], buf[PATH_MAX];
	struct found f;
	int r = join(d->path, name, path);

	r = r ?: look(g, path, &f);
	if (r < 0)
		return r;
	switch (f.kind) {
	case PATH_RESOLVE_ABSENT:
		return 0;
	case PATH_RESOLVE_HIDDEN:
		return add_whiteout(g, d, dirfd, name);
	case PATH_RESOLVE_DIRECTORY:
		return add_directory(g, parent, &f, dirfd, name);
	case PATH_RESOLVE_REGULAR:
		return snapshot_merge_files_add(
			&g->files,
			&(struct snapshot_merge_place){ .idx = f.idx,
							.path = f.path,
							.dirfd = dirfd,
							.dir = d->path,
							.name = name,
							.below = place_below(d, name, buf) });
	default:
		return add_other(g, d, &f, dirfd, name);
	}
}

static int add_once(struct merger *g, size_t parent, int dirfd, const char *name)
{
	struct stat st;
	int r;

	/* Another layer had the entry, or its whiteout. */
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	r = add(g, parent, dirfd, name);
	g->m->progress.entries++;
	r = r ?: g->m->step ? g->m->step(g->m->arg, &g->m->progress) : 0;
	if (r < 0 && !g->m->where &&
	    asprintf(&g->m->where, "%s/%s", g->dirs[parent].path, name) < 0)
		g->m->where = NULL;
	return r;
}

/* ---- directories ---- */

static int read_part(struct merger *g, size_t at, int dirfd, size_t idx, const char *path)
{
	_cleanup_(closep) int fd =
		path_open_quiet(g->layers[idx]->rootfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	_cleanup_(dir_listing_release) struct dir_listing l = { 0 };
	char redirect[PATH_MAX];
	bool has_files = false;
	int r = fd < 0 ? fd : dir_listing_read(fd, &l);

	if (r == 0)
		r = whiteout_dir_marks(fd, g->layers[idx]->is_doubted, redirect, &has_files);
	/* path_resolve_visit takes whiteouts that are regular files for files. */
	r = r < 0 ? r : has_files ? -EOPNOTSUPP : 0;
	for (size_t k = 0; k < l.n && r == 0; k++)
		r = add_once(g, at, dirfd, dir_listing_name(&l, &l.entries[k]));
	return r;
}

/* Read the parts of the directory in all snapshots. */
static int read_directory(struct merger *g, size_t at)
{
	_cleanup_(closep) int dirfd =
		path_open(g->m->to, g->dirs[at].path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	char here[PATH_MAX];
	int r = dirfd < 0 ? dirfd : 0;

	strcpy(here, g->dirs[at].path);
	for (size_t k = 0; k < g->m->n && r == 0; k++) {
		struct path_resolve_step s;

		r = path_resolve_visit(g->layers[k], here, &s);
		if (r == 0 && s.kind == PATH_RESOLVE_DIRECTORY)
			r = read_part(g, at, dirfd, k, here);
		if (r < 0 || !s.has_below ||
		    (s.kind != PATH_RESOLVE_ABSENT && s.kind != PATH_RESOLVE_DIRECTORY))
			break;
		strcpy(here, s.path);
	}
	return r;
}

/* Children before their directory: its final mode may deny access. */
static int finish_directory(struct merger *g, const struct directory *d)
{
	_cleanup_(closep) int to =
		path_open(g->m->to, d->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	_cleanup_(closep) int from =
		path_open(g->layers[d->idx]->rootfd, d->there, O_PATH | O_DIRECTORY, 0);
	struct stat st;

	if (to < 0 || from < 0)
		return to < 0 ? to : from;
	return fstat(from, &st) < 0 ? -errno : snapshot_merge_attributes(from, &st, to);
}

static int begin(struct merger *g)
{
	struct found root;
	int r = look(g, "", &root);

	if (r == 0 && !root.has_below) {
		_cleanup_(closep) int fd = openat(g->m->to, WHITEOUT_OPAQUE_NAME,
						  O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

		r = fd < 0 ? -errno : 0;
	}
	r = r ?: snapshot_merge_files_begin(&g->files, g->m);
	return r
		       ?: push(g,
			       (struct directory){ .path = strdup(""),
						   .below = root.has_below ? strdup("") : NULL,
						   .there = strdup("") },
			       root.has_below);
}

static int sync_all(const struct merger *g)
{
	return syncfs(g->m->to) < 0 ? -errno : 0;
}

int snapshot_merge_run(struct snapshot_merge *m)
{
	struct merger g = { .m = m };
	int r;

	g.n = image_layers(m->image, &g.layers);
	r = begin(&g);
	for (size_t k = 0; k < g.ndirs && r == 0; k++)
		r = read_directory(&g, k);
	for (size_t k = g.ndirs; k-- > 0 && r == 0;)
		r = finish_directory(&g, &g.dirs[k]);
	/* A clean map asserts that all other files are on the disk. */
	r = r ?: sync_all(&g) ?: snapshot_merge_files_finish(&g.files) ?: sync_all(&g);
	for (size_t k = 0; k < g.ndirs; k++) {
		free(g.dirs[k].path);
		free(g.dirs[k].there);
		free(g.dirs[k].below);
	}
	free(g.dirs);
	snapshot_merge_files_release(&g.files);
	return r;
}
