// SPDX-License-Identifier: Apache-2.0
#include "player.h"

#include "arena.h"
#include "history.h"
#include "kernel.h"
#include "look.h"
#include "request.h"
#include "sim.h"
#include "veneer/data/cow_fsync.h"
#include "veneer/data/materialize.h"
#include "veneer/map/mapfile.h"
#include "veneer/union/inode_struct.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define BLK HISTORY_BLK

struct play {
	struct mount *m;
	struct union_fs *t;
	struct history *h;
	struct dice dice;
	uint64_t op;
};

static uint64_t below(struct play *p, uint64_t n)
{
	return dice_below(&p->dice, n);
}

__attribute__((format(printf, 2, 3))) static void tell(const struct play *p, const char *fmt, ...)
{
	char line[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	sim_trace(1, "%4" PRIu64 " %s", p->op, line);
}

/* ---- where ---- */

/* A path of that kind; NULL: there is none. */
static const char *some(struct play *p, enum history_kind kind)
{
	const struct history_names *n = history_now(p->h);
	const char *paths[HISTORY_NAMES];
	size_t count = 0;

	for (size_t k = 0; k < n->n; k++)
		if (n->at[k].thing->kind == kind && *n->at[k].path != '@' &&
		    (*n->at[k].path || kind == HISTORY_DIR))
			paths[count++] = n->at[k].path;
	return count ? paths[below(p, count)] : NULL;
}

/* A file, mostly that of the operation before: faults are between two of them. NULL: none. */
static const char *some_file(struct play *p)
{
	const struct history_thing *t = history_at(p->h, sim->subject);
	const char *path = sim->subject;

	if (!t || t->kind != HISTORY_FILE ||
	    dice_once_in(&p->dice, sim->is_about == SIM_ABOUT_BYTES ? 5 : 2))
		path = dice_once_in(&p->dice, 6) && kernel_open(0) ? kernel_open(0)
								   : some(p, HISTORY_FILE);
	if (path && path != sim->subject) {
		history_path(sim->subject, path, "");
		sim->subject_len = 0;
	}
	return path ? sim->subject : NULL;
}

static void parent_of(const char *path, char ret[HISTORY_PATH])
{
	const char *slash = strrchr(path, '/');

	memset(ret, 0, HISTORY_PATH);
	if (slash)
		memcpy(ret, path, (size_t)(slash - path));
}

/* One that nothing has; often one that the lower layer has. NULL: no luck. */
static const char *free_path(struct play *p)
{
	static const char *const paths[] = { "new1", "new2",  "new3",  "new4", "d/new1", "d/new2",
					     "big",  "other", "small", "tiny", "d/in",	 "e",
					     "d",    "d2",    "d2/in", "e/new" };
	const char *path = paths[below(p, sizeof(paths) / sizeof(*paths))];
	char parent[HISTORY_PATH];
	struct history_thing *dir;

	parent_of(path, parent);
	dir = history_at(p->h, parent);
	return !history_at(p->h, path) && dir && dir->kind == HISTORY_DIR ? path : NULL;
}

static const char *anything(struct play *p)
{
	return some(p, dice_once_in(&p->dice, 3) ? HISTORY_DIR : HISTORY_FILE);
}

struct range {
	uint64_t off, len;
};

/* In the file, or beside its end. */
static struct range some_range(struct play *p, const struct history_thing *t)
{
	static const uint64_t lengths[] = { 1, 100, BLK, BLK, 2 * BLK + 700, 5 * BLK };
	const uint64_t size = history_size(t);
	struct range r = { .off = size ? below(p, size) : 0, .len = lengths[below(p, 6)] };

	switch (below(p, 5)) {
	case 0:
		r.off = r.off / BLK * BLK;
		break;
	case 1:
		r.off = size;
		break;
	case 2:
		r.off = r.off / BLK * BLK;
		r.len = (r.len + BLK - 1) / BLK * BLK;
		break;
	default:
		break;
	}
	if (sim->subject_len && dice_once_in(&p->dice, 3))
		r = (struct range){ sim->subject_off / BLK * BLK,
				    (sim->subject_len + BLK - 1) / BLK * BLK };
	if (r.off + r.len > HISTORY_BYTES)
		r.len = r.off < HISTORY_BYTES ? HISTORY_BYTES - r.off : 0;
	sim->subject_off = r.off;
	sim->subject_len = r.len;
	return r;
}

static void pattern(struct play *p, uint8_t *bytes, size_t len)
{
	struct dice dice = { dice_next(&p->dice) };
	const bool is_zero = dice_once_in(&p->dice, 8);

	for (size_t k = 0; k < len; k++)
		bytes[k] = is_zero ? 0 : (uint8_t)(1 | dice_next(&dice));
}

/* ---- how it ended ---- */

/* An error is right if a call failed, or after one did: a map may be poisoned until the next mount.
 * Then each thing is as it was or as it should be. */
static void conclude(struct play *p, int r, const char *what)
{
	if (r >= 0)
		return;
	tell(p, "   %s: error %d", what, -r);
	if (!sim->fate.error && r != -EXDEV && r != -EOPNOTSUPP)
		sim_violation("%s fails: %s", what, strerror(-r));
	look_at_all(p->t, HISTORY_LAST_OP, p->op);
}

/* Send one request, the last of its operation. */
static void send(struct play *p, const struct request *r, const char *what)
{
	struct request last = *r;

	last.is_last = true;
	conclude(p, (int)request_do(p->m, &last), what);
}

/* One after which others come. */
static int64_t send_part(struct play *p, const struct request *r)
{
	return request_do(p->m, r);
}

static struct request request_of(enum request_kind kind, const char *path)
{
	struct request r = { .kind = kind };

	history_path(r.path, path, "");
	return r;
}

/* ---- bytes ---- */

static void write_range(struct play *p, const char *path, struct range at)
{
	struct request r = request_of(REQUEST_WRITE, path);

	if (!at.len)
		return;
	r.off = at.off;
	r.len = at.len;
	r.bytes = arena_alloc(at.len);
	pattern(p, r.bytes, at.len);
	tell(p, "write %s %" PRIu64 " at %" PRIu64, path, at.len, at.off);
	history_write(history_at(p->h, path), p->op, at.off, r.bytes, at.len);
	send(p, &r, "write");
}

static void do_write(struct play *p)
{
	const char *path = some_file(p);

	if (path)
		write_range(p, path, some_range(p, history_at(p->h, path)));
}

static void do_write_past(struct play *p)
{
	static const uint64_t gaps[] = { 0, 1, 3000, 3 * BLK };
	const char *path = some_file(p);
	struct range r = { .len = 3000 };

	if (!path)
		return;
	r.off = history_size(history_at(p->h, path)) + gaps[below(p, 4)];
	if (r.off + r.len <= HISTORY_BYTES)
		write_range(p, path, r);
}

static void do_overwrite(struct play *p)
{
	const char *path = some_file(p);

	if (path)
		write_range(p, path, (struct range){ 0, history_size(history_at(p->h, path)) });
}

static void truncate_to(struct play *p, const char *path, uint64_t size)
{
	struct request r = request_of(REQUEST_TRUNCATE, path);

	r.off = size;
	tell(p, "truncate %s to %" PRIu64, path, size);
	history_truncate(history_at(p->h, path), p->op, size);
	send(p, &r, "truncate");
}

static void do_truncate(struct play *p)
{
	const char *path = some_file(p);
	const uint64_t size = path ? history_size(history_at(p->h, path)) : 0;
	const uint64_t sizes[] = { 0,	     size / 2,	  size / 2 / BLK * BLK, size ? size - 1 : 0,
				   size + 1, size + 5000, size + 4 * BLK };
	const uint64_t to = sizes[below(p, 7)];

	if (path && to <= HISTORY_BYTES)
		truncate_to(p, path, to);
}

static void allocate(struct play *p, const char *path, int mode, struct range at)
{
	struct history_thing *t = history_at(p->h, path);
	struct request r = request_of(REQUEST_ALLOCATE, path);

	if (!at.len)
		return;
	r.flags = (unsigned)mode;
	r.off = at.off;
	r.len = at.len;
	tell(p, "fallocate %s mode %d %" PRIu64 " at %" PRIu64, path, mode, at.len, at.off);
	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		history_zero(t, p->op, at.off, at.len);
	if (!(mode & FALLOC_FL_KEEP_SIZE))
		history_grow(t, p->op, at.off + at.len);
	send(p, &r, "fallocate");
}

static void do_allocate(struct play *p)
{
	static const int modes[] = { 0,
				     FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_ZERO_RANGE };
	const char *path = some_file(p);

	if (path)
		allocate(p, path, modes[below(p, 6)], some_range(p, history_at(p->h, path)));
}

/* ---- names ---- */

/* Both directories, and what the names are of, hear of it. */
static void touch(struct play *p, const char *path)
{
	char parent[HISTORY_PATH];
	struct history_thing *t = history_at(p->h, path);

	parent_of(path, parent);
	history_touch(p->h, history_at(p->h, parent));
	if (t)
		history_touch(p->h, t);
}

/* A new object of that kind, in the model. */
static struct history_thing *add_thing(struct play *p, const char *path, enum history_kind kind,
				       mode_t mode)
{
	struct history_thing *t = history_thing(p->h, kind, mode & 07777);
	struct history_names *n = history_edit(p->h);

	t->target = "to/where";
	history_add(n, path, t);
	history_set_names(p->h, p->op, n);
	touch(p, path);
	return t;
}

static void make_kind(struct play *p, enum history_kind kind, mode_t mode)
{
	const char *path = free_path(p);
	struct request r = request_of(REQUEST_MAKE, path ?: "");

	if (!path)
		return;
	tell(p, "make %s %s", history_kind_names[kind], path);
	r.mode = mode;
	add_thing(p, path, kind, mode);
	send(p, &r, "make");
}

static void do_create(struct play *p)
{
	make_kind(p, HISTORY_FILE, S_IFREG | 0644);
}

static void do_mkdir(struct play *p)
{
	make_kind(p, HISTORY_DIR, S_IFDIR | 0755);
}

static void do_symlink(struct play *p)
{
	make_kind(p, HISTORY_SYMLINK, S_IFLNK | 0777);
}

static bool is_in(const char *path, const char *dir)
{
	const size_t len = strlen(dir);

	return !strncmp(path, dir, len) && path[len] == '/';
}

static bool is_empty(struct play *p, const char *dir)
{
	const struct history_names *n = history_now(p->h);

	for (size_t k = 0; k < n->n; k++)
		if (is_in(n->at[k].path, dir))
			return false;
	return true;
}

/* open: the name of what stays open, or "". */
static void remove_path(struct play *p, const char *path, bool is_dir, const char *open)
{
	struct request r = request_of(REQUEST_REMOVE, path);
	struct history_names *n = history_edit(p->h);
	struct history_thing *t = history_at(p->h, path);

	r.is_dir = is_dir;
	history_path(r.to, open, "");
	tell(p, "remove %s %s", path, open);
	history_remove(n, path);
	if (*open)
		history_add(n, open, t);
	history_set_names(p->h, p->op, n);
	history_touch(p->h, t);
	touch(p, r.path);
	send(p, &r, "remove");
}

static void do_unlink(struct play *p)
{
	const char *path = some(p, dice_once_in(&p->dice, 4) ? HISTORY_SYMLINK : HISTORY_FILE);

	if (path)
		remove_path(p, path, false, "");
}

/* A file that a program has open. */
static void do_unlink_open(struct play *p)
{
	const char *path = some(p, HISTORY_FILE);
	char open[16];

	snprintf(open, sizeof(open), "@%" PRIu64, p->op);
	if (path && !kernel_open(2))
		remove_path(p, path, false, open);
}

static void do_close(struct play *p)
{
	const char *open = kernel_open(0);
	char path[HISTORY_PATH];
	struct history_names *n;

	if (!open)
		return;
	tell(p, "close %s", open);
	history_path(path, open, "");
	n = history_edit(p->h);
	history_remove(n, path);
	history_set_names(p->h, p->op, n);
	kernel_forget(p->t, path);
}

static void do_rmdir(struct play *p)
{
	const char *path = some(p, HISTORY_DIR);

	if (path && *path && is_empty(p, path))
		remove_path(p, path, true, "");
}

/* As rename(2) changes the names. */
static void rename_names(struct history_names *n, const char *from, const char *to)
{
	const size_t len = strlen(from);

	history_remove(n, to);
	for (size_t k = 0; k < n->n; k++) {
		char moved[HISTORY_PATH];
		struct history_name *at = &n->at[k];

		if (strcmp(at->path, from) != 0 && !is_in(at->path, from))
			continue;
		history_path(moved, to, at->path + len);
		memcpy(at->path, moved, sizeof(at->path));
	}
}

static void rename_path(struct play *p, const char *from, const char *to, unsigned flags)
{
	struct history_thing *moved = history_at(p->h, from), *victim = history_at(p->h, to);
	struct request r = request_of(REQUEST_RENAME, from);
	struct history_names *n;
	char parent[HISTORY_PATH];

	/* Two names of one file: nothing happens. */
	if (victim == moved || is_in(to, from) || is_in(from, to))
		return;
	history_path(r.to, to, "");
	r.flags = flags;
	tell(p, "rename %s to %s flags %u", from, to, flags);
	n = history_edit(p->h);
	if (flags & RENAME_EXCHANGE)
		history_swap(n, r.path, r.to);
	else
		rename_names(n, r.path, r.to);
	history_set_names(p->h, p->op, n);
	touch(p, r.to);
	parent_of(r.path, parent);
	history_touch(p->h, history_at(p->h, parent));
	if (victim)
		history_touch(p->h, victim);
	send(p, &r, "rename");
}

static void do_rename(struct play *p)
{
	const char *from = dice_once_in(&p->dice, 4) ? some(p, HISTORY_DIR) : some(p, HISTORY_FILE);
	const char *to = free_path(p);

	if (from && *from && to)
		rename_path(p, from, to, dice_once_in(&p->dice, 4) ? RENAME_NOREPLACE : 0);
}

static void do_rename_over(struct play *p)
{
	const char *from = some(p, HISTORY_FILE), *to = some(p, HISTORY_FILE);

	if (from && to)
		rename_path(p, from, to, 0);
}

static void do_exchange(struct play *p)
{
	const char *from = anything(p), *to = anything(p);

	if (from && to && *from && *to)
		rename_path(p, from, to, RENAME_EXCHANGE);
}

static void do_link(struct play *p)
{
	const char *from = some(p, HISTORY_FILE), *to = free_path(p);
	struct request r = request_of(REQUEST_LINK, from ?: "");
	struct history_names *n;

	if (!from || !to)
		return;
	tell(p, "link %s as %s", from, to);
	history_path(r.to, to, "");
	n = history_edit(p->h);
	history_add(n, to, history_at(p->h, from));
	history_set_names(p->h, p->op, n);
	touch(p, to);
	send(p, &r, "link");
}

/* As cp(1) asks for it, whole or in pieces. */
static int copy_bytes(struct play *p, struct request *r, uint64_t size)
{
	r->kind = REQUEST_COPY;
	r->len = dice_once_in(&p->dice, 2) ? 16 * BLK : 1 << 30;
	while (r->off < size) {
		int64_t n = send_part(p, r);

		if (n <= 0)
			return n < 0 ? (int)n : -EIO;
		r->off += (uint64_t)n;
	}
	return 0;
}

static void do_copy(struct play *p)
{
	const char *from = dice_once_in(&p->dice, 2) && history_at(p->h, "whole")
				   ? "whole"
				   : some(p, HISTORY_FILE);
	const char *to = free_path(p);
	struct history_thing *t, *source = from ? history_at(p->h, from) : NULL;
	struct request r = request_of(REQUEST_MAKE, to ?: "");
	int n;

	if (!source || source->kind != HISTORY_FILE || !to)
		return;
	tell(p, "copy %s to %s", from, to);
	history_path(r.to, from, "");
	r.mode = S_IFREG | 0644;
	t = add_thing(p, to, HISTORY_FILE, 0644);
	history_copy(t, p->op, source->now, history_size(source));
	n = (int)send_part(p, &r);
	if (n == 0)
		n = copy_bytes(p, &r, history_size(source));
	conclude(p, n, "copy");
}

/* ---- attributes ---- */

static void do_chmod(struct play *p)
{
	static const mode_t modes[] = { 0600, 0644, 0700, 0755 };
	const char *path = anything(p);
	struct request r = request_of(REQUEST_CHMOD, path ?: "");

	if (!path)
		return;
	r.mode = modes[below(p, 4)];
	tell(p, "chmod '%s' %o", path, r.mode);
	history_set_mode(history_at(p->h, path), p->op, r.mode);
	send(p, &r, "chmod");
}

static void do_setxattr(struct play *p)
{
	const char *path = anything(p);
	struct request r = request_of(REQUEST_SETXATTR, path ?: "");
	struct history_thing *t = path ? history_at(p->h, path) : NULL;

	if (!t)
		return;
	if (!*history_xattr(t)) {
		r.flags = dice_once_in(&p->dice, 2) ? XATTR_CREATE : 0;
	} else if (dice_once_in(&p->dice, 2)) {
		r.kind = REQUEST_REMOVEXATTR;
	}
	if (r.kind == REQUEST_SETXATTR)
		snprintf(r.value, sizeof(r.value), "%" PRIu64, p->op);
	tell(p, "setxattr '%s' to '%s'", path, r.value);
	history_set_xattr(t, p->op, r.value);
	send(p, &r, "setxattr");
}

/* ---- syncs, and what the server does by itself ---- */

void player_synced(const struct request *r)
{
	struct history_thing *t = history_at(sim->history, r->path);

	if (t && (r->flags || *r->path == '@'))
		history_data_synced(t);
	else if (t)
		history_synced(sim->history, t);
}

static void sync_path(struct play *p, const char *path, const char *what)
{
	struct request r = request_of(REQUEST_SYNC, path);
	int n;

	r.is_last = true;
	r.is_dir = history_at(p->h, path)->kind == HISTORY_DIR;
	r.flags = !r.is_dir && dice_once_in(&p->dice, 3);
	n = (int)request_do(p->m, &r);
	if (n == 0)
		player_synced(&r);
	conclude(p, n, what);
}

static void do_sync(struct play *p)
{
	const char *path = dice_once_in(&p->dice, 5) ? some(p, HISTORY_DIR) : some_file(p);

	if (!path)
		return;
	tell(p, "fsync '%s'", path);
	sync_path(p, path, "fsync");
}

/* The map goes out, with a hole in another file. */
static void do_sync_map(struct play *p)
{
	const char *path = some(p, HISTORY_FILE);
	struct request r = request_of(REQUEST_ALLOCATE, path ?: "");
	int n;

	if (!path)
		return;
	r.off = below(p, history_size(history_at(p->h, path)) / BLK + 1) * BLK;
	r.len = BLK;
	r.flags = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	tell(p, "hole in %s at %" PRIu64 ", and fsync", path, r.off);
	history_zero(history_at(p->h, path), p->op, r.off, BLK);
	n = (int)send_part(p, &r);
	if (n == 0)
		sync_path(p, r.path, "fsync");
	else
		conclude(p, n, "hole");
}

static void do_sync_stranger(struct play *p)
{
	tell(p, "sync, of a stranger");
	disk_sync_all(sim->disk);
}

static void do_checkpoint(struct play *p)
{
	tell(p, "checkpoint");
	/* A failure is logged, and tried again. */
	mapfile_checkpoint(p->t->map, true);
}

/* As the thread of checkpoint.c does each five seconds. */
static void do_commit_all(struct play *p)
{
	uint32_t id = NODE_TABLE_ROOT;
	struct inode *i;

	tell(p, "commit all");
	while ((i = inode_next_partial(p->t, &id))) {
		if (mapfile_pending(p->t->map, inode_partial_id(i)) != MAPFILE_CLEAN)
			cow_fsync_unasked(p->t, i);
		inode_unref(p->t, i);
	}
}

static void do_materialize(struct play *p)
{
	const char *path = some_file(p);
	struct inode *i = path ? kernel_get(p->t, path) : NULL;
	struct materialize w;

	if (!i || materialize_init(&w, p->t, false) < 0)
		return;
	tell(p, "complete %s", path);
	if (materialize_fill_file(&w, i) == 0)
		materialize_finish(&w, i);
	materialize_release(&w);
}

static void do_look(struct play *p)
{
	tell(p, "look");
	look_at_all(p->t, HISTORY_NONE, p->op);
}

enum class { BYTES, NAMES, OTHER };

static const struct {
	void (*act)(struct play *p);
	enum class class;
	unsigned weight;
} acts[] = {
	{ do_write, BYTES, 20 },	{ do_write_past, BYTES, 6 },  { do_overwrite, BYTES, 3 },
	{ do_truncate, BYTES, 9 },	{ do_allocate, BYTES, 10 },   { do_create, NAMES, 6 },
	{ do_mkdir, NAMES, 4 },		{ do_symlink, NAMES, 3 },     { do_unlink, NAMES, 6 },
	{ do_rmdir, NAMES, 3 },		{ do_unlink_open, NAMES, 4 }, { do_close, NAMES, 2 },
	{ do_rename, NAMES, 9 },	{ do_rename_over, NAMES, 6 }, { do_exchange, NAMES, 4 },
	{ do_link, NAMES, 6 },		{ do_copy, OTHER, 4 },	      { do_chmod, OTHER, 4 },
	{ do_setxattr, OTHER, 5 },	{ do_sync, OTHER, 14 },	      { do_sync_map, BYTES, 5 },
	{ do_sync_stranger, OTHER, 2 }, { do_checkpoint, OTHER, 2 },  { do_commit_all, OTHER, 3 },
	{ do_materialize, OTHER, 2 },	{ do_look, OTHER, 1 },
};

/* Some worlds are about bytes, some about names. */
static unsigned weight_of(size_t k)
{
	if (acts[k].class == OTHER || sim->is_about == SIM_ABOUT_ALL)
		return 4 * acts[k].weight;
	return (acts[k].class == BYTES) == (sim->is_about == SIM_ABOUT_BYTES) ? 6 * acts[k].weight
									      : acts[k].weight;
}

void player_do(struct mount *m)
{
	struct play p = {
		.m = m,
		.t = &m->tree,
		.h = sim->history,
		.op = sim->ops,
		.dice = dice_stream(sim->seed, SIM_STREAM_OP, sim->ops),
	};
	unsigned sum = 0, at;

	for (size_t k = 0; k < sizeof(acts) / sizeof(*acts); k++)
		sum += weight_of(k);
	if (dice_once_in(&p.dice, 5))
		kernel_shrink(p.t, &p.dice);
	at = (unsigned)below(&p, sum);
	for (size_t k = 0; k < sizeof(acts) / sizeof(*acts); k++) {
		if (at < weight_of(k)) {
			acts[k].act(&p);
			return;
		}
		at -= weight_of(k);
	}
}
