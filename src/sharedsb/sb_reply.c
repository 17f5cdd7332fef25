// SPDX-License-Identifier: Apache-2.0
/* Member mounts answer with their own node ids. On the way to the kernel an id gets the mount's
 * number, or, for a file of the image, is replaced by the common mount's. The lookup counted for
 * the own id is then returned before the kernel gets the common one. So if a lower file's own id
 * has lookups, the kernel was told that id, or none yet, also if this server dies
 * (inode_table_attach). */
#include "shared_sb-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/hash.h"
#include "veneer/base/lock.h"
#include "veneer/base/tsan_order.h"
#include "veneer/union/lookup.h"

#include <dirent.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/uio.h>

#define DEPTH_MAX 1000u /* deeper files are not shared */

_Thread_local struct shared_sb_route sb_reply_route;

/* ---- the common mount ---- */

struct inode *sb_reply_common_inode(struct shared_sb *g, uint64_t node)
{
	struct union_fs *t = &g->common->tree;
	struct inode *i = inode_get(t, node);

	return i && lookup_restore(t, i) == 0 ? i : NULL;
}

struct common_dir {
	struct hlink link;
	const struct image_entry *e;
	struct inode *i;
};

static uint64_t dir_hash(const struct image_entry *e)
{
	return hash_key(&e, sizeof(e), 0);
}

static struct inode *known_dir(struct shared_sb *g, const struct image_entry *e)
{
	LOCK_SCOPE(&g->lock);
	for (struct hlink *l = htab_first(&g->dirs, dir_hash(e)); l; l = htab_next(l)) {
		struct common_dir *d = container_of(l, struct common_dir, link);

		if (d->e == e)
			return d->i;
	}
	return NULL;
}

/* Enter a directory in the table, which takes over the reference on i; on failure it is dropped. */
static int keep_dir(struct shared_sb *g, const struct image_entry *e, struct inode *i)
{
	struct common_dir *d = known_dir(g, e) ? NULL : malloc(sizeof(*d));
	int r = d ? 0 : -ENOMEM;

	if (d) {
		*d = (struct common_dir){ .e = e, .i = i };
		LOCK_SCOPE(&g->lock);
		r = htab_insert(&g->dirs, &d->link, dir_hash(e));
	}
	if (r < 0) {
		free(d);
		inode_unref(&g->common->tree, i);
	}
	return known_dir(g, e) ? 0 : r;
}

/* The common mount's directory; borrowed, stays valid. */
static int find_dir(struct shared_sb *g, const struct image_entry *e, unsigned depth,
		    struct inode **ret)
{
	struct inode *parent, *i = e->parent ? known_dir(g, e) : g->common->tree.root;
	struct stat st;
	int r = 0;

	if (!i) {
		r = depth == DEPTH_MAX ? -ELOOP : find_dir(g, e->parent, depth + 1, &parent);
		if (r == 0)
			r = lookup_name(&g->common->tree, parent, e->name, &i, &st);
		if (r == 0)
			r = keep_dir(g, e, i);
		i = r == 0 ? known_dir(g, e) : NULL;
	}
	*ret = i;
	return r;
}

static void drop_dir(struct hlink *l, void *arg)
{
	struct common_dir *d = container_of(l, struct common_dir, link);
	struct shared_sb *g = arg;

	inode_unref(&g->common->tree, d->i);
	free(d);
}

void sb_reply_release_dirs(struct shared_sb *g)
{
	htab_drain(&g->dirs, drop_dir, g);
	htab_release(&g->dirs);
}

int sb_reply_grant_common(struct shared_sb *g, struct image_entry *e, uint32_t *ret_id,
			  uint32_t *ret_generation)
{
	struct union_fs *t = &g->common->tree;
	struct inode *dir, *i;
	struct stat st;
	int r = e->parent ? find_dir(g, e->parent, 0, &dir) : -ENOENT;

	if (r == 0)
		r = lookup_name(t, dir, e->name, &i, &st);
	if (r < 0)
		return r;
	if (inode_lower(i) != e) {
		inode_unref(t, i);
		return -ESTALE;
	}
	inode_grant(t, i, ret_id, ret_generation);
	return 0;
}

int sb_reply_look_up(struct union_fs *t, char *path, struct inode **ret)
{
	struct inode *i = t->root, *next;
	struct stat st;
	int r = 0;

	inode_ref(t, i);
	for (char *name; r == 0 && (name = strsep(&path, "/"));) {
		r = inode_is_dir(i) ? lookup_name(t, i, name, &next, &st) : -ENOTDIR;
		inode_unref(t, i);
		if (r == 0)
			i = next;
	}
	if (r == 0)
		*ret = i;
	return r;
}

int sb_reply_find_own(struct sb_member *c, struct image_entry *e, struct inode **ret)
{
	_cleanup_(freep) char *path = image_path(e);
	struct inode *i = NULL;
	int r = path ? sb_reply_look_up(&c->m->tree, path, &i) : -ENOMEM;

	if (r < 0)
		return r;
	if (sb_twin_file(c, i) != e) {
		inode_unref(&c->m->tree, i);
		return -ESTALE;
	}
	*ret = i;
	return 0;
}

/* ---- answers ---- */

