// SPDX-License-Identifier: Apache-2.0
#include "arena.h"
#include "fs.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

static const struct disk_image *dir_image(struct disk *d, uint32_t dir)
{
	const struct disk_inode *i = disk_inode(d, dir);

	return i && S_ISDIR(i->now->mode) ? i->now : NULL;
}

static ssize_t find(const struct disk_image *m, const char *name)
{
	for (size_t k = 0; k < m->nentries; k++)
		if (!strcmp(m->entries[k].name, name))
			return (ssize_t)k;
	return -1;
}

int fs_look_up(struct disk *d, uint32_t dir, const char *name)
{
	const struct disk_image *m = dir_image(d, dir);
	ssize_t k;

	if (!m)
		return -ENOTDIR;
	if (!strcmp(name, ".") || !*name)
		return (int)dir;
	if (!strcmp(name, ".."))
		return (int)m->parent;
	if (strlen(name) > NAME_MAX)
		return -ENAMETOOLONG;
	k = find(m, name);
	return k < 0 ? -ENOENT : (int)m->entries[k].ino;
}

/* May something get this name? */
static int check_free(struct disk *d, uint32_t dir, const char *name)
{
	const struct disk_image *m = dir_image(d, dir);
	int r;

	if (!m)
		return -ENOTDIR;
	if (!m->nlink)
		return -ENOENT;
	r = fs_look_up(d, dir, name);
	return r >= 0 ? -EEXIST : r == -ENOENT ? 0 : r;
}

static void touch(struct disk *d, struct disk_image *m)
{
	m->mtime = m->ctime = disk_now(d);
}

static void add(struct disk *d, struct disk_image *m, const char *name, uint32_t ino)
{
	m->entries = arena_grow(m->entries, m->nentries * sizeof(*m->entries),
				(m->nentries + 1) * sizeof(*m->entries));
	m->entries[m->nentries++] = (struct disk_entry){ arena_text(name), ino };
	touch(d, m);
}

static void take_out(struct disk *d, struct disk_image *m, const char *name)
{
	const ssize_t k = find(m, name);

	arena_free(m->entries[k].name);
	m->nentries--;
	memmove(&m->entries[k], &m->entries[k + 1],
		(m->nentries - (size_t)k) * sizeof(*m->entries));
	touch(d, m);
}

static struct disk_image *newest(const struct disk_tx *tx)
{
	return tx->image[tx->n - 1];
}

int fs_make(struct disk *d, uint32_t dir, const char *name, mode_t mode, dev_t rdev,
	    const char *target)
{
	int r = check_free(d, dir, name);
	struct disk_image *m;
	struct disk_tx tx;
	uint32_t ino;

	if (r < 0)
		return r;
	disk_begin(&tx);
	ino = disk_create(d, &tx, mode);
	if (!ino)
		return -ENOSPC;
	m = newest(&tx);
	m->nlink = S_ISDIR(mode) ? 2 : 1;
	m->rdev = rdev;
	m->parent = dir;
	if (target) {
		m->target = arena_text(target);
		m->size = (int64_t)strlen(target);
	}
	m = disk_edit(d, &tx, dir);
	add(d, m, name, ino);
	m->nlink += S_ISDIR(mode) ? 1 : 0;
	disk_end(d, &tx);
	disk_inode(d, ino)->size = disk_inode(d, ino)->now->size;
	return (int)ino;
}

int fs_make_nameless(struct disk *d, mode_t mode)
{
	struct disk_tx tx;
	uint32_t ino;

	disk_begin(&tx);
	ino = disk_create(d, &tx, mode);
	if (!ino)
		return -ENOSPC;
	disk_end(d, &tx);
	return (int)ino;
}

int fs_link(struct disk *d, uint32_t ino, uint32_t dir, const char *name)
{
	int r = check_free(d, dir, name);
	struct disk_image *m;
	struct disk_tx tx;

	if (r < 0)
		return r;
	if (S_ISDIR(disk_inode(d, ino)->now->mode))
		return -EPERM;
	disk_begin(&tx);
	tx.soft_ino = ino;
	m = disk_edit(d, &tx, ino);
	m->nlink++;
	m->ctime = disk_now(d);
	add(d, disk_edit(d, &tx, dir), name, ino);
	disk_end(d, &tx);
	return 0;
}

/* One name of it less, in the transaction. */
static void lose_name(struct disk *d, struct disk_tx *tx, uint32_t dir, uint32_t ino)
{
	struct disk_image *m = disk_edit(d, tx, ino);

	m->ctime = disk_now(d);
	if (S_ISDIR(m->mode)) {
		m->nlink = 0;
		disk_edit(d, tx, dir)->nlink--;
	} else {
		m->nlink--;
	}
}

