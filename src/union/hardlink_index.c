// SPDX-License-Identifier: Apache-2.0
/* Answers two questions. Which entries of the image are one file? Entries of one layer with one
 * inode number. The entry's own directory is searched first, since most hard links lie side by
 * side, then an index of the whole image. Where is an entry of the image visible? At its own path,
 * unless a directory above it was renamed. A table holds such directories, filled from the
 * redirects in the upper at the first need, and by every rename. */
#include "veneer/union/hardlink_index.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"
#include "veneer/base/lock.h"
#include "veneer/sys/path.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/lookup.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define VISITS_MAX 2000000 /* a tenth of a second */
#define PATHS_MAX  (1u << 24) /* directories of an upper; more is an error */

struct moved {
	struct hlink link; /* keyed by the lower directory */
	struct inode *dir; /* referenced */
};

struct inodes {
	struct inode **v; /* referenced */
	size_t n, cap;
};

struct hardlink_index {
	mutex_t scan_lock; /* one scan at a time; held during it */
	mutex_t lock; /* never held over I/O; only the inode table's lock is taken in it */
	/* entries that share their file with others, sorted by by_number(); constant once
	 * published */
	struct image_entry **index;
	size_t n, nvisited;
	bool is_indexed, is_scanning, is_scanned;
	struct htab moved;
	struct inodes again; /* renamed during a scan, which may have missed both places */
};

int hardlink_index_init(struct union_fs *t)
{
	t->links = calloc(1, sizeof(*t->links));
	if (!t->links)
		return -ENOMEM;
	mutex_init(&t->links->lock);
	mutex_init(&t->links->scan_lock);
	return 0;
}

static void free_moved(struct hlink *l, void *arg)
{
	struct moved *m = container_of(l, struct moved, link);

	inode_unref(arg, m->dir);
	free(m);
}

void hardlink_index_release(struct union_fs *t)
{
	struct hardlink_index *l = t->links;

	if (!l)
		return;
	htab_drain(&l->moved, free_moved, t);
	for (size_t k = 0; k < l->again.n; k++)
		inode_unref(t, l->again.v[k]);
	free(l->again.v);
	htab_release(&l->moved);
	mutex_destroy(&l->lock);
	mutex_destroy(&l->scan_lock);
	free(l->index);
	free(l);
	t->links = NULL;
}

/* ---- which entries are one file ---- */

/* In two layers one number may stand for two files: image_is_same_file decides. In a layer of two
 * parts one number is one file. */
static int by_number(const void *a, const void *b)
{
	const struct image_entry *x = *(struct image_entry *const *)a,
				 *y = *(struct image_entry *const *)b;

	return x->d_ino < y->d_ino ? -1 : x->d_ino > y->d_ino;
}

struct image_entries {
	struct image_entry **v;
	size_t n, cap;
};

static int image_entries_add(struct image_entries *s, struct image_entry *e)
{
	int r = array_reserve(&s->v, &s->cap, s->n + 1);

	if (r == 0)
		s->v[s->n++] = e;
	return r;
}

/* Collect every file of the image. A loop instead of recursion: the image decides the depth. A
 * directory that cannot be read contributes no names. */
static int collect_files(struct image *img, struct image_entries *ret)
{
	struct image_entries dirs = { 0 };
	int r = image_entries_add(&dirs, image_root(img));

	while (r == 0 && dirs.n) {
		struct image_entry *dir = dirs.v[--dirs.n];
		ssize_t n = image_count(img, dir);

		if (n == -ENOMEM)
			r = -ENOMEM;
		for (ssize_t k = 0; r == 0 && k < n; k++) {
			struct image_entry *e = image_child(dir, (size_t)k);

			r = image_entries_add(e->type == DT_DIR ? &dirs : ret, e);
		}
	}
	free(dirs.v);
	return r;
}

static void keep_shared(struct image_entries *s)
{
	size_t n = 0;

	if (s->n)
		qsort(s->v, s->n, sizeof(*s->v), by_number);
	for (size_t k = 0; k < s->n; k++)
		if ((k > 0 && by_number(&s->v[k - 1], &s->v[k]) == 0) ||
		    (k + 1 < s->n && by_number(&s->v[k], &s->v[k + 1]) == 0))
			s->v[n++] = s->v[k];
	s->n = n;
}

static bool is_indexed(struct hardlink_index *l)
{
	LOCK_SCOPE(&l->lock);
	return l->is_indexed;
}

/* True also when searching directories, of n more entries now, has cost more than an index. */
static bool wants_index(struct hardlink_index *l, size_t n)
{
	LOCK_SCOPE(&l->lock);
	l->nvisited += n;
	return l->is_indexed || l->nvisited > VISITS_MAX;
}

