// SPDX-License-Identifier: Apache-2.0
#include "veneer/mount/options.h"

#include "veneer/base/buf.h"
#include "veneer/base/cleanup.h"

#include <errno.h>
#include <string.h>

static bool same_ids(const struct id_maps *a, const struct id_maps *b)
{
	return a->n == b->n &&
	       (a->n == 0 || memcmp(a->rows, b->rows, a->n * sizeof(*a->rows)) == 0);
}

/* Compare the options that change the view of a lower file or directory, or the kernel's handling
 * of the whole file system. */
bool options_agree(const struct mount_opts *a, const struct mount_opts *b)
{
	return same_ids(&a->uids, &b->uids) && same_ids(&a->gids, &b->gids) &&
	       a->squash_to_root == b->squash_to_root && a->squash_uid == b->squash_uid &&
	       a->squash_gid == b->squash_gid && a->timeout_s == b->timeout_s &&
	       a->xattr_permissions == b->xattr_permissions &&
	       a->has_static_nlink == b->has_static_nlink && a->has_no_acl == b->has_no_acl &&
	       a->has_no_xattrs == b->has_no_xattrs && a->io == b->io && a->locks == b->locks &&
	       a->cpu_latency == b->cpu_latency && !strcmp(a->kernel_opts, b->kernel_opts);
}

static int copy_ids(const struct id_maps *from, struct id_maps *to)
{
	if (from->n == 0)
		return 0;
	to->rows = reallocarray(NULL, from->n, sizeof(*to->rows));
	if (!to->rows)
		return -ENOMEM;
	memcpy(to->rows, from->rows, from->n * sizeof(*to->rows));
	to->n = from->n;
	return 0;
}

static int copy_lowers(const struct mount_opts *from, struct mount_opts *to)
{
	to->lower = calloc(from->n_lower + 1, sizeof(*to->lower));
	for (size_t i = 0; to->lower && i < from->n_lower; i++) {
		to->lower[i] = strdup(from->lower[i]);
		if (!to->lower[i])
			return -ENOMEM;
		to->n_lower++;
	}
	return to->lower ? 0 : -ENOMEM;
}

int options_common(const struct mount_opts *o, struct mount_opts *ret)
{
	struct mount_opts c = *o;
	int r;

	c.lower = c.unknown = NULL;
	c.n_lower = c.n_unknown = 0;
	c.upper = c.work = NULL;
	c.uids = c.gids = (struct id_maps){ 0 };
	c.is_volatile = false;
	c.prefetch = PREFETCH_OFF;
	c.promote = PROMOTE_POLICY_OFF;
	c.mountpoint = strdup(o->mountpoint);
	c.kernel_opts = strdup(o->kernel_opts);
	r = c.mountpoint && c.kernel_opts ? copy_lowers(o, &c) : -ENOMEM;
	if (r == 0)
		r = copy_ids(&o->uids, &c.uids);
	if (r == 0)
		r = copy_ids(&o->gids, &c.gids);
	if (r < 0)
		options_release(&c);
	else
		*ret = c;
	return r;
}

char *options_unknown(const struct mount_opts *o)
{
	_cleanup_(buf_release) struct buf text = { 0 };
	int r = o->n_unknown ? 0 : -ENOENT;

	for (size_t i = 0; r == 0 && i < o->n_unknown; i++) {
		r = i ? buf_put(&text, ", ", 2) : 0;
		r = r ?: buf_put(&text, o->unknown[i], strlen(o->unknown[i]));
	}
	return r == 0 && buf_put_u8(&text, 0) == 0 ? (char *)steal_ptr(&text.data) : NULL;
}
