// SPDX-License-Identifier: Apache-2.0
#include "veneer/mount/mount_freeze.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/data/materialize.h"
#include "veneer/data/publish.h"
#include "veneer/jobs/upper_walk.h"
#include "veneer/layer/image_hidden.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/passthrough/passthrough_table.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/lookup.h"
#include "veneer/union/upper.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct listed {
	struct inode **v; /* referenced */
	size_t n, cap;
	int error;
};

static bool list_inode(struct listed *l, struct inode *i)
{
	l->error = array_reserve(&l->v, &l->cap, l->n + 1);
	if (l->error)
		return false;
	l->v[l->n++] = i;
	return true;
}

/* Call fn for each inode until one fails; returns that error, or 0. Releases the list. */
static int each_listed(struct listed *l, struct union_fs *t,
		       int (*fn)(struct union_fs *t, struct inode *i, void *arg), void *arg)
{
	int r = l->error;

	for (size_t k = 0; k < l->n; k++) {
		r = r ?: fn(t, l->v[k], arg);
		inode_unref(t, l->v[k]);
	}
	free(l->v);
	return r;
}

/* A nameless file that a descriptor holds stays readable. But another name of it would lead to the
 * snapshot, and the map of a partial one moves there. */
static int check_held(int fd, uint8_t type)
{
	struct partial_xattr mark;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (type != DT_DIR && st.st_nlink)
		return -EUSERS;
	return type == DT_REG && source_read_mark(fd, "", &mark, NULL) != 0 ? -EUSERS : 0;
}

/* Find the directory at a path of the image as the union shows it; later images have it, too. NULL:
 * there is none, or -errno in *r. */
static struct inode *find_dir(struct union_fs *t, const char *path, size_t len, int *r)
{
	struct inode *dir = t->root;

	inode_ref(t, dir);
	for (const char *at = path, *end = path + len; at < end && inode_is_dir(dir);) {
		struct inode *next;
		char name[NAME_MAX + 1];
		size_t n = 0;
		struct stat st;

		while (at + n < end && at[n] != '/' && n < NAME_MAX)
			n++;
		memcpy(name, at, n);
		name[n] = '\0';
		at += n + (at + n < end);
		*r = lookup_name(t, dir, name, &next, &st);
		if (*r < 0)
			break;
		inode_unref(t, dir);
		dir = next;
	}
	if (*r == 0 && inode_is_dir(dir))
		return dir;
	inode_unref(t, dir);
	return NULL;
}

/* A lower file that the upper hides is found again through its directory (image_hidden.h), if it is
 * still there. */
static int check_hidden(struct union_fs *t, uint32_t id)
{
	struct image_entry *below;
	char path[PATH_MAX];
	struct inode *dir;
	const char *slash;
	int r = inode_orphan_path(t, id, path);

	if (r < 0)
		return -EUSERS;
	slash = strrchr(path, '/');
	r = image_hidden_dir(t->image, path, &below);
	dir = r == 0 ? find_dir(t, path, slash ? (size_t)(slash - path) : 0, &r) : NULL;
	if (!dir)
		return r == -ENOMEM || r == -EIO ? r : -EUSERS;
	r = inode_lower(dir) == below ? 0 : -EUSERS;
	inode_unref(t, dir);
	return r;
}

static int check_orphan(struct union_fs *t, struct inode *i, void *unused)
{
	const struct node_slot *s = inode_slot(t, i->id);

	(void)unused;
	/* A stale inode shows nothing. */
	if (!s || !s->nlookup || i->stage == INODE_STALE)
		return 0;
	if (s->held_fd)
		return check_held(s->held_fd - 1, s->type);
	return s->type == DT_DIR ? 0 : check_hidden(t, (uint32_t)i->id);
}

/* Called with the table's lock. */
static bool list_orphan(void *arg, struct inode *i)
{
	return inode_is_orphan(i) && list_inode(arg, i);
}

/* Called with the table's lock. */
static bool list_held_named(void *arg, struct inode *i)
{
	return i->is_held && !inode_is_orphan(i) && list_inode(arg, i);
}

static int let_go(struct union_fs *t, struct inode *i, void *unused)
{
	(void)unused;
	upper_let_go(t, i);
	return i->is_held ? -EUSERS : 0;
}

/* Release the descriptor of an inode that lost one name and was found by another. Later lookups
 * would use the descriptor, which leads into the snapshot. */
static int let_named_go(struct union_fs *t)
{
	struct listed held = { 0 };

	inode_each_special(t, list_held_named, &held);
	return each_listed(&held, t, let_go, NULL);
}

static int check_orphans(struct union_fs *t)
{
	struct listed orphans = { 0 };

	inode_each_special(t, list_orphan, &orphans);
	return each_listed(&orphans, t, check_orphan, NULL);
}

/* The kernel grants no read lease while a descriptor or a mapping may write the file. */
static int ask_for_lease(int fd)
{
	char path[sizeof("/proc/self/fd/-2147483648")];
	_cleanup_(closep) int reader = -1;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (reader < 0)
		return -errno;
	fd = fcntl(reader, F_SETLEASE, F_RDLCK);
	return fd == 0 ? 0 : errno == EAGAIN || errno == EBUSY ? -ETXTBSY : -ENOLCK;
}

