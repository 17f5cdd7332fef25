// SPDX-License-Identifier: Apache-2.0
#include "inode-internal.h"
#include "lookup-internal.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/layer/image_hidden.h"
#include "veneer/layer/partial_xattr.h"

#include <dirent.h>
#include <inttypes.h>
#include <string.h>

#define RESTORE_TRIES 1000 /* each but the last failed because a directory changed meanwhile */

/* ---- inodes without a name ---- */

/* The ways that lead to the object of an unresolved inode. */
struct remains {
	/* directory of its name; referenced. NULL: no name, or the directory is not resolved */
	struct inode *dir;
	char name[NAME_MAX + 1];
	char path[PATH_MAX]; /* in the image; "": none recorded */
	int fd; /* held and pinned; -1: none */
};

static void remains_release(struct union_fs *t, struct remains *m)
{
	if (m->dir)
		inode_unref(t, m->dir);
}

static void remains_read(struct union_fs *t, struct inode *i, struct remains *m)
{
	const char *name;
	uint32_t parent;
	size_t len;

	*m = (struct remains){ .fd = -1 };
	if (inode_any_name(t, i, &m->dir, m->name) < 0)
		m->dir = NULL;
	if (m->dir && m->dir->stage != INODE_RESOLVED) {
		inode_unref(t, m->dir);
		m->dir = NULL;
	}
	LOCK_SCOPE(&t->inodes->lock);
	if (i->stage == INODE_RESOLVED)
		return;
	m->fd = i->src.fd.fd_plus_one - 1;
	len = node_table_name(t->nodes, i->id, &parent, &name);
	if (len && len < sizeof(m->path) && !parent)
		memcpy(m->path, name, len);
}

/* Find the image entry that it showed, or that has its bytes. */
static int find_entry(struct union_fs *t, const struct remains *m, struct image_entry **ret)
{
	int r = -ENOENT;

	if (*m->path)
		r = image_lookup_path(t->image, m->path, ret);
	else if (m->dir && m->dir->lower)
		r = image_lookup(t->image, m->dir->lower, m->name, ret);
	return r == -ENOTDIR ? -ENOENT : r;
}

static int find_base(struct union_fs *t, const struct remains *m, const struct partial_xattr *mark,
		     struct image_entry **ret)
{
	int r = *mark->path ? image_lookup_path(t->image, mark->path, ret) : find_entry(t, m, ret);

	return r == 0 && (*ret)->type != DT_REG ? -ENOENT : r;
}

static int find_held(struct union_fs *t, struct inode *i, const struct remains *m,
		     struct inode_found *f, bool *ret_is_gone)
{
	struct partial_xattr mark;
	struct image_entry *base;
	struct stat st;
	int r;

	if (fstat(m->fd, &st) < 0)
		return -errno;
	*f = (struct inode_found){ .type = i->type,
				   .has_upper = true,
				   .upper_ino = st.st_ino,
				   .upper_dev = inode_upper_dev(t, st.st_dev),
				   .ino = i->ino };
	*ret_is_gone = st.st_nlink == 0;
	if (i->type != DT_REG)
		return 0;
	r = source_read_mark(m->fd, "", &mark, NULL);
	if (r == 1 && source_needs_lower(t->map, &mark, (uint64_t)st.st_size) == 0) {
		f->map = t->map;
		f->id = mark.file_id;
		r = 0;
	}
	if (r == 1) {
		r = find_base(t, m, &mark, &base);
		if (r == 0)
			r = lookup_base(t, m->fd, &mark, base, "(a removed file)", f);
		if (r == -ENOENT || r == -ENOTDIR)
			r = -EUCLEAN;
	}
	f->is_damaged = r == -EUCLEAN;
	return r == -EUCLEAN ? 0 : r;
}

static int find_hidden(struct union_fs *t, struct inode *i, const struct remains *m,
		       struct inode_found *f)
{
	struct image_entry *e;
	int r = find_entry(t, m, &e);

	if (r == 0 && (e->type != i->type || image_ino(t->image, e) != i->ino))
		r = -ENOENT;
	if (r == -ENOENT && *m->path)
		r = image_hidden_find(t->image, m->path, i->type, i->ino, &e);
	if (r == 0)
		*f = (struct inode_found){ .type = e->type, .lower = e, .ino = i->ino };
	return r;
}

