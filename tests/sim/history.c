// SPDX-License-Identifier: Apache-2.0
#include "history.h"

#include "arena.h"
#include "history-internal.h"
#include "sim.h"

#include <string.h>
#include <sys/stat.h>

struct history {
	struct history_names **names; /* events, the last is now */
	size_t n;
	uint64_t first; /* number of names[0] */
	struct history_thing **things;
	size_t nthings;
};

bool history_has_no_ghosts;
const char *const history_kind_names[] = { "file", "directory", "symlink" };

static struct history_event *last(const struct history_list *l)
{
	return &l->e[l->n - 1];
}

static void push(struct history_list *l, uint64_t op, uint64_t value, void *bytes)
{
	l->e = arena_grow(l->e, l->n * sizeof(*l->e), (l->n + 1) * sizeof(*l->e));
	l->e[l->n++] = (struct history_event){ .op = op, .value = value, .bytes = bytes };
}

/* Keep the newest, and its ghosts. */
static void settle(struct history_list *l, bool keeps_ghosts)
{
	const struct history_event newest = *last(l);
	size_t n = 0;

	for (size_t k = 0; k + 1 < l->n; k++)
		if (keeps_ghosts && newest.is_found && l->e[k].is_ghost)
			l->e[n++] = l->e[k];
		else
			arena_free(l->e[k].bytes);
	l->e[n++] = newest;
	l->n = n;
}

/* Index of the first event that may be the state. */
static size_t first_of(const struct history_list *l, enum history_doubt doubt, uint64_t op)
{
	size_t k = l->n - 1;

	if (doubt == HISTORY_CUT)
		return 0;
	while (doubt == HISTORY_LAST_OP && k > 0 && l->e[k].op >= op)
		k--;
	return k;
}

void history_path(char ret[HISTORY_PATH], const char *a, const char *b)
{
	char all[2 * HISTORY_PATH] = "";
	const size_t n = strnlen(a, HISTORY_PATH - 1);

	memcpy(all, a, n);
	memcpy(all + n, b, strnlen(b, HISTORY_PATH - 1));
	memcpy(ret, all, HISTORY_PATH);
	ret[HISTORY_PATH - 1] = '\0';
}

struct history *history_new(void)
{
	struct history *h = arena_alloc(sizeof(*h));

	h->names = arena_alloc(sizeof(*h->names));
	h->names[h->n++] = arena_alloc(sizeof(struct history_names));
	return h;
}

struct history_thing *history_thing(struct history *h, enum history_kind kind, mode_t mode)
{
	struct history_thing *t = arena_alloc(sizeof(*t));

	*t = (struct history_thing){ .kind = kind, .number = (unsigned)h->nthings };
	push(&t->mode, 0, mode, NULL);
	push(&t->xattr, 0, 0, arena_text(""));
	push(&t->size, 0, 0, NULL);
	if (kind == HISTORY_FILE) {
		t->now = arena_alloc(HISTORY_BYTES);
		t->blocks = arena_alloc(HISTORY_BYTES / HISTORY_BLK * sizeof(*t->blocks));
		for (size_t k = 0; k < HISTORY_BYTES / HISTORY_BLK; k++)
			push(&t->blocks[k], 0, 0, NULL);
	}
	h->things = arena_grow(h->things, h->nthings * sizeof(*h->things),
			       (h->nthings + 1) * sizeof(*h->things));
	h->things[h->nthings++] = t;
	return t;
}

uint64_t history_size(const struct history_thing *t)
{
	return last(&t->size)->value;
}

const char *history_xattr(const struct history_thing *t)
{
	return last(&t->xattr)->bytes;
}

/* Blocks of [off, end) are as `now` has them. */
static void note_blocks(struct history_thing *t, uint64_t op, uint64_t off, uint64_t end)
{
	for (uint64_t blk = off / HISTORY_BLK; blk * HISTORY_BLK < end; blk++)
		push(&t->blocks[blk], op, 0, arena_copy(t->now + blk * HISTORY_BLK, HISTORY_BLK));
}

void history_fill(struct history_thing *t, const void *bytes, size_t size)
{
	memset(t->now, 0, HISTORY_BYTES);
	memcpy(t->now, bytes, size);
	note_blocks(t, 0, 0, HISTORY_BYTES);
	for (size_t k = 0; k < HISTORY_BYTES / HISTORY_BLK; k++)
		settle(&t->blocks[k], false);
	push(&t->size, 0, size, NULL);
	settle(&t->size, false);
}

const struct history_names *history_now(const struct history *h)
{
	return h->names[h->n - 1];
}

