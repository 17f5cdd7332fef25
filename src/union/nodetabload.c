// SPDX-License-Identifier: Apache-2.0
/* Taking over the table of a server that is dead. What it was doing when it died leaves no trace, as nodetab.c says.
 * What no server of ours writes is left out, so that nothing here can lead outside the files, or round in a circle. */
#include "nodetab-internal.h"

#include "veneer/cleanup.h"
#include "veneer/log.h"
#include "veneer/quantity.h"

#include <dirent.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define GRANULE 16 /* bytes; every piece of the arena is so many times that */

struct load {
	struct nodetab *t;
	uint8_t *used;		/* granules of the arena that a name stands in */
	size_t ngranules;
	uint8_t *seen;		/* directories: SEEN_* */
	size_t nlost;
};

enum { SEEN_NOT, SEEN_NOW, SEEN_SAFE };

static void load_release(struct load *l)
{
	free(l->used);
	free(l->seen);
}

static int map_files(struct nodetab *t)
{
	struct stat slots, names;
	int r;

	if (fstat(t->slots.memfd, &slots) < 0 || fstat(t->names.memfd, &names) < 0)
		return -errno;
	/* Being made longer is one step; a file of another length was not made here. */
	if (slots.st_size < NODETAB_STEP || names.st_size < NODETAB_STEP || slots.st_size % NODETAB_STEP ||
	    names.st_size % NODETAB_STEP || (uint64_t)names.st_size > t->names.reserved ||
	    (uint64_t)slots.st_size > t->slots.reserved)
		return -EPROTO;
	r = nodetab_grow_slots(t, (size_t)slots.st_size / sizeof(struct node_slot));
	return r < 0 ? r : nodetab_grow_names(t, (uint64_t)names.st_size);
}

static bool is_of_this_version(const struct nodetab *t)
{
	const struct nodetab_head *head = (const struct nodetab_head *)t->slots.base;

	return head->magic == NODETAB_MAGIC && head->version == NODETAB_VERSION;
}

/* Ids are given out in order, and every slot that was ever used has a generation. */
static void find_end(struct nodetab *t)
{
	uint32_t end = (uint32_t)(t->slots.mapped / sizeof(struct node_slot));

	while (end > NODETAB_ROOT && !nodetab_slot_at(t, end - 1)->generation)
		end--;
	t->end = end;
}

static void lose_name(struct load *l, struct node_slot *s)
{
	s->name_off = 0;
	l->nlost++;
}

static bool is_name(const struct name_record *rec)
{
	if (memchr(rec->bytes, '\0', rec->len))
		return false;
	if (!rec->parent)
		return rec->len < PATH_MAX;
	return rec->len <= NAME_MAX && !memchr(rec->bytes, '/', rec->len) &&
	       !(rec->bytes[0] == '.' && (rec->len == 1 || (rec->len == 2 && rec->bytes[1] == '.')));
}

/* Take the piece that a slot's name stands in; false if it is none, or another's. */
static bool take_piece(struct load *l, uint32_t off)
{
	const struct nodetab *t = l->t;
	const struct name_record *rec = (const struct name_record *)(t->names.base + off);
	uint64_t end;

	if (off < NAMES_BEGIN || off % GRANULE || (uint64_t)off + NAME_RECORD_HEAD > t->names.mapped || !rec->len)
		return false;
	end = off + ((uint64_t)1 << nodetab_name_class(NAME_RECORD_HEAD + rec->len));
	if (end > t->names.mapped || !is_name(rec))
		return false;
	for (uint64_t g = off / GRANULE; g < end / GRANULE; g++)
		if (l->used[g])
			return false;
	memset(l->used + off / GRANULE, 1, (size_t)(end - off) / GRANULE);
	if (end > l->t->names_end)
		l->t->names_end = end;
	return true;
}

/* Slots, one by one: free ones are chained, the names of others get their pieces. Downwards, so that low ids are
 * given out first. */
static void scan_slots(struct load *l)
{
	struct nodetab *t = l->t;

	for (uint32_t id = t->end; id-- > NODETAB_ROOT;) {
		struct node_slot *s = nodetab_slot_at(t, id);

		if (s->state > NODE_FORMER || (s->state != NODE_FREE && !s->generation)) {
			s->state = NODE_FREE;
			l->nlost++;
		}
		if (s->state == NODE_FREE) {
			s->name_off = 0;
			s->successor = t->free_head;
			t->free_head = id;
			continue;
		}
		t->count++;
		if (s->name_off && !take_piece(l, s->name_off))
			lose_name(l, s);
	}
}

/* What lies between names is free: as few pieces as do. */
static void free_gaps(struct load *l)
{
	struct nodetab *t = l->t;
	size_t g = NAMES_BEGIN / GRANULE, end = t->names_end / GRANULE;

	while (g < end) {
		size_t from = g, n;

		while (g < end && !l->used[g])
			g++;
		for (n = g - from; n; n = g - from) {
			unsigned c = NAME_CLASS_MAX;

			while (((size_t)1 << c) / GRANULE > n)
				c--;
			nodetab_free_piece(t, (uint64_t)from * GRANULE, c);
			from += ((size_t)1 << c) / GRANULE;
		}
		while (g < end && l->used[g])
			g++;
	}
}

