// SPDX-License-Identifier: Apache-2.0
#include "veneer/mount/mount_rollback.h"

#include "mount_layers.h"
#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/data/copyup.h"
#include "veneer/layer/layer_registry.h"
#include "veneer/sys/kernel_evict.h"
#include "veneer/union/inode_rollback.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/lookup.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FORGET_TRIES 200
#define FORGET_US    1000u

int mount_rollback_image(struct mount *m, struct mount_dirs *dirs, uint64_t head,
			 struct image **ret, char *err, size_t err_size)
{
	_cleanup_(mount_layers_release) struct mount_layers l = { .must_hold = true,
								  .has_head = true,
								  .head = head };
	int r = mount_layers_open(&l, m, dirs, err, err_size);

	if (r == 0) {
		r = layer_registry_image(l.layers, l.n, dirs->opener, ret);
		if (r < 0)
			snprintf(err, err_size, "cannot stack %zu layers: %s", l.n, strerror(-r));
	}
	mount_dirs_release(dirs);
	return r;
}

/* The kernel forgets inodes by requests, which the mount's threads process. */
static void await_forgets(struct union_fs *t)
{
	size_t n = inode_count(t), before = n + 1;

	for (int k = 0; k < FORGET_TRIES && n < before; k++) {
		usleep(FORGET_US);
		before = n;
		n = inode_count(t);
	}
}

int mount_rollback_prune(struct mount *m, int fuse_fd)
{
	_cleanup_(freep) uint64_t *nodes = malloc(KERNEL_EVICT_NODES_MAX * sizeof(*nodes));
	struct union_fs *t = &m->tree;
	sigset_t all, before;
	uint32_t from = 0;
	int r = nodes ? 0 : -ENOMEM;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	do {
		size_t n = r < 0 ? 0 : inode_list_idle(t, &from, nodes, KERNEL_EVICT_NODES_MAX);

		if (n)
			r = kernel_evict_nodes(fuse_fd, nodes, n);
	} while (r >= 0 && from);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r < 0)
		return r == -EINVAL ? -ENOSYS : r;
	await_forgets(t);
	return 0;
}

/* ---- files in use ---- */

struct listed {
	struct inode **v; /* referenced */
	size_t n, cap;
	int error;
};

static bool list(struct listed *l, struct inode *i)
{
	l->error = l->error ?: array_reserve(&l->v, &l->cap, l->n + 1);
	if (l->error)
		return false;
	l->v[l->n++] = i;
	return true;
}

/* Called with the table's lock. */
static bool list_file(void *arg, struct inode *i)
{
	return inode_is_regular(i) && i->stage != INODE_STALE && list(arg, i);
}

/* Called with the table's lock. */
static bool list_dir(void *arg, struct inode *i)
{
	return inode_is_dir(i) && i->stage != INODE_STALE && list(arg, i);
}

struct going_back {
	struct mount *m;
	struct image *next;
	size_t n;
	uint64_t nbytes;
};

/* Are both entries the same file of one layer with the same inode number? 1, 0 or -errno. */
static int is_same(struct image *a, struct image_entry *ea, struct image *b, struct image_entry *eb)
{
	_cleanup_(closep) int fa = image_open_path(a, ea), fb = image_open_path(b, eb);
	struct stat sa, sb;

	if (fa < 0 || fb < 0)
		return fa < 0 ? fa : fb;
	if (fstat(fa, &sa) < 0 || fstat(fb, &sb) < 0)
		return -errno;
	return sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino &&
	       image_ino(a, ea) == image_ino(b, eb);
}

/* Does the file stay the same after the rollback? 1, 0 or -errno. */
static int stays(struct going_back *g, struct inode *i)
{
	struct union_fs *t = &g->m->tree;
	_cleanup_(freep) char *path = NULL;
	struct image_entry *e;
	int r;

	if (inode_has_upper(i))
		return 0;
	path = inode_rollback_path(t, i);
	if (!path)
		return 0;
	r = image_lookup_path(g->next, path + strspn(path, "/"), &e);
	if (r == -ENOENT || r == -ENOTDIR)
		return 0;
	return r ?: e->type == DT_REG ? is_same(t->image, inode_lower(i), g->next, e) : 0;
}