static int restore_orphan(struct union_fs *t, struct inode *i)
{
	struct inode_found f;
	struct remains m;
	bool is_gone = false;
	int r;

	remains_read(t, i, &m);
	r = m.fd >= 0 ? find_held(t, i, &m, &f, &is_gone) : find_hidden(t, i, &m, &f);
	if (r == 0)
		r = inode_resolve_orphan(t, i, &f, is_gone);
	if (r == -ENOENT || r == -ESTALE) {
		log_debug("node %" PRIu32 ": its file of the dead server is gone", (uint32_t)i->id);
		inode_mark_stale(t, i);
		r = i->stage == INODE_RESOLVED ? 0 : -ESTALE;
	}
	remains_release(t, &m);
	return r;
}

/* ---- inodes with a name ---- */

/* -ENOENT or -ESTALE: the name has no object, or another one. */
static int restore_named(struct union_fs *t, struct inode *i)
{
	char name[NAME_MAX + 1];
	struct inode_found f;
	struct inode *dir;
	int r = inode_any_name(t, i, &dir, name);

	if (r < 0)
		return r;
	if (dir->stage == INODE_STALE)
		r = -ENOENT;
	else
		r = dir->stage == INODE_RESOLVED ? lookup_find(t, dir, name, &f) : -EAGAIN;
	if (r == 0)
		r = inode_resolve(t, i, dir, name, &f);
	inode_unref(t, dir);
	return r;
}

/* The inodes above it are resolved or stale. */
static int restore_one(struct union_fs *t, struct inode *i)
{
	int r = 0;

	if (i->stage == INODE_UNRESOLVED)
		r = restore_named(t, i);
	if (i->stage == INODE_UNRESOLVED && (r == -ENOENT || r == -ESTALE))
		return restore_orphan(t, i);
	if (r == -EAGAIN)
		return r;
	return i->stage == INODE_STALE ? -ESTALE : i->stage == INODE_RESOLVED ? 0 : r;
}

struct chain {
	struct inode **v; /* referenced; an inode, and the unresolved ones above it */
	size_t n, cap;
};

static int chain_add(struct chain *c, struct inode *i)
{
	int r = array_reserve(&c->v, &c->cap, c->n + 1);

	if (r == 0)
		c->v[c->n++] = i;
	return r;
}

static int climb(struct union_fs *t, struct inode *i, struct chain *c)
{
	char name[NAME_MAX + 1];
	int r;

	inode_ref(t, i);
	for (;;) {
		struct inode *parent;

		r = chain_add(c, i);
		if (r < 0) {
			inode_unref(t, i);
			return r;
		}
		if (inode_any_name(t, i, &parent, name) < 0)
			return 0;
		if (parent->stage != INODE_UNRESOLVED) {
			inode_unref(t, parent);
			return 0;
		}
		i = parent;
	}
}

static int restore_chain(struct union_fs *t, struct inode *i)
{
	struct chain c = { 0 };
	int r = climb(t, i, &c);

	/* From the top; a loop instead of recursion, since a container decides the depth. */
	for (size_t k = c.n; r == 0 && k-- > 0;) {
		r = restore_one(t, c.v[k]);
		/* A child of a stale directory may have a held descriptor. */
		if (r == -ESTALE && k > 0)
			r = 0;
	}
	for (size_t k = 0; k < c.n; k++)
		inode_unref(t, c.v[k]);
	free(c.v);
	return r;
}

int restore_inode(struct union_fs *t, struct inode *i)
{
	for (unsigned attempt = 0; attempt < RESTORE_TRIES; attempt++) {
		int r;

		if (i->stage == INODE_RESOLVED)
			return 0;
		r = i->stage == INODE_STALE ? -ESTALE : restore_chain(t, i);
		if (r != -EAGAIN)
			return r;
	}
	return -EIO;
}

int restore_others(struct union_fs *t, const struct inode_found *found)
{
	struct inode *i;
	int r = 0;

	if (!inode_count_unresolved(t) || found->type == DT_DIR)
		return 0;
	while (r == 0 && (i = inode_find_unresolved(t, found))) {
		r = lookup_restore(t, i);
		inode_unref(t, i);
		if (r == -ESTALE)
			r = 0;
	}
	return r;
}