/* Can the object be removed, or replaced by one of that kind? */
static int check_removable(struct disk *d, uint32_t ino, bool is_dir)
{
	const struct disk_image *m = disk_inode(d, ino)->now;

	if (S_ISDIR(m->mode) != is_dir)
		return is_dir ? -ENOTDIR : -EISDIR;
	return is_dir && m->nentries ? -ENOTEMPTY : 0;
}

int fs_unlink(struct disk *d, uint32_t dir, const char *name, bool is_dir)
{
	int ino = fs_look_up(d, dir, name), r;
	struct disk_tx tx;

	r = ino < 0 ? ino : check_removable(d, (uint32_t)ino, is_dir);
	if (r < 0)
		return r;
	disk_begin(&tx);
	take_out(d, disk_edit(d, &tx, dir), name);
	lose_name(d, &tx, dir, (uint32_t)ino);
	disk_end(d, &tx);
	disk_reap(d, (uint32_t)ino);
	return 0;
}

static void set_entry(struct disk *d, struct disk_tx *tx, const struct fs_place *p, uint32_t ino)
{
	struct disk_image *m = disk_edit(d, tx, p->dir);

	m->entries[find(m, p->name)].ino = ino;
	touch(d, m);
}

static void move_dir(struct disk *d, struct disk_tx *tx, uint32_t ino, uint32_t from, uint32_t to)
{
	struct disk_image *m = disk_edit(d, tx, ino);

	m->ctime = disk_now(d);
	if (!S_ISDIR(m->mode))
		return;
	m->parent = to;
	disk_edit(d, tx, from)->nlink--;
	disk_edit(d, tx, to)->nlink++;
}

static bool is_below(struct disk *d, uint32_t dir, uint32_t above)
{
	while (dir != above && dir != DISK_ROOT)
		dir = disk_inode(d, dir)->now->parent;
	return dir == above;
}

/* The old name is a whiteout afterwards. */
static int put_whiteout(struct disk *d, struct disk_tx *tx, const struct fs_place *from)
{
	const uint32_t ino = disk_create(d, tx, S_IFCHR);

	if (!ino)
		return -ENOSPC;
	newest(tx)->nlink = 1;
	newest(tx)->rdev = makedev(0, 0);
	add(d, disk_edit(d, tx, from->dir), from->name, ino);
	return 0;
}

int fs_rename(struct disk *d, const struct fs_place *from, const struct fs_place *to,
	      unsigned flags)
{
	int a = fs_look_up(d, from->dir, from->name), b = fs_look_up(d, to->dir, to->name), r = 0;
	struct disk_tx tx;

	if (a < 0 || (b < 0 && b != -ENOENT))
		return a < 0 ? a : b;
	if (flags & RENAME_EXCHANGE && b < 0)
		return b;
	if (flags & RENAME_NOREPLACE && b >= 0)
		return -EEXIST;
	if (a == b)
		return 0;
	if (S_ISDIR(disk_inode(d, (uint32_t)a)->now->mode) && is_below(d, to->dir, (uint32_t)a))
		return -EINVAL;
	if (b >= 0 && !(flags & RENAME_EXCHANGE))
		r = check_removable(d, (uint32_t)b, S_ISDIR(disk_inode(d, (uint32_t)a)->now->mode));
	if (r < 0)
		return r;
	disk_begin(&tx);
	/* A new name is nothing to fdatasync(2). */
	tx.soft_ino = (uint32_t)a;
	move_dir(d, &tx, (uint32_t)a, from->dir, to->dir);
	if (flags & RENAME_EXCHANGE) {
		move_dir(d, &tx, (uint32_t)b, to->dir, from->dir);
		set_entry(d, &tx, from, (uint32_t)b);
		set_entry(d, &tx, to, (uint32_t)a);
	} else {
		if (b >= 0) {
			lose_name(d, &tx, to->dir, (uint32_t)b);
			take_out(d, disk_edit(d, &tx, to->dir), to->name);
		}
		take_out(d, disk_edit(d, &tx, from->dir), from->name);
		add(d, disk_edit(d, &tx, to->dir), to->name, (uint32_t)a);
		if (flags & RENAME_WHITEOUT)
			r = put_whiteout(d, &tx, from);
	}
	disk_end(d, &tx);
	if (b >= 0)
		disk_reap(d, (uint32_t)b);
	return r;
}
