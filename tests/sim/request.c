// SPDX-License-Identifier: Apache-2.0
#include "request.h"

#include "arena.h"
#include "kernel.h"
#include "sim.h"
#include "veneer/data/attr.h"
#include "veneer/data/copy_range.h"
#include "veneer/data/cow.h"
#include "veneer/data/cow_fallocate.h"
#include "veneer/data/cow_fsync.h"
#include "veneer/data/create.h"
#include "veneer/data/remove.h"
#include "veneer/data/rename.h"
#include "veneer/data/replay.h"
#include "veneer/recover/intent_log.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/upper.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

struct doing {
	struct mount *m;
	struct union_fs *t;
	struct request *r;
	bool is_again;
};

/* The inode of a path that is there. */
static struct inode *get(const struct doing *d, const char *path)
{
	struct inode *i = kernel_get(d->t, path);

	if (!i && !sim->fate.error)
		sim_violation("%s cannot be looked up", path);
	return i;
}

static struct inode *parent_of(const struct doing *d, const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	char parent[HISTORY_PATH] = "";

	if (slash)
		memcpy(parent, path, (size_t)(slash - path));
	*ret_name = slash ? slash + 1 : path;
	return get(d, parent);
}

static struct intent *note(const struct doing *d, enum intent_kind kind, const struct inode *dir,
			   const char *name, const struct inode *to, const char *to_name)
{
	return intent_log_begin(&(struct intent_request){
		.key = d->m->key,
		.unique = d->r->unique,
		.kind = kind,
		.is_resent = d->is_again,
		.from_parent = dir ? dir->id : 0,
		.from_name = name,
		.to_parent = to ? to->id : 0,
		.to_name = to_name,
	});
}

/* What the kernel does then, it does without a request under way. */
static void answer(const struct doing *d)
{
	d->r->is_standing = false;
	intent_log_end(intent_log_current());
	arena_free(d->r->bytes);
	d->r->bytes = NULL;
}

static int make(const struct doing *d)
{
	const struct create_args args = { .mode = d->r->mode, .target = "to/where" };
	const char *name;
	struct inode *dir = parent_of(d, d->r->path, &name), *i;
	struct stat st;
	int r;

	if (!dir)
		return -EIO;
	intent_log_mark(note(d, INTENT_CREATE, dir, name, NULL, NULL));
	r = (d->is_again ? create_again : create_node)(d->t, dir, name, &args, &i, &st);
	if (r == 0)
		kernel_enter(d->t, d->r->path, i);
	return r;
}

static int remove_name(const struct doing *d)
{
	const char *name;
	struct inode *dir = parent_of(d, d->r->path, &name);
	int r;

	/* The kernel looks the victim up first; where the request comes again it has done so. */
	if (!dir || (!d->is_again && !get(d, d->r->path)))
		return -EIO;
	note(d, INTENT_REMOVE, dir, name, NULL, NULL);
	if (d->is_again)
		r = replay_remove(d->t, dir, name, d->r->is_dir);
	else
		r = (d->r->is_dir ? remove_dir : remove_file)(d->t, dir, name);
	answer(d);
	if (r == 0 && *d->r->to)
		kernel_keep(d->r->path, d->r->to);
	else if (r == 0)
		kernel_forget(d->t, d->r->path);
	return r;
}

static int rename_name(const struct doing *d)
{
	const bool swaps = d->r->flags & RENAME_EXCHANGE;
	const char *name, *to_name;
	struct inode *dir = parent_of(d, d->r->path, &name), *to = parent_of(d, d->r->to, &to_name);
	struct intent *n;
	int r;

	if (!dir || !to || (!d->is_again && !get(d, d->r->path)))
		return -EIO;
	if (!d->is_again)
		kernel_get(d->t, d->r->to);
	n = note(d, swaps ? INTENT_EXCHANGE : INTENT_RENAME, dir, name, to, to_name);
	if (d->is_again)
		r = replay_rename(d->t, n, &(struct replay_names){ dir, name, to, to_name },
				  d->r->flags);
	else
		r = rename_entry(d->t, dir, name, to, to_name, d->r->flags);
	answer(d);
	if (r == 0 && !swaps)
		kernel_move(d->t, d->r->path, d->r->to);
	if (r < 0 || swaps) {
		kernel_forget(d->t, d->r->path);
		kernel_forget(d->t, d->r->to);
	}
	return r;
}