static int index_image(struct union_fs *t)
{
	struct image_entries files = { 0 };
	struct image_entry **shrunk;
	int r;

	if (is_indexed(t->links))
		return 0;
	r = collect_files(t->image, &files);
	if (r < 0) {
		free(files.v);
		return r;
	}
	keep_shared(&files);
	shrunk = reallocarray(files.v, files.n ? files.n : 1, sizeof(*files.v));
	if (shrunk)
		files.v = shrunk;
	mutex_lock(&t->links->lock);
	if (!t->links->is_indexed) {
		t->links->index = steal_ptr(&files.v);
		t->links->n = files.n;
		t->links->is_indexed = true;
	}
	mutex_unlock(&t->links->lock);
	free(files.v);
	return 0;
}

static int siblings_from_index(struct union_fs *t, struct image_entry *e, struct image_entries *ret)
{
	struct hardlink_index *l = t->links;
	struct image_entry **first;
	size_t k;
	int r = index_image(t);

	if (r < 0)
		return r;
	/* The index is published under the lock, and then constant. */
	first = l->n ? bsearch(&e, l->index, l->n, sizeof(*l->index), by_number) : NULL;
	if (!first)
		return image_entries_add(ret, e);
	k = (size_t)(first - l->index);
	while (k > 0 && by_number(&l->index[k - 1], &e) == 0)
		k--;
	for (; r == 0 && k < l->n && by_number(&l->index[k], &e) == 0; k++)
		r = image_entries_add(ret, l->index[k]);
	return r;
}

/* Find all entries of the image that are the same file as e. */
static int find_siblings(struct union_fs *t, struct image_entry *e, struct image_entries *ret)
{
	ssize_t n = image_count(t->image, e->parent);
	struct stat st;
	int r = image_stat(t->image, e, &st);

	if (r < 0 || n < 0)
		return r < 0 ? r : (int)n;
	if (wants_index(t->links, (size_t)n))
		return siblings_from_index(t, e, ret);
	for (ssize_t k = 0; r == 0 && k < n && ret->n < st.st_nlink; k++) {
		struct image_entry *other = image_child(e->parent, (size_t)k);

		r = other->type != DT_DIR ? image_is_same_file(t->image, other, e) : 0;
		if (r > 0)
			r = image_entries_add(ret, other);
	}
	if (r < 0 || ret->n >= st.st_nlink)
		return r;
	ret->n = 0;
	return siblings_from_index(t, e, ret);
}

/* ---- where an entry is seen ---- */

static uint64_t moved_hash(const struct image_entry *e)
{
	return hash_key(&e, sizeof(e), 0);
}

int hardlink_index_note_moved(struct union_fs *t, struct inode *dir)
{
	struct moved *m = malloc(sizeof(*m));
	uint64_t hash = moved_hash(dir->lower);
	int r = 0;

	if (!m)
		return -ENOMEM;
	inode_ref(t, dir);
	mutex_lock(&t->links->lock);
	for (struct hlink *l = htab_first(&t->links->moved, hash); l && r == 0; l = htab_next(l))
		if (container_of(l, struct moved, link)->dir == dir)
			r = 1;
	m->dir = dir;
	if (r == 0)
		r = htab_insert(&t->links->moved, &m->link, hash);
	mutex_unlock(&t->links->lock);
	if (r != 0) {
		inode_unref(t, dir);
		free(m);
	}
	return r < 0 ? r : 0;
}

/* The n-th renamed directory that is merged with e, a directory of the image; referenced. There are
 * two if a server was killed before it hid the old name. NULL: no more. */
static struct inode *find_moved(struct union_fs *t, const struct image_entry *e, size_t n)
{
	struct inode *found = NULL;

	LOCK_SCOPE(&t->links->lock);
	for (struct hlink *l = htab_first(&t->links->moved, moved_hash(e)); l && !found;
	     l = htab_next(l)) {
		struct moved *m = container_of(l, struct moved, link);

		if (m->dir->lower == e && !inode_is_orphan(m->dir) && n-- == 0)
			found = m->dir;
	}
	if (found)
		inode_ref(t, found);
	return found;
}

static bool is_directory(const struct lookup_state *s)
{
	return s->where == LOOKUP_UPPER ? s->up.type == DT_DIR
					: s->where == LOOKUP_LOWER && s->below->type == DT_DIR;
}

/* Step into a directory of the mount; referenced. -ENOENT: no directory has that name. */
static int step_down(struct union_fs *t, struct inode *dir, const char *name, struct inode **ret)
{
	struct inode *i;
	struct stat st;
	int r = lookup_settle(t, dir, name);

	if (r < 0)
		return r;
	if (!inode_peek(t, dir, name, &i)) {
		struct lookup_state state;

		r = lookup_state(t, dir, name, &state);

		/* Leave other objects to lookups by the kernel, which locks the name against
		 * removal meanwhile. */
		if (r == 0 && !is_directory(&state))
			r = -ENOENT;
		if (r == 0)
			r = lookup_name(t, dir, name, &i, &st);
		if (r < 0)
			return r;
	}
	if (i->type != DT_DIR) {
		inode_unref(t, i);
		return -ENOENT;
	}
	*ret = i;
	return 0;
}