static struct history_thing *thing_at(const struct history_names *n, const char *path)
{
	for (size_t k = 0; k < n->n; k++)
		if (!strcmp(n->at[k].path, path))
			return n->at[k].thing;
	return NULL;
}

struct history_thing *history_at(const struct history *h, const char *path)
{
	return thing_at(history_now(h), path);
}

struct history_names *history_edit(const struct history *h)
{
	return arena_copy(history_now(h), sizeof(struct history_names));
}

void history_add(struct history_names *n, const char *path, struct history_thing *t)
{
	if (n->n == HISTORY_NAMES)
		sim_give_up("too many names");
	history_path(n->at[n->n].path, path, "");
	n->at[n->n++].thing = t;
}

void history_remove(struct history_names *n, const char *path)
{
	for (size_t k = 0; k < n->n; k++)
		if (!strcmp(n->at[k].path, path)) {
			n->at[k] = n->at[--n->n];
			memset(&n->at[n->n], 0, sizeof(n->at[n->n]));
			return;
		}
}

static bool is_in(const char *path, const char *dir)
{
	const size_t len = strlen(dir);

	return !strncmp(path, dir, len) && (!path[len] || path[len] == '/');
}

void history_close_all(struct history *h)
{
	for (size_t k = 0; k < h->n; k++)
		for (size_t j = h->names[k]->n; j-- > 0;)
			if (*h->names[k]->at[j].path == '@')
				history_remove(h->names[k], h->names[k]->at[j].path);
}

void history_swap(struct history_names *n, const char *a, const char *b)
{
	for (size_t k = 0; k < n->n; k++) {
		const char *path = n->at[k].path;
		char moved[HISTORY_PATH];

		if (is_in(path, a))
			history_path(moved, b, path + strlen(a));
		else if (is_in(path, b))
			history_path(moved, a, path + strlen(b));
		else
			continue;
		memcpy(n->at[k].path, moved, sizeof(moved));
	}
}

void history_set_names(struct history *h, uint64_t op, struct history_names *n)
{
	n->op = op;
	h->names = arena_grow(h->names, h->n * sizeof(n), (h->n + 1) * sizeof(n));
	h->names[h->n++] = n;
}

void history_touch(struct history *h, struct history_thing *t)
{
	const uint64_t now = h->first + h->n - 1;

	if (t->last_names != now)
		t->former_names = t->last_names;
	t->last_names = now;
}

static void drop_names(struct history *h, size_t n)
{
	for (size_t k = 0; k < n; k++)
		arena_free(h->names[k]);
	h->n -= n;
	h->first += n;
	memmove(h->names, h->names + n, h->n * sizeof(*h->names));
}

/* What a write that makes the file longer may leave of the size: it may end with any block. */
static void note_growth(struct history_thing *t, uint64_t op, uint64_t end)
{
	const uint64_t before = history_size(t);

	if (end <= before)
		return;
	for (uint64_t at = (before / HISTORY_BLK + 1) * HISTORY_BLK; at < end; at += HISTORY_BLK)
		push(&t->size, op, at, NULL);
	push(&t->size, op, end, NULL);
}

void history_write(struct history_thing *t, uint64_t op, uint64_t off, const void *p, size_t len)
{
	memcpy(t->now + off, p, len);
	note_blocks(t, op, off, off + len);
	note_growth(t, op, off + len);
}

void history_copy(struct history_thing *t, uint64_t op, const void *p, size_t len)
{
	if (!len)
		return;
	push(&t->size, op, len, NULL);
	last(&t->size)->is_below = true;
	history_write(t, op, 0, p, len);
	push(&t->size, op, len, NULL);
}

/* They stay, and are shorter. */
static void cut_ghosts(struct history_list *l, size_t at)
{
	for (size_t k = 0; k < l->n; k++)
		if (l->e[k].is_ghost && l->e[k].bytes) {
			memset((char *)l->e[k].bytes + at, 0, HISTORY_BLK - at);
			last(l)->is_found = true;
		}
}

void history_truncate(struct history_thing *t, uint64_t op, uint64_t size)
{
	const uint64_t before = history_size(t);

	if (size < before) {
		memset(t->now + size, 0, before - size);
		note_blocks(t, op, size, before);
		if (size % HISTORY_BLK)
			cut_ghosts(&t->blocks[size / HISTORY_BLK], size % HISTORY_BLK);
	}
	push(&t->size, op, size, NULL);
}

