// SPDX-License-Identifier: Apache-2.0
#include "mount_layers.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/layer/layer_registry.h"
#include "veneer/layer/snapshot_links.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/sys/probe.h"
#include "veneer/sys/xattr.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bool supports_trusted(const struct layer *l)
{
	ssize_t n = xattr_get(l->rootfd, "", "trusted.veneer", NULL, 0);

	/* On an error yes: attributes that users can write are then not trusted. */
	return n != -EOPNOTSUPP && n != -ENOSYS;
}

/* With user.* attributes, the owner of a file could make it set-uid root, or get access to files of
 * root. Only where the file system has no trusted.* are root's attributes user.*, too. Tools serve
 * no user, so they show owners and modes as they are. */
void mount_layers_trust(struct mount *m, struct layer *l)
{
	const bool doubts = probe_is_trusted() && !m->opts.is_userxattr;

	l->is_doubted = doubts && supports_trusted(l);
	if (!doubts || m->opts.xattr_permissions || !l->override ||
	    strncmp(l->override, "user.", strlen("user.")) != 0 || m->opts.is_offline)
		return;
	if (!m->has_warned_override)
		log_warn("%s: owners and modes in %s are ignored, since the owner of a file may "
			 "write them: "
			 "mount with xattr_permissions=2 to have them",
			 l->path, l->override);
	m->has_warned_override = true;
	l->override = NULL;
}

void mount_layers_release(struct mount_layers *l)
{
	for (size_t k = 0; k < l->n; k++)
		layer_unref(l->layers[k]);
	free(l->layers);
}

struct building {
	struct mount_layers *l;
	struct mount *m;
	char *err;
	size_t err_size;
};

/* Check the directory itself, as a path may lead elsewhere through a symlink or "..". */
static bool is_snapshot_dir(int fd)
{
	struct stat above, branches;

	return fstatat(fd, "..", &above, 0) == 0 &&
	       fstatat(fd, "../../" BRANCH_DIR_NAME, &branches, AT_SYMLINK_NOFOLLOW) == 0 &&
	       above.st_dev == branches.st_dev && above.st_ino == branches.st_ino;
}

/* fd is taken over. what: a noun for the sentence. */
static int add(struct building *b, int fd, const char *path, const char *what)
{
	const bool may_be_snapshot = fd >= 0 && strstr(path, "/" BRANCH_DIR_NAME "/");
	const bool is_snapshot = may_be_snapshot && is_snapshot_dir(fd);
	struct layer *layer = NULL;
	int r = may_be_snapshot ? branch_dir_hold(fd) : 0, held = r;

	if (r < 0 && b->l->must_hold)
		close(fd);
	else
		r = fd < 0 ? fd : layer_open_fd(fd, path, &layer);

	r = r ?: array_grow(&b->l->layers, b->l->n);
	if (r < 0) {
		snprintf(b->err, b->err_size, "cannot open %s %s: %s", what, path, strerror(-r));
		layer_unref(layer);
		return r;
	}
	mount_layers_trust(b->m, layer);
	layer->is_frozen = is_snapshot && held == 0;
	/* A branch has the snapshot as an ordinary lower layer. */
	if (is_snapshot)
		snapshot_links_attach(layer);
	b->l->layers[b->l->n++] = layer;
	return 0;
}

static int fail_memory(struct building *b)
{
	snprintf(b->err, b->err_size, "out of memory");
	return -ENOMEM;
}

static int add_part(struct building *b, int rootfd, const char *path, uint64_t id)
{
	_cleanup_(freep) char *there = NULL;

	if (asprintf(&there, "%s/" BRANCH_DIR_NAME "/%016" PRIx64, path, id) < 0) {
		there = NULL;
		return fail_memory(b);
	}
	/* The snapshot is in the chain, so it is not being removed. */
	return add(b, branch_dir_open(rootfd, id), there, "snapshot");
}

static int add_snapshot(struct building *b, int rootfd, const char *path, uint64_t id)
{
	int r = add_part(b, rootfd, path, id);

	if (r == 0)
		layer_note_snapshot(b->l->layers[b->l->n - 1]);
	return r;
}