/* Open with O_PATH, which does not prevent a lease. */
static int open_path_of(int fd)
{
	char path[sizeof("/proc/self/fd/-2147483648")];
	int ret;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ret = open(path, O_PATH | O_CLOEXEC);
	return ret < 0 ? -errno : ret;
}

static int check_lease(struct union_fs *t, struct inode *i, void *unused)
{
	_cleanup_(closep) int own = -1;
	int fd, r = lookup_restore(t, i);

	(void)unused;
	if (r < 0)
		return -ETXTBSY;
	/* The file belongs to a snapshot already. */
	if (!inode_has_upper(i) || inode_is_orphan(i))
		return 0;
	fd = upper_pin(t, i);
	if (fd < 0)
		return fd;
	own = open_path_of(fd);
	upper_unpin(i);
	/* Our own descriptor may write, and so may one that a background job has open just now. */
	if (own < 0)
		return own;
	return fd_cache_drop_idle(&i->src.fd) ? ask_for_lease(own) : -ETXTBSY;
}

/* Called with the table's lock. */
static bool list_changing(void *arg, struct inode *i)
{
	struct listed *c = arg;

	if (i->sync_error)
		c->error = c->error ?: -EIO;
	/* An inode of a dead server has only the state that the server had saved. */
	if (c->error || !inode_is_mapped_past_us(i) || inode_is_orphan(i) ||
	    (inode_is_resolved(i) && !inode_has_upper(i)))
		return false;
	return list_inode(c, i);
}

static int check_mappings(struct union_fs *t)
{
	struct listed c = { 0 };

	inode_each_special(t, list_changing, &c);
	return each_listed(&c, t, check_lease, NULL);
}

/* Called with the table's lock. */
static bool list_nameless(void *arg, struct inode *i)
{
	return inode_is_orphan(i) && inode_is_regular(i) && i->is_held && list_inode(arg, i);
}

/* Count the names that the upper has for a nameless inode; 0: it is gone. */
static int count_links(struct union_fs *t, struct inode *i, nlink_t *ret)
{
	int r = lookup_restore(t, i), fd = r == 0 && inode_has_upper(i) ? upper_pin(t, i) : -ENOENT;
	struct stat st;

	*ret = 0;
	if (fd < 0)
		return r == -ESTALE || fd == -ENOENT ? 0 : r ?: fd;
	r = fstat(fd, &st) < 0 ? -errno : 0;
	upper_unpin(i);
	*ret = r == 0 ? st.st_nlink : 0;
	return r;
}

static int complete(struct union_fs *t, struct inode *i, void *arg)
{
	nlink_t n;
	int r = count_links(t, i, &n);

	if (r < 0 || n || !inode_partial_id(i))
		return r;
	r = materialize_fill_file(arg, i);
	r = r ?: materialize_finish(arg, i);
	return r < 0 ? r : 0;
}

static int note_linked(struct union_fs *t, struct inode *i, void *arg)
{
	bool *is_linked = arg;
	nlink_t n;
	int r = count_links(t, i, &n);

	*is_linked |= n > 0;
	return r;
}

static int pass_by(void *arg, struct inode *parent, const char *name, struct inode *i)
{
	(void)arg;
	(void)parent;
	(void)name;
	(void)i;
	return 0;
}

static int pass_by_missing(void *arg, struct inode *parent, const char *name, int error)
{
	return (void)error, pass_by(arg, parent, name, NULL);
}

/* An inode left by a dead server or by an earlier snapshot is known by one of its names only. After
 * that name is removed, looking up the others restores them. */
static int name_again(struct union_fs *t)
{
	static const struct upper_walk_hooks hooks = { .entry = pass_by, .miss = pass_by_missing };
	struct listed nameless = { 0 };
	bool is_linked = false;
	int r;

	inode_each_special(t, list_nameless, &nameless);
	r = each_listed(&nameless, t, note_linked, &is_linked);
	return r == 0 && is_linked ? upper_walk(t, &hooks, NULL) : r;
}

int mount_freeze_prepare(struct mount *m)
{
	struct union_fs *t = &m->tree;
	struct listed nameless = { 0 };
	struct materialize w;
	int r = materialize_init(&w, t, false);

	w.takes_nameless = true;
	r = r ?: name_again(t);
	if (r == 0) {
		inode_each_special(t, list_nameless, &nameless);
		r = each_listed(&nameless, t, complete, &w);
	}
	materialize_release(&w);
	return r;
}

int mount_freeze_check(struct mount *m)
{
	struct union_fs *t = &m->tree;
	int r = t->sync_error ?: mount_freeze_prepare(m);

	r = r ?: let_named_go(t);
	r = r ?: check_orphans(t);
	publish_close(t);
	if (r == 0 &&
	    faccessat(t->upper->rootfd, PUBLISH_PENDING_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		r = -ENOTEMPTY;
	/* Release unused registrations that keep a file open for writing. */
	if (r == 0 && t->backing)
		r = passthrough_table_release_idle(t->backing);
	r = r ?: check_mappings(t);
	if (r == 0 && t->backing)
		passthrough_table_freeze(t->backing);
	return r;
}
