// SPDX-License-Identifier: Apache-2.0
/* State that a killed server leaves, and its meaning to the next one:
 * 1. A slot being allocated is NODE_FREE until all of it is written, and has no lookups before it
 *    is granted.
 * 2. A slot being released is NODE_FREE before any other field changes.
 * 3. A name's record is written before the slot refers to it, and its piece is not reused while a
 *    slot does. A piece without a slot is free.
 * 4. A slot becomes NODE_FORMER after its successor is written. */
#include "node_table-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/stats.h"

#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define SLOT_BYTES (sizeof(struct node_slot) + sizeof(void *))

/* Takes fd over; -1: make a new file. */
static int arena_init(struct arena *a, int fd, const char *name, size_t reserve)
{
	a->memfd = fd >= 0 ? fd : memfd_create(name, MFD_CLOEXEC);
	if (a->memfd < 0)
		return -errno;
	a->base =
		mmap(NULL, reserve, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (a->base == MAP_FAILED) {
		a->base = NULL;
		return -errno;
	}
	a->reserved = reserve;
	return 0;
}

static void arena_release(struct arena *a)
{
	if (a->base)
		munmap(a->base, a->reserved);
	closep(&a->memfd);
}

static int arena_grow(struct arena *a, uint64_t need)
{
	while (a->mapped < need) {
		struct stat st;

		if (a->mapped + NODE_TABLE_STEP > a->reserved)
			return -ENFILE;
		if (fstat(a->memfd, &st) < 0)
			return -errno;
		if ((uint64_t)st.st_size < a->mapped + NODE_TABLE_STEP &&
		    ftruncate(a->memfd, (off_t)(a->mapped + NODE_TABLE_STEP)) < 0)
			return -errno;
		if (mmap(a->base + a->mapped, NODE_TABLE_STEP, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED, a->memfd, (off_t)a->mapped) == MAP_FAILED)
			return -errno;
		a->mapped += NODE_TABLE_STEP;
	}
	return 0;
}

int node_table_reserve(int slots_fd, int names_fd, struct node_table **ret)
{
	struct node_table *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	t->end = NODE_TABLE_ROOT;
	t->names_end = NAMES_BEGIN;
	t->names.memfd = names_fd;
	r = arena_init(&t->slots, slots_fd, "veneer-nodes",
		       (size_t)NODE_TABLE_SLOTS_MAX * sizeof(struct node_slot));
	if (r == 0)
		r = arena_init(&t->names, names_fd, "veneer-names", NODE_TABLE_NAMES_MAX);
	if (r == 0 && !(t->objects = node_table_reserve_objects()))
		r = -ENOMEM;
	if (r < 0) {
		if (slots_fd >= 0)
			node_table_leave(t, &slots_fd, &names_fd);
		else
			node_table_free(t);
		return r;
	}
	*ret = t;
	return 0;
}

int node_table_new(struct node_table **ret)
{
	struct node_table_head *head;
	struct node_table *t;
	int r = node_table_reserve(-1, -1, &t);

	if (r < 0)
		return r;
	r = node_table_grow_slots(t, NODE_TABLE_ROOT);
	if (r == 0)
		r = node_table_grow_names(t, NAMES_BEGIN);
	if (r < 0) {
		node_table_free(t);
		return r;
	}
	head = (struct node_table_head *)t->slots.base;
	head->version = NODE_TABLE_VERSION;
	__atomic_store_n(&head->magic, NODE_TABLE_MAGIC, __ATOMIC_SEQ_CST);
	*ret = t;
	return 0;
}

void node_table_count_memory(const struct node_table *t, int sign)
{
	stats_memory_add(STATS_MEM_INODES,
			 sign * (int64_t)((t->end - NODE_TABLE_ROOT) * SLOT_BYTES + t->names_end -
					  NAMES_BEGIN));
}

void node_table_free(struct node_table *t)
{
	if (!t)
		return;
	node_table_count_memory(t, -1);
	arena_release(&t->slots);
	arena_release(&t->names);
	node_table_touch_end(t);
	node_table_free_objects(t);
	free(t);
}

void node_table_leave(struct node_table *t, int *ret_slots, int *ret_names)
{
	*ret_slots = steal_fd(&t->slots.memfd);
	*ret_names = steal_fd(&t->names.memfd);
	node_table_free(t);
}

void node_table_fds(const struct node_table *t, int *ret_slots, int *ret_names)
{
	*ret_slots = t->slots.memfd;
	*ret_names = t->names.memfd;
}

int node_table_grow_slots(struct node_table *t, size_t n)
{
	int r = arena_grow(&t->slots, n * sizeof(struct node_slot));

	return r < 0 ? r : node_table_grow_objects(t, n * sizeof(void *));
}

int node_table_grow_names(struct node_table *t, uint64_t bytes)
{
	return arena_grow(&t->names, bytes);
}

void node_table_set_state(struct node_slot *s, enum node_state state)
{
	__atomic_store_n(&s->state, (uint8_t)state, __ATOMIC_SEQ_CST);
}

int node_table_alloc(struct node_table *t, uint32_t *ret_id)
{
	struct node_slot *s;
	uint32_t id = t->free_head;

	if (id) {
		s = node_table_slot_at(t, id);
		t->free_head = s->successor;
	} else {
		int r;

		if (t->end == NODE_TABLE_SLOTS_MAX)
			return -ENFILE;
		r = node_table_grow_slots(t, t->end + 1);
		if (r < 0)
			return r;
		id = t->end++;
		stats_memory_add(STATS_MEM_INODES, SLOT_BYTES);
		s = node_table_slot_at(t, id);
	}
	__atomic_store_n(&s->generation, s->generation + 1, __ATOMIC_SEQ_CST);
	s->nlookup = s->ino = s->upper_ino = 0;
	memset((char *)s + offsetof(struct node_slot, name_off), 0,
	       sizeof(*s) - offsetof(struct node_slot, name_off));
	node_table_set_state(s, NODE_LOWER);
	node_table_note_change(t, id);
	t->count++;
	*ret_id = id;
	return 0;
}

void node_table_release(struct node_table *t, uint32_t id)
{
	struct node_slot *s = node_table_slot_at(t, id);

	node_table_set_state(s, NODE_FREE);
	node_table_clear_name(t, id); /* notes the change */
	s->successor = t->free_head;
	t->free_head = id;
	t->objects[id] = NULL;
	t->count--;
}

struct node_table_rollback *node_table_rollback(struct node_table *t)
{
	return &((struct node_table_head *)t->slots.base)->rollback;
}

struct node_slot *node_table_slot(struct node_table *t, uint64_t id)
{
	if (id < NODE_TABLE_ROOT || id >= t->end ||
	    node_table_slot_at(t, (uint32_t)id)->state == NODE_FREE)
		return NULL;
	return node_table_slot_at(t, (uint32_t)id);
}

unsigned node_table_name_class(size_t bytes)
{
	unsigned c = NAME_CLASS_MIN;

	while (((size_t)1 << c) < bytes)
		c++;
	return c;
}

void node_table_free_piece(struct node_table *t, uint64_t off, unsigned class)
{
	memcpy(t->names.base + off, &t->free_names[class], sizeof(uint64_t));
	t->free_names[class] = off;
}

static int name_alloc(struct node_table *t, size_t bytes, uint32_t *ret_off)
{
	unsigned c = node_table_name_class(bytes);
	int r;

	if (t->free_names[c]) {
		uint64_t off = t->free_names[c];

		memcpy(&t->free_names[c], t->names.base + off, sizeof(uint64_t));
		*ret_off = (uint32_t)off;
		return 0;
	}
	r = node_table_grow_names(t, t->names_end + ((size_t)1 << c));
	if (r < 0)
		return r;
	*ret_off = (uint32_t)t->names_end;
	t->names_end += (uint64_t)1 << c;
	stats_memory_add(STATS_MEM_INODES, (int64_t)1 << c);
	return 0;
}

static struct name_record *record_at(const struct node_table *t, uint32_t off)
{
	return (struct name_record *)(t->names.base + off);
}

static void lead_to(struct node_table *t, struct node_slot *s, uint32_t off)
{
	const uint32_t old = s->name_off;

	__atomic_store_n(&s->name_off, off, __ATOMIC_SEQ_CST);
	if (old)
		node_table_free_piece(
			t, old, node_table_name_class(NAME_RECORD_HEAD + record_at(t, old)->len));
}

void node_table_clear_name(struct node_table *t, uint32_t id)
{
	lead_to(t, node_table_slot_at(t, id), 0);
	node_table_note_change(t, id);
}

static int set_name(struct node_table *t, uint32_t id, uint32_t parent, const char *name)
{
	size_t len = strlen(name);
	struct name_record *rec;
	uint32_t off;
	int r;

	if (!len || len > (parent ? NAME_MAX : PATH_MAX - 1))
		return -EINVAL;
	r = name_alloc(t, NAME_RECORD_HEAD + len, &off);
	if (r < 0)
		return r;
	rec = record_at(t, off);
	rec->parent = parent;
	rec->len = (uint16_t)len;
	memcpy(rec->bytes, name, len);
	lead_to(t, node_table_slot_at(t, id), off);
	node_table_note_change(t, id);
	return 0;
}

int node_table_set_name(struct node_table *t, uint32_t id, uint32_t parent, const char *name)
{
	int r = set_name(t, id, parent, name);

	t->has_stale_name |= r < 0 && r != -EINVAL;
	return r;
}

size_t node_table_name(struct node_table *t, uint32_t id, uint32_t *ret_parent, const char **ret)
{
	const struct node_slot *s = node_table_slot_at(t, id);
	const struct name_record *rec = record_at(t, s->name_off);

	if (!s->name_off)
		return 0;
	*ret_parent = rec->parent;
	*ret = rec->bytes;
	return rec->len;
}

static struct node_table_devs *devs_at(const struct node_table *t, enum node_table_place place)
{
	return (struct node_table_devs *)t->names.base + place;
}

void node_table_note_dev(struct node_table *t, enum node_table_place place, uint64_t dev)
{
	struct node_table_devs *d = devs_at(t, place);

	if (d->n >= NODE_TABLE_DEVS_MAX)
		return;
	d->dev[d->n] = dev;
	__atomic_store_n(&d->n, d->n + 1, __ATOMIC_SEQ_CST);
}

const struct node_table_devs *node_table_devs(const struct node_table *t,
					      enum node_table_place place)
{
	return devs_at(t, place);
}

void node_table_set_object(struct node_table *t, uint32_t id, void *obj)
{
	__atomic_store_n(&t->objects[id], obj, __ATOMIC_RELEASE);
}

void *node_table_object(struct node_table *t, uint64_t id)
{
	size_t mapped = __atomic_load_n(&t->objects_mapped, __ATOMIC_ACQUIRE);

	return id < mapped / sizeof(void *) ? __atomic_load_n(&t->objects[id], __ATOMIC_ACQUIRE)
					    : NULL;
}

uint32_t node_table_end(const struct node_table *t)
{
	return t->end;
}

size_t node_table_count(const struct node_table *t)
{
	return t->count;
}
