// SPDX-License-Identifier: Apache-2.0
/* Attaches the table of a dead server. Its interrupted update leaves no trace, by the rules of
 * node_table.c. Values that no server writes are dropped, so that nothing here can lead outside the
 * files, or round in a circle. */
#include "node_table-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/human_units.h"
#include "veneer/base/log.h"

#include <dirent.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define GRANULE 16 /* bytes; the size of each piece is a multiple */

struct load {
	struct node_table *t;
	uint8_t *used; /* granules of the arena that hold a name */
	size_t ngranules;
	uint8_t *seen; /* directories: SEEN_* */
	size_t nlost;
};

enum { SEEN_NOT, SEEN_NOW, SEEN_SAFE };

static void load_release(struct load *l)
{
	free(l->used);
	free(l->seen);
}

static int map_files(struct node_table *t)
{
	struct stat slots, names;
	int r;

	if (fstat(t->slots.memfd, &slots) < 0 || fstat(t->names.memfd, &names) < 0)
		return -errno;
	/* Extending a file is one step, so a file of another length was not made here. */
	if (slots.st_size < NODE_TABLE_STEP || names.st_size < NODE_TABLE_STEP ||
	    slots.st_size % NODE_TABLE_STEP || names.st_size % NODE_TABLE_STEP ||
	    (uint64_t)names.st_size > t->names.reserved ||
	    (uint64_t)slots.st_size > t->slots.reserved)
		return -EPROTO;
	r = node_table_grow_slots(t, (size_t)slots.st_size / sizeof(struct node_slot));
	return r < 0 ? r : node_table_grow_names(t, (uint64_t)names.st_size);
}

static bool is_of_this_version(const struct node_table *t)
{
	const struct node_table_head *head = (const struct node_table_head *)t->slots.base;

	return head->magic == NODE_TABLE_MAGIC && head->version == NODE_TABLE_VERSION;
}

/* Ids are given out in order, and every slot that was ever used has a generation. */
static void find_end(struct node_table *t)
{
	uint32_t end = (uint32_t)(t->slots.mapped / sizeof(struct node_slot));

	while (end > NODE_TABLE_ROOT && !node_table_slot_at(t, end - 1)->generation)
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
	       !(rec->bytes[0] == '.' &&
		 (rec->len == 1 || (rec->len == 2 && rec->bytes[1] == '.')));
}

