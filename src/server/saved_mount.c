// SPDX-License-Identifier: Apache-2.0
#include "saved_mount.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/base/stats.h"
#include "veneer/layer/layer_registry.h"
#include "veneer/recover/intent_log.h"
#include "veneer/union/inode_rebuild.h"
#include "veneer/union/locks.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TRIES	 4 /* if the disk fails */
#define RETRY_US 10000u /* doubles with each try */

struct reopening {
	struct image *image;
	struct mount *m;
	bool *has_mount;
	char *err;
	size_t err_size;
};

int saved_mount_write(struct saved_mount *k, struct mount *m, int fuse_fd, const void *init,
		      size_t len)
{
	struct layer *const *layers;
	size_t n = image_layers(m->tree.image, &layers);
	struct mount_record *d = &k->mount_record;
	int r = 0;

	d->key = m->key;
	d->io = m->io;
	/* The next server cannot see the process that opened the directories: it will be gone. */
	d->dirs.opener = layer_registry_has_private(layers, n) ? LAYER_REGISTRY_NOT_SEEN
							       : LAYER_REGISTRY_SEEN_PLAIN;
	node_table_fds(m->tree.nodes, &d->slots_fd, &d->names_fd);
	d->locks_fd = m->tree.locks ? locks_fd(m->tree.locks) : -1;
	if (m->lock.fd >= 0) {
		d->dirs.lock = fcntl(m->lock.fd, F_DUPFD_CLOEXEC, 3);
		r = d->dirs.lock < 0 ? -errno : 0;
	}
	if (r == 0 && fuse_fd >= 0) {
		d->fuse_fd = fcntl(fuse_fd, F_DUPFD_CLOEXEC, 3);
		r = d->fuse_fd < 0 ? -errno : buf_put(&d->init, init, len);
	}
	if (r == 0)
		r = mount_record_write(d);
	if (r == 0)
		r = supervisor_state_put(k->supervisor_state, d->fd, &k->place);
	k->is_kept = r == 0;
	/* These descriptors belong to the tables. */
	d->slots_fd = d->names_fd = d->locks_fd = d->estale_table_fd = -1;
	if (r == 0)
		m->activity = supervisor_state_activity(k->supervisor_state, k->place);
	return r;
}

static int reopen(struct saved_mount *k, struct reopening *o, enum mount_reopening how)
{
	struct mount_record *d = &k->mount_record;
	struct mount_saved_tables left = { .image = o->image, .rebuild = k->rebuild, .how = how };
	struct mount_opts opts;
	struct mount_dirs dirs;
	int r = mount_record_copy_dirs(d, &dirs);

	*o->has_mount = false;
	if (r < 0) {
		snprintf(o->err, o->err_size, "cannot open its directories: %s", strerror(-r));
		return r;
	}
	r = mount_record_options(d, &dirs, &opts, o->err, o->err_size);
	if (r < 0) {
		mount_dirs_release(&dirs);
		return r;
	}
	*o->has_mount = true;
	left.slots_fd = d->slots_fd;
	left.names_fd = d->names_fd;
	left.locks_fd = d->locks_fd;
	left.stats = steal_ptr(&k->stats);
	left.locks = k->locks;
	left.work = k->work;
	r = mount_reopen_at(o->m, &opts, &dirs, &left, o->err, o->err_size);
	k->locks = left.locks;
	k->work = left.work;
	if (r == 0)
		k->rebuild = NULL;
	d->slots_fd = left.slots_fd;
	d->names_fd = left.names_fd;
	d->locks_fd = left.locks_fd;
	return r;
}

void saved_mount_keep_left(struct saved_mount *k, const struct mount_saved_tables *left)
{
	if (left->slots_fd >= 0) {
		k->mount_record.slots_fd = left->slots_fd;
		k->mount_record.names_fd = left->names_fd;
	}
	if (left->stats)
		k->stats = left->stats;
	if (left->locks)
		k->locks = left->locks;
	if (left->work.fd >= 0)
		k->work = left->work;
}

void saved_mount_forget_rebuild(struct saved_mount *k)
{
	struct mount_record *d = &k->mount_record;

	if (inode_rebuild_has_left(k->rebuild))
		inode_rebuild_give_up(k->rebuild, &d->slots_fd, &d->names_fd);
	k->rebuild = NULL;
}

bool saved_mount_regain(struct saved_mount *k, struct mount *m, bool *has_mount)
{
	struct mount_saved_tables left = MOUNT_SAVED_TABLES_NONE;

	saved_mount_forget_rebuild(k);
	if (*has_mount)
		mount_leave(m, &left);
	*has_mount = false;
	saved_mount_keep_left(k, &left);
	return k->mount_record.slots_fd >= 0;
}

/* A disk fails the same way again; memory and descriptors may be available later. */
static bool is_of_disk(int r)
{
	return r != -ENOMEM && r != -EMFILE && r != -ENFILE && r != -EAGAIN && r != -EINTR;
}

static bool may_freeze(const struct reopening *o, int r)
{
	const struct mount_opts *opts = &o->m->opts;

	return r < 0 && is_of_disk(r) && *o->has_mount && opts->upper && !opts->is_readonly;
}

static void say_frozen(const struct mount *m, int r, const char *why)
{
	if (r == -EROFS)
		log_error("%s: the file system of upperdir %s has become read-only: nothing can be "
			  "changed until it is mounted anew",
			  m->opts.mountpoint, m->opts.upper);
	else
		log_error("%s: nothing can be changed until it is mounted anew: %s",
			  m->opts.mountpoint, why);
}

/* Reopen without the parts that fail, so that programs keep the mount. */
static int reopen_frozen(struct saved_mount *k, struct reopening *o, int why)
{
	_cleanup_(freep) char *said = strdup(o->err);
	int r;

	if (!saved_mount_regain(k, o->m, o->has_mount))
		return why;
	r = reopen(k, o, MOUNT_REOPENING_FROZEN);
	if (r == 0)
		say_frozen(o->m, why, said ?: strerror(-why));
	return r;
}

int saved_mount_reopen(struct saved_mount *k, struct image *image, struct mount *m,
		       bool *ret_has_mount, char *err, size_t err_size)
{
	struct reopening o = { image, m, ret_has_mount, err, err_size };
	int r = reopen(k, &o, MOUNT_REOPENING_WHOLE);

	for (int n = 0; n < TRIES && r != -EROFS && may_freeze(&o, r); n++) {
		if (!saved_mount_regain(k, m, ret_has_mount))
			return r;
		usleep(RETRY_US << n);
		r = reopen(k, &o, n + 1 < TRIES ? MOUNT_REOPENING_WHOLE : MOUNT_REOPENING_UNMERGED);
	}
	if (may_freeze(&o, r))
		r = reopen_frozen(k, &o, r);
	m->key = k->mount_record.key;
	m->activity = supervisor_state_activity(k->supervisor_state, k->place);
	return r;
}

void saved_mount_drop(struct saved_mount *k)
{
	if (k->is_kept) {
		supervisor_state_drop(k->supervisor_state, k->place);
		intent_log_drop(k->mount_record.key);
	}
	k->is_kept = false;
}

void saved_mount_release(struct saved_mount *k)
{
	saved_mount_drop(k);
	stats_free(k->stats);
	k->stats = NULL;
	locks_free(k->locks);
	k->locks = NULL;
	workdir_leave(&k->work);
	mount_record_release(&k->mount_record);
}