static int walk_to(struct union_fs *t, const char *path, struct inode **ret)
{
	struct inode *i = t->root, *next;

	inode_ref(t, i);
	while (*path) {
		char name[NAME_MAX + 1];
		size_t len = strcspn(path, "/");
		int r;

		memcpy(name, path, len);
		name[len] = '\0';
		r = step_down(t, i, name, &next);
		inode_unref(t, i);
		if (r < 0)
			return r;
		i = next;
		path += len + (path[len] == '/');
	}
	*ret = i;
	return 0;
}

/* Step from start, which is merged with `top`, down to dir, a directory of the image. -ENOENT: the
 * path shows another directory. Uses up the reference of start. */
static int descend(struct union_fs *t, struct inode *start, const struct image_entry *top,
		   struct image_entry *dir, struct inode **ret)
{
	struct image_entries chain = { 0 };
	struct inode *i = start, *next;
	int r = 0;

	for (struct image_entry *e = dir; r == 0 && e != top; e = e->parent)
		r = image_entries_add(&chain, e);
	while (r == 0 && chain.n) {
		struct image_entry *e = chain.v[--chain.n];

		r = step_down(t, i, e->name, &next);
		if (r < 0)
			break;
		inode_unref(t, i);
		i = next;
		if (i->lower != e)
			r = -ENOENT;
	}
	free(chain.v);
	if (r < 0)
		inode_unref(t, i);
	else
		*ret = i;
	return r;
}

static int note_if_moved(struct union_fs *t, const char *path, int fd)
{
	char redirect[PATH_MAX];
	struct inode *i;
	int r = whiteout_dir_kind(fd, t->upper->is_doubted, redirect);

	if (r != WHITEOUT_DIR_REDIRECTED)
		return 0; /* a lookup of it reports the fault */
	r = walk_to(t, path, &i);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	if (i->lower)
		r = hardlink_index_note_moved(t, i);
	inode_unref(t, i);
	return r;
}

struct paths {
	char **v;
	size_t n, cap;
};

static int paths_add(struct paths *p, const char *dir, const char *name)
{
	char *path;

	if (p->n >= PATHS_MAX || array_reserve(&p->v, &p->cap, p->n + 1) < 0)
		return -ENOMEM;
	if (asprintf(&path, "%s%s%s", dir, *dir ? "/" : "", name) < 0)
		return -ENOMEM;
	p->v[p->n++] = path;
	return 0;
}