/* Claim the piece of a slot's name. False: it is invalid, or claimed by another slot. */
static bool take_piece(struct load *l, uint32_t off)
{
	const struct node_table *t = l->t;
	const struct name_record *rec = (const struct name_record *)(t->names.base + off);
	uint64_t end;

	if (off < NAMES_BEGIN || off % GRANULE ||
	    (uint64_t)off + NAME_RECORD_HEAD > t->names.mapped || !rec->len)
		return false;
	end = off + ((uint64_t)1 << node_table_name_class(NAME_RECORD_HEAD + rec->len));
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

/* Chain the free slots; claim the name pieces of the others. Downwards, so that low ids are given
 * out first. */
static void scan_slots(struct load *l)
{
	struct node_table *t = l->t;

	for (uint32_t id = t->end; id-- > NODE_TABLE_ROOT;) {
		struct node_slot *s = node_table_slot_at(t, id);

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

/* Free the gaps between names, in as few pieces as possible. */
static void free_gaps(struct load *l)
{
	struct node_table *t = l->t;
	size_t g = NAMES_BEGIN / GRANULE, end = t->names_end / GRANULE;

	while (g < end) {
		size_t from = g, n;

		while (g < end && !l->used[g])
			g++;
		for (n = g - from; n; n = g - from) {
			unsigned c = NAME_CLASS_MAX;

			while (((size_t)1 << c) / GRANULE > n)
				c--;
			node_table_free_piece(t, (uint64_t)from * GRANULE, c);
			from += ((size_t)1 << c) / GRANULE;
		}
		while (g < end && l->used[g])
			g++;
	}
}

static struct node_slot *directory_above(struct node_table *t, uint32_t id, uint32_t *ret_id)
{
	const char *name;
	struct node_slot *s;

	if (!node_table_name(t, id, ret_id, &name) || !*ret_id)
		return NULL;
	s = node_table_slot(t, *ret_id);
	return s && s->type == DT_DIR && s->state != NODE_FORMER ? s : NULL;
}

/* Above every directory is the root, or a directory that has lost its name. A circle is opened
 * where it closes. */
static void check_above(struct load *l, uint32_t id)
{
	struct node_table *t = l->t;
	uint32_t at = id, above;

	while (l->seen[at] == SEEN_NOT) {
		l->seen[at] = SEEN_NOW;
		if (!directory_above(t, at, &above))
			break;
		if (l->seen[above] == SEEN_NOW) {
			lose_name(l, node_table_slot_at(t, at));
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
	struct node_table *t = l->t;

	for (uint32_t id = NODE_TABLE_ROOT; id < t->end; id++) {
		struct node_slot *s = node_table_slot(t, id);
		uint32_t parent;
		const char *name;

		if (s && node_table_name(t, id, &parent, &name) && parent &&
		    !directory_above(t, id, &parent))
			lose_name(l, s);
	}
	for (uint32_t id = NODE_TABLE_ROOT; id < t->end; id++)
		if (node_table_slot(t, id) && node_table_slot_at(t, id)->type == DT_DIR)
			check_above(l, id);
}

/* A chain of former ids is as long as a file was opened in turns; it must end at an id that is not
 * former. */
static bool leads_somewhere(struct node_table *t, const struct node_slot *s)
{
	size_t n = 0;

	while (s && s->state == NODE_FORMER && n++ < t->count)
		s = node_table_slot(t, s->successor);
	return s && s->state != NODE_FORMER;
}

static void check_successors(struct load *l)
{
	struct node_table *t = l->t;

	for (uint32_t id = NODE_TABLE_ROOT; id < t->end; id++) {
		struct node_slot *s = node_table_slot(t, id), *next;

		if (!s || s->state != NODE_FORMER)
			continue;
		if (!leads_somewhere(t, s)) {
			s->state = NODE_ORPHAN;
			s->name_off = 0;
			l->nlost++;
			continue;
		}
		/* Lead to the last id, so that chains stay short. */
		while ((next = node_table_slot(t, s->successor))->state == NODE_FORMER)
			s->successor = next->successor;
	}
}

static void check_devs(struct load *l)
{
	for (unsigned k = 0; k < NODE_TABLE_PLACES; k++) {
		struct node_table_devs *d = (struct node_table_devs *)l->t->names.base + k;

		if (d->n > NODE_TABLE_DEVS_MAX) {
			d->n = 0;
			l->nlost++;
		}
	}
}

static int load(struct node_table *t)
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
	if (!node_table_slot(t, NODE_TABLE_ROOT) ||
	    node_table_slot_at(t, NODE_TABLE_ROOT)->type != DT_DIR)
		return -EPROTO;
	node_table_slot_at(t, NODE_TABLE_ROOT)->name_off = 0;
	check_names(&l);
	check_successors(&l);
	check_devs(&l);
	/* After the checks above: the pieces of names that they dropped stay used until the next
	 * server. */
	free_gaps(&l);
	if (l.nlost)
		log_error("the table of nodes is damaged: lost %s",
			  human_units_of(l.nlost, "entry").text);
	return 0;
}

int node_table_attach(int slots_fd, int names_fd, struct node_table **ret)
{
	struct node_table *t;
	int r = node_table_reserve(slots_fd, names_fd, &t);

	if (r < 0)
		return r;
	r = load(t);
	if (r < 0) {
		/* Nothing has been counted yet. */
		t->end = NODE_TABLE_ROOT;
		t->names_end = NAMES_BEGIN;
		node_table_leave(t, &slots_fd, &names_fd);
		return r;
	}
	node_table_count_memory(t, 1);
	*ret = t;
	return 0;
}

void node_table_held_fds(int slots_fd, void (*fn)(int fd, void *arg), void *arg)
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
	for (size_t id = NODE_TABLE_ROOT; id < n; id++)
		if (slots[id].state != NODE_FREE && slots[id].held_fd > 0)
			fn(slots[id].held_fd - 1, arg);
	munmap(slots, n * sizeof(*slots));
}