void history_zero(struct history_thing *t, uint64_t op, uint64_t off, uint64_t len)
{
	const uint64_t size = history_size(t), end = off + len < size ? off + len : size;
	uint64_t least = size;

	if (off >= end)
		return;
	memset(t->now + off, 0, end - off);
	note_blocks(t, op, off, end);
	/* A hole may have the size on the disk grow as far as itself (Linux 6.18). */
	for (size_t k = 0; k < t->size.n; k++)
		least = t->size.e[k].value < least ? t->size.e[k].value : least;
	if (least < end && end < size) {
		push(&t->size, op, end, NULL);
		push(&t->size, op, size, NULL);
	}
}

void history_grow(struct history_thing *t, uint64_t op, uint64_t end)
{
	if (end > history_size(t))
		push(&t->size, op, end, NULL);
}

void history_set_mode(struct history_thing *t, uint64_t op, mode_t mode)
{
	push(&t->mode, op, mode, NULL);
}

void history_set_xattr(struct history_thing *t, uint64_t op, const char *value)
{
	push(&t->xattr, op, 0, arena_text(value));
}

static void settle_thing(struct history_thing *t)
{
	settle(&t->mode, false);
	settle(&t->xattr, false);
	settle(&t->size, false);
	for (size_t k = 0; t->blocks && k < HISTORY_BYTES / HISTORY_BLK; k++)
		settle(&t->blocks[k], true);
}

void history_data_synced(struct history_thing *t)
{
	settle(&t->size, false);
	for (size_t k = 0; k < HISTORY_BYTES / HISTORY_BLK; k++)
		settle(&t->blocks[k], true);
}

void history_synced(struct history *h, struct history_thing *t)
{
	settle_thing(t);
	if (t->last_names > h->first)
		drop_names(h, (size_t)(t->last_names - h->first));
}

void history_all_synced(struct history *h)
{
	for (size_t k = 0; k < h->nthings; k++)
		settle_thing(h->things[k]);
	drop_names(h, h->n - 1);
}

struct history_names *history_candidate(struct history *h, size_t k)
{
	return h->names[k];
}

size_t history_candidates(const struct history *h)
{
	return h->n;
}

size_t history_first(const struct history_list *l, enum history_doubt doubt, uint64_t op)
{
	return first_of(l, doubt, op);
}

void history_choose(struct history *h, const struct history_look *look, size_t k)
{
	if (k + 1 < h->n) {
		/* What came behind it did not happen. */
		for (size_t j = 0; j < h->nthings; j++)
			if (h->things[j]->last_names > h->first + k)
				h->things[j]->last_names = h->things[j]->former_names;
		history_set_names(h, look->op,
				  arena_copy(h->names[k], sizeof(struct history_names)));
	}
	if (look->doubt == HISTORY_CUT)
		drop_names(h, h->n - 1);
}

static void take_bytes(struct history_thing *t, const struct history_found *f, uint64_t op)
{
	const bool has_ghosts = sim->has_true_extents && !history_has_no_ghosts;
	uint8_t *block = arena_alloc(HISTORY_BLK);

	for (uint64_t blk = 0; blk < HISTORY_BYTES / HISTORY_BLK; blk++) {
		const uint64_t at = blk * HISTORY_BLK;
		const size_t len = at >= f->size		? 0
				   : f->size - at > HISTORY_BLK ? HISTORY_BLK
								: (size_t)(f->size - at);

		memset(block, 0, HISTORY_BLK);
		memcpy(block, f->bytes + at, len);
		if (memcmp(block, t->now + at, HISTORY_BLK) == 0)
			continue;
		memcpy(t->now + at, block, HISTORY_BLK);
		for (size_t k = 0; has_ghosts && k < t->blocks[blk].n; k++)
			t->blocks[blk].e[k].is_ghost |= op && t->blocks[blk].e[k].op == op;
		note_blocks(t, op, at, at + 1);
		last(&t->blocks[blk])->is_found = true;
	}
	arena_free(block);
}

/* What was found is the state from now on; after a power cut it is on the disk. */
void history_take(struct history_thing *t, const struct history_found *f,
		  const struct history_look *look)
{
	if (f->mode != last(&t->mode)->value)
		push(&t->mode, look->op, f->mode, NULL);
	if (strcmp(f->xattr, last(&t->xattr)->bytes) != 0)
		push(&t->xattr, look->op, 0, arena_text(f->xattr));
	if (t->kind == HISTORY_FILE) {
		if (f->size != history_size(t))
			push(&t->size, look->op, f->size, NULL);
		take_bytes(t, f, look->op);
	}
	/* A map that was closed clean does not ask extents: a ghost may come later. */
	if (look->doubt == HISTORY_CUT)
		settle_thing(t);
}
