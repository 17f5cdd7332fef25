// SPDX-License-Identifier: Apache-2.0
#include "saved_mount.h"

#include "veneer/base/cleanup.h"
#include "veneer/layer/layer_registry.h"
#include "veneer/recover/intent_log.h"
#include "veneer/union/locks.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

int saved_mount_write(struct saved_mount *k, struct mount *m, int fuse_fd, const void *init,
		      size_t len)
{
	struct layer *const *layers;
	size_t n = image_layers(m->tree.image, &layers);
	struct mount_record *d = &k->mount_record;
	int r = 0;

	d->key = m->key;
	d->io = m->io;
	/* The process that opened them will be gone by then. */
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
	/* These descriptors have their owners. */
	d->slots_fd = d->names_fd = d->locks_fd = d->estale_table_fd = -1;
	if (r == 0)
		m->activity = supervisor_state_activity(k->supervisor_state, k->place);
	return r;
}

int saved_mount_reopen(struct saved_mount *k, struct image *image, struct mount *m,
		       bool *ret_has_mount, char *err, size_t err_size)
{
	struct mount_record *d = &k->mount_record;
	struct mount_saved_tables left = { .image = image };
	struct mount_opts opts;
	struct mount_dirs dirs;
	int r = mount_record_copy_dirs(d, &dirs);

	*ret_has_mount = false;
	if (r < 0) {
		snprintf(err, err_size, "cannot open its directories: %s", strerror(-r));
		return r;
	}
	r = mount_record_options(d, &dirs, &opts, err, err_size);
	if (r < 0) {
		mount_dirs_release(&dirs);
		return r;
	}
	*ret_has_mount = true;
	left.slots_fd = d->slots_fd;
	left.names_fd = d->names_fd;
	left.locks_fd = d->locks_fd;
	r = mount_reopen_at(m, &opts, &dirs, &left, err, err_size);
	d->slots_fd = left.slots_fd;
	d->names_fd = left.names_fd;
	d->locks_fd = left.locks_fd;
	m->key = d->key;
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
	mount_record_release(&k->mount_record);
}