/* Open a path that may be too long for one call. */
static int open_deep(int rootfd, const char *path)
{
	_cleanup_(closep) int at = -1;

	while (strlen(path) >= PATH_MAX) {
		char part[PATH_MAX];
		size_t len = PATH_MAX - 1;
		int fd;

		while (len > 0 && path[len] != '/')
			len--;
		memcpy(part, path, len);
		part[len] = '\0';
		fd = path_open(at < 0 ? rootfd : at, part, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0);
		if (fd < 0)
			return fd;
		closep(&at);
		at = fd;
		path += len + 1;
	}
	return path_open_quiet(at < 0 ? rootfd : at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

static int scan_dir(struct union_fs *t, int rootfd, const char *path, struct paths *todo)
{
	_cleanup_(closep) int fd = open_deep(rootfd, path);
	struct dir_listing l = { 0 };
	int r;

	if (fd < 0)
		return fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP ? 0
								       : fd; /* removed meanwhile */
	r = *path ? note_if_moved(t, path, fd) : 0;
	if (r == 0)
		r = dir_listing_read(fd, &l);
	for (size_t k = 0; r == 0 && k < l.n; k++)
		if (l.entries[k].type == DT_DIR && !l.entries[k].is_hiding)
			r = paths_add(todo, path, dir_listing_name(&l, &l.entries[k]));
	dir_listing_release(&l);
	return r;
}

static int scan_below(struct union_fs *t, const char *top)
{
	struct paths todo = { 0 };
	int r = paths_add(&todo, "", top);

	while (todo.n) {
		_cleanup_(freep) char *path = todo.v[--todo.n];

		if (r == 0)
			r = scan_dir(t, t->upper->rootfd, path, &todo);
		if (r == 0 && t->rest)
			r = scan_dir(t, t->rest->rootfd, path, &todo);
	}
	free(todo.v);
	return r;
}

int hardlink_index_scan_again(struct union_fs *t, struct inode *dir)
{
	struct hardlink_index *l = t->links;

	LOCK_SCOPE(&l->lock);
	if (!l->is_scanning)
		return 0;
	if (array_reserve(&l->again.v, &l->again.cap, l->again.n + 1) < 0)
		return -ENOMEM;
	inode_ref(t, dir);
	l->again.v[l->again.n++] = dir;
	return 0;
}

/* The next directory to scan again. NULL: none, and the scan is complete. */
static struct inode *next_again(struct hardlink_index *l)
{
	LOCK_SCOPE(&l->lock);
	if (l->again.n)
		return l->again.v[--l->again.n];
	l->is_scanning = false;
	l->is_scanned = true;
	return NULL;
}

static int scan_moved(struct union_fs *t, struct inode *dir)
{
	char name[NAME_MAX + 1];
	struct inode *parent;
	char *path;
	int r;

	if (inode_any_name(t, dir, &parent, name) < 0)
		return 0; /* removed since */
	path = inode_name_path(t, parent, name);
	inode_unref(t, parent);
	r = path ? scan_below(t, path) : -ENOMEM;
	free(path);
	return r;
}

static bool begin_scan(struct hardlink_index *l)
{
	LOCK_SCOPE(&l->lock);
	if (!l->is_scanned)
		l->is_scanning = true;
	return !l->is_scanned;
}

/* Find renames of earlier mounts. A directory that is renamed during the scan is scanned again,
 * with its content. */
static int scan_upper(struct union_fs *t)
{
	struct inode *dir;
	int r;

	LOCK_SCOPE(&t->links->scan_lock);
	if (!begin_scan(t->links))
		return 0;
	r = scan_below(t, "");
	while (r == 0 && (dir = next_again(t->links))) {
		r = scan_moved(t, dir);
		inode_unref(t, dir);
	}
	return r;
}

/* ---- both ---- */

static int set_add(struct hardlink_set *s, struct inode *dir, const char *name)
{
	int r = array_reserve(&s->v, &s->cap, s->n + 1);

	if (r == 0)
		s->v[s->n++] = (struct hardlink_place){ .dir = dir, .name = name };
	return r;
}

static bool has_place(const struct hardlink_set *s, size_t from, const struct inode *dir)
{
	while (from < s->n && s->v[from].dir != dir)
		from++;
	return from < s->n;
}

/* Add the name of e in dir, which is merged with e's directory of the image, if it is visible. Uses
 * up the reference of dir. from: the start of e's places in the set. */
static int add_if_seen(struct union_fs *t, struct inode *dir, struct image_entry *e, size_t from,
		       struct hardlink_set *ret)
{
	struct lookup_state state;
	int r = lookup_state(t, dir, e->name, &state);

	if (r == 0 && state.where == LOOKUP_LOWER && state.below == e &&
	    !has_place(ret, from, dir)) {
		r = set_add(ret, dir, e->name);
		if (r == 0)
			return 0;
	}
	inode_unref(t, dir);
	return r;
}

/* A directory can be at two places only if a rename hides the old name in a later step. */
static bool is_at_one_place(const struct union_fs *t)
{
	return t->style.has_device && t->style.has_rename;
}

/* Add the names in all directories of the mount that are merged with e's directory of the image. */
static int add_all_seen(struct union_fs *t, struct image_entry *e, struct hardlink_set *ret)
{
	size_t from = ret->n;
	struct inode *start, *dir;
	int r;

	inode_ref(t, t->root);
	r = descend(t, t->root, image_root(t->image), e->parent, &dir);
	if (r == 0) {
		r = add_if_seen(t, dir, e, from, ret);
		if (r < 0 || is_at_one_place(t))
			return r;
	}
	if (r == 0 || r == -ENOENT)
		r = scan_upper(t);
	for (struct image_entry *top = e->parent; r == 0 && top->parent; top = top->parent)
		for (size_t n = 0; r == 0 && (start = find_moved(t, top, n)); n++) {
			r = descend(t, start, top, e->parent, &dir);
			if (r == 0)
				r = add_if_seen(t, dir, e, from, ret);
			else if (r == -ENOENT)
				r = 0;
		}
	return r;
}

int hardlink_index_find(struct union_fs *t, struct image_entry *e, struct hardlink_set *ret)
{
	struct image_entries siblings = { 0 };
	int r = find_siblings(t, e, &siblings);

	*ret = (struct hardlink_set){ 0 };
	for (size_t k = 0; r == 0 && k < siblings.n; k++) {
		r = image_is_same_file(t->image, siblings.v[k], e);
		if (r > 0) /* and it is not on another mount, below a mount point */
			r = add_all_seen(t, siblings.v[k], ret);
	}
	free(siblings.v);
	return r;
}

void hardlink_index_set_release(struct union_fs *t, struct hardlink_set *s)
{
	for (size_t k = 0; k < s->n; k++)
		inode_unref(t, s->v[k].dir);
	free(s->v);
	*s = (struct hardlink_set){ 0 };
}
