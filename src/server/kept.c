// SPDX-License-Identifier: Apache-2.0
#include "veneer/kept.h"

#include "veneer/cleanup.h"
#include "veneer/intent.h"
#include "veneer/locks.h"
#include "veneer/share.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

int kept_write(struct kept *k, struct mount *m, int fuse_fd, const void *init, size_t len)
{
	struct layer *const *layers;
	size_t n = image_layers(m->tree.image, &layers);
	struct dossier *d = &k->dossier;
	int r = 0;

	d->key = m->key;
	d->io = m->io;
	/* Whoever opened them will be gone by then. */
	d->dirs.opener = share_has_private(layers, n) ? SHARE_NOT_SEEN : SHARE_SEEN_PLAIN;
	nodetab_fds(m->tree.nodes, &d->slots_fd, &d->names_fd);
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
		r = dossier_write(d);
	if (r == 0)
		r = ledger_put(k->ledger, d->fd, &k->place);
	k->is_kept = r == 0;
	/* They have their owners. */
	d->slots_fd = d->names_fd = d->locks_fd = d->recall_fd = -1;
	if (r == 0)
		m->duty = ledger_duty(k->ledger, k->place);
	return r;
}

int kept_reopen(struct kept *k, struct image *image, struct mount *m, bool *ret_has_mount, char *err, size_t err_size)
{
	struct dossier *d = &k->dossier;
	struct mount_left left = { .image = image };
	struct mount_opts opts;
	struct mount_dirs dirs;
	int r = dossier_copy_dirs(d, &dirs);

	*ret_has_mount = false;
	if (r < 0) {
		snprintf(err, err_size, "cannot open its directories: %s", strerror(-r));
		return r;
	}
	r = dossier_options(d, &dirs, &opts, err, err_size);
	if (r < 0) {
		dirs_release(&dirs);
		return r;
	}
	*ret_has_mount = true;
	left.slots_fd = steal_fd(&d->slots_fd);
	left.names_fd = steal_fd(&d->names_fd);
	left.locks_fd = steal_fd(&d->locks_fd);
	r = mount_reopen_at(m, &opts, &dirs, &left, err, err_size);
	m->key = d->key;
	m->duty = ledger_duty(k->ledger, k->place);
	return r;
}

void kept_drop(struct kept *k)
{
	if (k->is_kept) {
		ledger_drop(k->ledger, k->place);
		intent_drop(k->dossier.key);
	}
	k->is_kept = false;
}

void kept_release(struct kept *k)
{
	kept_drop(k);
	dossier_release(&k->dossier);
}