static struct node_slot *directory_above(struct nodetab *t, uint32_t id, uint32_t *ret_id)
{
	const char *name;
	struct node_slot *s;

	if (!nodetab_name(t, id, ret_id, &name) || !*ret_id)
		return NULL;
	s = nodetab_slot(t, *ret_id);
	return s && s->type == DT_DIR && s->state != NODE_FORMER ? s : NULL;
}

/* Above every directory is the root, or one that has lost its name. A circle is opened where it closes. */
static void check_above(struct load *l, uint32_t id)
{
	struct nodetab *t = l->t;
	uint32_t at = id, above;

	while (l->seen[at] == SEEN_NOT) {
		l->seen[at] = SEEN_NOW;
		if (!directory_above(t, at, &above))
			break;
		if (l->seen[above] == SEEN_NOW) {
			lose_name(l, nodetab_slot_at(t, at));
			break;
		}
		at = above;
	}
	for (at = id; l->seen[at] == SEEN_NOW; at = above) {
		l->seen[at] = SEEN_SAFE;
		if (!directory_above(t, at, &above))
			break;
	}
}

static void check_names(struct load *l)
{
	struct nodetab *t = l->t;

	for (uint32_t id = NODETAB_ROOT; id < t->end; id++) {
		struct node_slot *s = nodetab_slot(t, id);
		uint32_t parent;
		const char *name;

		if (s && nodetab_name(t, id, &parent, &name) && parent && !directory_above(t, id, &parent))
			lose_name(l, s);
	}
	for (uint32_t id = NODETAB_ROOT; id < t->end; id++)
		if (nodetab_slot(t, id) && nodetab_slot_at(t, id)->type == DT_DIR)
			check_above(l, id);
}

/* Chains of former ids are as long as a file was opened in turns; each leads to one that is none. */
static bool leads_somewhere(struct nodetab *t, const struct node_slot *s)
{
	size_t n = 0;

	while (s && s->state == NODE_FORMER && n++ < t->count)
		s = nodetab_slot(t, s->successor);
	return s && s->state != NODE_FORMER;
}

static void check_successors(struct load *l)
{
	struct nodetab *t = l->t;

	for (uint32_t id = NODETAB_ROOT; id < t->end; id++) {
		struct node_slot *s = nodetab_slot(t, id), *next;

		if (!s || s->state != NODE_FORMER)
			continue;
		if (!leads_somewhere(t, s)) {
			s->state = NODE_ORPHAN;
			s->name_off = 0;
			l->nlost++;
			continue;
		}
		/* The last one is asked for, and so chains stay short. */
		while ((next = nodetab_slot(t, s->successor))->state == NODE_FORMER)
			s->successor = next->successor;
	}
}

static void check_devs(struct load *l)
{
	for (unsigned k = 0; k < NODETAB_PLACES; k++) {
		struct nodetab_devs *d = (struct nodetab_devs *)l->t->names.base + k;

		if (d->n > NODETAB_DEVS_MAX) {
			d->n = 0;
			l->nlost++;
		}
	}
}

static int load(struct nodetab *t)
{
	_cleanup_(load_release) struct load l = { .t = t };
	int r = map_files(t);

	if (r < 0)
		return r;
	if (!is_of_this_version(t))
		return -EPROTO;
	find_end(t);
	l.ngranules = t->names.mapped / GRANULE;
	l.used = calloc(l.ngranules, 1);
	l.seen = calloc(t->end, 1);
	if (!l.used || !l.seen)
		return -ENOMEM;
	scan_slots(&l);
	if (!nodetab_slot(t, NODETAB_ROOT) || nodetab_slot_at(t, NODETAB_ROOT)->type != DT_DIR)
		return -EPROTO;
	nodetab_slot_at(t, NODETAB_ROOT)->name_off = 0;
	check_names(&l);
	check_successors(&l);
	check_devs(&l);
	/* Last: pieces of the names that were lost just now are free only for the next server. */
	free_gaps(&l);
	if (l.nlost)
		log_error("the table of nodes is damaged: lost %s", quantity_of(l.nlost, "entry").text);
	return 0;
}

int nodetab_attach(int slots_fd, int names_fd, struct nodetab **ret)
{
	struct nodetab *t;
	int r = nodetab_reserve(slots_fd, names_fd, &t);

	if (r < 0)
		return r;
	r = load(t);
	if (r < 0) {
		/* Nothing of it has been counted yet. */
		t->end = NODETAB_ROOT;
		t->names_end = NAMES_BEGIN;
		nodetab_free(t);
		return r;
	}
	nodetab_count_memory(t, 1);
	*ret = t;
	return 0;
}

void nodetab_held_fds(int slots_fd, void (*fn)(int fd, void *arg), void *arg)
{
	struct node_slot *slots;
	struct stat st;
	size_t n;

	if (fstat(slots_fd, &st) < 0 || st.st_size < (off_t)sizeof(*slots))
		return;
	n = (size_t)st.st_size / sizeof(*slots);
	slots = mmap(NULL, n * sizeof(*slots), PROT_READ, MAP_SHARED, slots_fd, 0);
	if (slots == MAP_FAILED)
		return;
	for (size_t id = NODETAB_ROOT; id < n; id++)
		if (slots[id].state != NODE_FREE && slots[id].held_fd > 0)
			fn(slots[id].held_fd - 1, arg);
	munmap(slots, n * sizeof(*slots));
}