static int keep(struct going_back *g, struct inode *i)
{
	struct union_fs *t = &g->m->tree;
	struct stat st;
	int fd = -1, r = lookup_stat(t, i, &st);

	if (r < 0)
		return r;
	g->nbytes += (uint64_t)st.st_size;
	if (++g->n > MOUNT_ROLLBACK_COPIES || g->nbytes > MOUNT_ROLLBACK_BYTES)
		return -EFBIG;
	r = copyup_nameless(t, i, &fd);
	if (r == 0)
		inode_rollback_keep(t, i, fd);
	return r;
}

static int keep_if_it_changes(struct going_back *g, struct inode *i)
{
	const struct node_slot *s = inode_slot(&g->m->tree, i->id);
	int r;

	/* A file held by a descriptor stays as it is; a file that nobody uses is looked up anew. */
	if (!s || !(s->nlookup || i->n_former) || s->held_fd)
		return 0;
	r = lookup_restore(&g->m->tree, i);
	if (r == -ESTALE)
		return 0;
	r = r ?: stays(g, i);
	return r == 0 ? keep(g, i) : r < 0 ? r : 0;
}

int mount_rollback_prepare(struct mount *m, struct image *next, uint64_t kept)
{
	struct union_fs *t = &m->tree;
	struct going_back g = { .m = m, .next = next };
	struct listed files = { 0 };
	int r;

	inode_each(t, list_file, &files);
	r = files.error;
	inode_rollback_begin(t, kept);
	for (size_t k = 0; k < files.n; k++) {
		r = r ?: keep_if_it_changes(&g, files.v[k]);
		inode_unref(t, files.v[k]);
	}
	free(files.v);
	if (r < 0)
		inode_rollback_cancel(t);
	return r;
}

void mount_rollback_cancel(struct mount *m)
{
	inode_rollback_cancel(&m->tree);
}

/* ---- names in the kernel's cache ---- */

struct telling {
	void (*fn)(void *arg, uint64_t node, const char *name);
	void *arg;
};

/* Called with the table's lock. */
static void tell_name(void *arg, uint32_t parent, const char *name, size_t len)
{
	struct telling *to = arg;
	char copy[NAME_MAX + 1];

	if (len > NAME_MAX)
		return;
	memcpy(copy, name, len);
	copy[len] = '\0';
	to->fn(to->arg, parent, copy);
}

/* Report every name of the directory, as the kernel may have cached that one does not exist. 0 or
 * -errno. */
static int tell_dir(struct union_fs *t, struct inode *dir, struct telling *to)
{
	struct lookup_entry e;
	uint64_t pos = 0;
	int r;

	to->fn(to->arg, inode_id(dir), "");
	r = lookup_restore(t, dir);
	if (r < 0)
		return r == -ESTALE ? 0 : r;
	while ((r = lookup_next(t, dir, &pos, &e)) > 0)
		to->fn(to->arg, inode_id(dir), e.name);
	/* The directory was removed, and a program has it open: it has no names. */
	return r == -ENOENT ? 0 : r;
}

bool mount_rollback_is_unsaid(struct mount *m)
{
	return m->tree.upper && inode_rollback_is_unsaid(&m->tree);
}

/* Called with the table's lock. */
static bool list_copied(void *arg, struct inode *i)
{
	return i->has_copy && list(arg, i);
}

void mount_rollback_each_name(struct mount *m,
			      void (*fn)(void *arg, uint64_t node, const char *name), void *arg)
{
	struct telling to = { fn, arg };
	struct listed copied = { 0 };

	inode_rollback_each_name(&m->tree, tell_name, &to);
	/* A copied file has no name, so its link count differs. */
	inode_each(&m->tree, list_copied, &copied);
	for (size_t k = 0; k < copied.n; k++) {
		fn(arg, inode_id(copied.v[k]), NULL);
		inode_unref(&m->tree, copied.v[k]);
	}
	free(copied.v);
}

int mount_rollback_each_dir(struct mount *m, void (*fn)(void *arg, uint64_t node, const char *name),
			    void *arg)
{
	struct telling to = { fn, arg };
	struct listed dirs = { 0 };
	int r;

	inode_each(&m->tree, list_dir, &dirs);
	r = dirs.error;
	for (size_t k = 0; k < dirs.n; k++) {
		int e = tell_dir(&m->tree, dirs.v[k], &to);

		r = r ?: e;
		inode_unref(&m->tree, dirs.v[k]);
	}
	free(dirs.v);
	return r;
}

void mount_rollback_end(struct mount *m)
{
	inode_rollback_end(&m->tree);
}