/* An own node id and the common id that replaced it. */
struct exchange {
	uint32_t own, common; /* 0: not replaced */
};

/* Was the caller told to look this file up again? Tested for the time of the request: the answer
 * may have taken long. The kernel may look up once more, when it sees another node, and forget the
 * first one before that. */
static bool was_switched(struct shared_sb *g, struct image_entry *e)
{
	const uint64_t object = shared_sb_object_of(g, e);

	if (!estale_table_has(g->estale, sb_reply_route.caller, object, sb_reply_route.since_ms))
		return false;
	estale_table_note(g->estale, sb_reply_route.caller, object, clock_ms());
	return true;
}

static void translate(struct sb_member *c, struct fuse_entry_out *e, struct exchange *x)
{
	struct shared_sb *g = c->shared_sb;
	struct inode *i = e->nodeid ? inode_get(&c->m->tree, e->nodeid) : NULL;
	struct image_entry *common;
	uint32_t id, generation;

	if (!i)
		return;
	common = x && !inode_is_private(i) ? sb_twin_file(c, i) : NULL;
	if (common) {
		if (was_switched(g, common)) {
			inode_note_private(i);
		} else if (sb_reply_grant_common(g, common, &id, &generation) == 0) {
			*x = (struct exchange){ .own = (uint32_t)e->nodeid, .common = id };
			e->nodeid = id;
			e->generation = generation;
			return;
		}
		/* Without memory the mount's own id is used, which costs only pages. */
		inode_note_private(i);
	}
	e->nodeid |= shared_sb_base(c);
	e->generation ^= c->secret;
}

static void translate_list(struct sb_member *c, char *p, size_t len)
{
	while (len >= FUSE_NAME_OFFSET_DIRENTPLUS) {
		struct fuse_direntplus *d = (struct fuse_direntplus *)p;
		size_t n = FUSE_DIRENTPLUS_SIZE(d);

		if (n > len)
			return;
		translate(c, &d->entry_out, NULL);
		p += n;
		len -= n;
	}
}

static void translate_message(struct sb_member *c, int code, void *p)
{
	if (code == FUSE_NOTIFY_INVAL_INODE)
		((struct fuse_notify_inval_inode_out *)p)->ino |= shared_sb_base(c);
	else if (code == FUSE_NOTIFY_INVAL_ENTRY)
		((struct fuse_notify_inval_entry_out *)p)->parent |= shared_sb_base(c);
}

static bool has_entry(uint32_t opcode)
{
	switch (opcode) {
	case FUSE_LOOKUP:
	case FUSE_MKNOD:
	case FUSE_MKDIR:
	case FUSE_SYMLINK:
	case FUSE_LINK:
	case FUSE_CREATE:
	case FUSE_TMPFILE:
		return true;
	default:
		return false;
	}
}

/* Translate an answer before it is sent; iov[0] is its header. */
static void translate_answer(struct sb_member *c, struct fuse_out_header *head, struct iovec *iov,
			     int count, struct exchange *x)
{
	/* Any thread may answer a waiter for a lock. */
	const uint32_t opcode = sb_reply_route.c == c ? sb_reply_route.opcode : 0;

	/* The kernel would apply "not implemented" to all mounts. */
	if (head->error == -ENOSYS && (opcode == FUSE_FSYNC || opcode == FUSE_FSYNCDIR))
		head->error = 0;
	if (count < 2)
		return;
	if (head->unique == 0)
		translate_message(c, head->error, iov[1].iov_base);
	else if (head->error == 0 && has_entry(opcode) &&
		 iov[1].iov_len >= sizeof(struct fuse_entry_out))
		translate(c, iov[1].iov_base, x);
	else if (head->error == 0 && opcode == FUSE_READDIRPLUS && count == 2)
		translate_list(c, iov[1].iov_base, iov[1].iov_len);
}

static ssize_t total(const struct iovec *iov, int count)
{
	ssize_t n = 0;

	for (int i = 0; i < count; i++)
		n += (ssize_t)iov[i].iov_len;
	return n;
}

static ssize_t send_answer(int fd, struct iovec *iov, int count, void *userdata)
{
	const struct mount *m = userdata;
	struct sb_member *c = m->sb_member;
	struct exchange x = { .own = 0 };
	ssize_t n;

	/* The common mount has answered INIT. */
	if (!m->node_base)
		return total(iov, count);
	sb_locks_wait_end(c->shared_sb, ((struct fuse_out_header *)iov[0].iov_base)->unique);
	translate_answer(c, iov[0].iov_base, iov, count, &x);
	if (x.own)
		inode_forget(&c->m->tree, x.own, 1);
	tsan_order_answer();
	n = writev(fd, iov, count);
	if (!x.own || n >= 0)
		return n;
	/* Report success: the caller must not return the lookup again. */
	inode_forget(&c->shared_sb->common->tree, x.common, 1);
	return total(iov, count);
}

static ssize_t receive_nothing(int fd, void *buf, size_t len, void *userdata)
{
	(void)fd;
	(void)buf;
	(void)len;
	(void)userdata;
	errno = ENODEV;
	return -1;
}

const struct fuse_custom_io sb_reply_io = { .writev = send_answer, .read = receive_nothing };