/* Add the part of an interrupted snapshot that has already moved. */
static int add_rest(struct building *b, int rootfd, const char *path, uint64_t id)
{
	int r = add_part(b, rootfd, path, id);

	if (r == 0)
		layer_note_rest(b->l->layers[b->l->n - 1]);
	return r;
}

/* The live part of a layer, which stands on snapshots. is_written: it is this mount's upper, which
 * is locked later; its interrupted snapshots are recovered then. */
struct live_part {
	int rootfd;
	const char *path;
	bool is_written;
	bool has_head; /* use head instead of the chain's */
	uint64_t head; /* set from the chain unless has_head */
};

static int fail_chain(struct building *b, const char *path, int r)
{
	snprintf(b->err, b->err_size, "cannot use the snapshots in %s: %s", path,
		 r == -EPROTO	 ? "a newer version wrote their chain"
		 : r == -EUCLEAN ? "their chain is damaged"
				 : strerror(-r));
	return r;
}

static int add_chain(struct building *b, const struct live_part *p, const struct branch_chain *c)
{
	size_t n = branch_chain_below(c, c->head, NULL);
	_cleanup_(freep) uint64_t *ids = calloc(n + 1, sizeof(*ids));
	int r = 0;

	if (!ids)
		return fail_memory(b);
	branch_chain_below(c, c->head, ids);
	for (size_t k = 0; k < n && r == 0; k++) {
		r = add_snapshot(b, p->rootfd, p->path, ids[k]);
		if (r == 0 && k == 0 && !p->is_written)
			branch_dir_taken_time(p->rootfd, c, &b->l->layers[b->l->n - 1]->root_mtime);
	}
	return r;
}

static int add_snapshots(struct building *b, struct live_part *p)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	uint64_t pending = 0;
	int r = branch_dir_load(p->rootfd, &c);

	r = r == -ENOENT ? 0 : r;
	if (r == 0 && !p->is_written)
		r = branch_dir_pending(p->rootfd, &c, &pending);
	if (r < 0)
		return fail_chain(b, p->path, r);
	if (p->has_head)
		c.head = p->head;
	p->head = c.head;
	r = pending ? add_rest(b, p->rootfd, p->path, pending) : 0;
	return r ?: add_chain(b, p, &c);
}

static int add_lower(struct building *b, struct mount_dirs *dirs, size_t i)
{
	const char *path = b->m->opts.lower[i];
	struct live_part live = { .path = path };
	struct layer *layer;
	int r = add(b, steal_fd(&dirs->lower[i]), path, "lowerdir");

	if (r < 0)
		return r;
	layer = b->l->layers[b->l->n - 1];
	if (layer_registry_is_written(layer))
		log_warn("%s: lowerdir %s is the upperdir of another mount in use: its "
			 "changes may or may not be visible here",
			 b->m->opts.mountpoint, path);
	if (b->m->opts.has_static_layers)
		layer_trust_remote(layer);
	if (dirs->n_clones) {
		lock_is_private(&layer->clone_lock);
		layer->readonly_root = steal_fd(&dirs->clones[i]);
	}
	live.rootfd = layer->rootfd;
	return add_snapshots(b, &live);
}

static int add_upper(struct building *b, struct mount_dirs *dirs)
{
	struct mount *m = b->m;
	struct live_part live = { .path = m->opts.upper,
				  .has_head = b->l->has_head,
				  .head = b->l->head };
	int r;

	if (!m->opts.is_readonly) {
		MODE_RELAX_SCOPE(dirs->upper, "");
		live.rootfd = dirs->upper;
		live.is_written = true;
		r = add_snapshots(b, &live);
		if (!live.has_head)
			m->snapshot = live.head;
		return r;
	}
	/* A read-only mount shows the upper as its topmost layer, and changes nothing. */
	r = add(b, steal_fd(&dirs->upper), live.path, "upperdir");
	if (r < 0)
		return r;
	live.rootfd = b->l->layers[0]->rootfd;
	return add_snapshots(b, &live);
}

int mount_layers_open(struct mount_layers *l, struct mount *m, struct mount_dirs *dirs, char *err,
		      size_t err_size)
{
	struct building b = { l, m, err, err_size };
	int r = m->opts.upper ? add_upper(&b, dirs) : 0;

	for (size_t i = 0; i < m->opts.n_lower && r == 0; i++)
		r = add_lower(&b, dirs, i);
	return r;
}