static int make_link(const struct doing *d)
{
	const char *name;
	struct inode *dir = parent_of(d, d->r->to, &name), *i = get(d, d->r->path);
	struct stat st;
	int r;

	if (!dir || !i)
		return -EIO;
	intent_log_mark(note(d, INTENT_CREATE, dir, name, NULL, NULL));
	r = (d->is_again ? replay_link : create_link)(d->t, i, dir, name, &st);
	/* The reply counts a look-up, which this kernel takes with the next one of that name. */
	return r;
}

static int sync_dir(const struct doing *d, struct inode *i)
{
	int fd, r;

	if (!inode_has_upper(i))
		return 0;
	fd = upper_pin(d->t, i);
	if (fd < 0)
		return fd;
	r = fsync(fd) < 0 ? -errno : 0;
	upper_unpin(i);
	return r;
}

static int change_xattr(const struct doing *d, struct inode *i)
{
	const struct request *r = d->r;

	if (r->kind == REQUEST_REMOVEXATTR)
		return replay_removexattr(d->t, i,
					  note(d, INTENT_REMOVEXATTR, NULL, NULL, NULL, NULL),
					  HISTORY_XATTR);
	if (r->flags & XATTR_CREATE)
		return replay_setxattr(d->t, i, note(d, INTENT_SETXATTR, NULL, NULL, NULL, NULL),
				       HISTORY_XATTR, r->value, strlen(r->value));
	return attr_setxattr(d->t, i, HISTORY_XATTR, r->value, strlen(r->value), 0);
}

static int64_t change_bytes(const struct doing *d, struct inode *i)
{
	const struct request *r = d->r;
	struct inode *from;

	switch (r->kind) {
	case REQUEST_WRITE:
		return cow_write(d->t, i, r->bytes, r->len, (off_t)r->off);
	case REQUEST_TRUNCATE:
		return cow_truncate(d->t, i, (off_t)r->off);
	case REQUEST_ALLOCATE:
		return cow_fallocate(d->t, i, (int)r->flags, (off_t)r->off, (off_t)r->len);
	default:
		from = get(d, r->to);
		return from ? copy_range(d->t, from, (off_t)r->off, i, (off_t)r->off, r->len)
			    : -EIO;
	}
}

static int64_t change_inode(const struct doing *d)
{
	const struct request *r = d->r;
	struct inode *i = get(d, r->path);
	int64_t n;

	if (!i)
		return -EIO;
	if (r->kind == REQUEST_SYNC && fate_planted == FATE_PLANT_NAME)
		i->is_name_synced = true;
	if (r->kind == REQUEST_SYNC)
		return r->is_dir ? sync_dir(d, i) : cow_fsync(d->t, i, r->flags);
	attr_change_begin(d->t, i, d->m->key, r->unique);
	if (r->kind == REQUEST_CHMOD)
		n = attr_chmod(d->t, i, r->mode);
	else if (r->kind == REQUEST_SETXATTR || r->kind == REQUEST_REMOVEXATTR)
		n = change_xattr(d, i);
	else
		n = change_bytes(d, i);
	attr_change_end(i);
	return n;
}

static int64_t act(struct mount *m, bool is_again)
{
	const struct doing d = { m, &m->tree, &sim->request, is_again };
	int64_t n;

	if (is_again)
		intent_log_came_again(m->key, d.r->unique);
	switch (d.r->kind) {
	case REQUEST_MAKE:
		n = make(&d);
		break;
	case REQUEST_REMOVE:
		n = remove_name(&d);
		break;
	case REQUEST_RENAME:
		n = rename_name(&d);
		break;
	case REQUEST_LINK:
		n = make_link(&d);
		break;
	default:
		n = change_inode(&d);
		break;
	}
	if (d.r->is_standing)
		answer(&d);
	return n;
}

int64_t request_do(struct mount *m, const struct request *r)
{
	sim->request = *r;
	sim->request.unique = ++sim->requests * 2;
	sim->request.is_standing = true;
	return act(m, false);
}

int64_t request_do_again(struct mount *m)
{
	return act(m, fate_planted != FATE_PLANT_AGAIN);
}
