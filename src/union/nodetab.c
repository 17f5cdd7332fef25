// SPDX-License-Identifier: Apache-2.0
#include "veneer/nodetab.h"

#include "veneer/cleanup.h"
#include "veneer/stats.h"

#include <limits.h>
#include <string.h>
#include <sys/mman.h>

/* Address space is reserved once, so nothing ever moves; memory is added in steps. */
#define NODETAB_SLOTS_MAX (1u << 26)
#define NODETAB_NAMES_MAX (1ull << 32)
#define NODETAB_STEP (1u << 20)
#define SLOT_BYTES (sizeof(struct node_slot) + sizeof(void *))
#define NAME_CLASS_MIN 4	/* 16 bytes */
#define NAME_CLASS_MAX 8	/* 256 bytes: the longest name is 255 */

struct arena {
	int memfd;
	uint8_t *base;
	size_t reserved, mapped;
};

struct nodetab {
	struct arena slots, names;
	void **objects;
	size_t objects_mapped;
	uint32_t end, free_head;
	size_t count;
	uint64_t names_end;
	uint64_t free_names[NAME_CLASS_MAX + 1];	/* offset + 1 of a free piece, chained through its first bytes */
};

_Static_assert(sizeof(struct node_slot) == 64, "a slot is one cache line");

static int arena_init(struct arena *a, const char *name, size_t reserve)
{
	a->memfd = memfd_create(name, MFD_CLOEXEC);
	if (a->memfd < 0)
		return -errno;
	a->base = mmap(NULL, reserve, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
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

static int arena_grow(struct arena *a, size_t need)
{
	while (a->mapped < need) {
		if (a->mapped + NODETAB_STEP > a->reserved)
			return -ENFILE;
		if (ftruncate(a->memfd, (off_t)(a->mapped + NODETAB_STEP)) < 0)
			return -errno;
		if (mmap(a->base + a->mapped, NODETAB_STEP, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, a->memfd,
			 (off_t)a->mapped) == MAP_FAILED)
			return -errno;
		a->mapped += NODETAB_STEP;
	}
	return 0;
}

int nodetab_new(struct nodetab **ret)
{
	struct nodetab *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	t->slots.memfd = t->names.memfd = -1;
	t->end = NODETAB_ROOT;
	r = arena_init(&t->slots, "veneer-nodes", (size_t)NODETAB_SLOTS_MAX * sizeof(struct node_slot));
	if (r == 0)
		r = arena_init(&t->names, "veneer-names", NODETAB_NAMES_MAX);
	if (r == 0) {
		t->objects = mmap(NULL, NODETAB_SLOTS_MAX * sizeof(void *), PROT_NONE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (t->objects == MAP_FAILED) {
			t->objects = NULL;
			r = -errno;
		}
	}
	if (r < 0) {
		nodetab_free(t);
		return r;
	}
	*ret = t;
	return 0;
}

void nodetab_free(struct nodetab *t)
{
	if (!t)
		return;
	stats_memory_add(STATS_MEM_INODES, -(int64_t)((t->end - NODETAB_ROOT) * SLOT_BYTES + t->names_end));
	arena_release(&t->slots);
	arena_release(&t->names);
	if (t->objects)
		munmap(t->objects, NODETAB_SLOTS_MAX * sizeof(void *));
	free(t);
}

static struct node_slot *slot_at(struct nodetab *t, uint32_t id)
{
	return (struct node_slot *)t->slots.base + id;
}

/* The pointers grow as the slots do: address space is free, committed memory is not. */
static int objects_grow(struct nodetab *t, size_t need)
{
	while (t->objects_mapped < need) {
		if (mprotect((char *)t->objects + t->objects_mapped, NODETAB_STEP, PROT_READ | PROT_WRITE) < 0)
			return -errno;
		__atomic_store_n(&t->objects_mapped, t->objects_mapped + NODETAB_STEP, __ATOMIC_RELEASE);
	}
	return 0;
}

int nodetab_alloc(struct nodetab *t, uint32_t *ret_id)
{
	struct node_slot *s;
	uint32_t id = t->free_head, generation;

	if (id) {
		s = slot_at(t, id);
		t->free_head = s->next_free;
	} else {
		int r;

		if (t->end == NODETAB_SLOTS_MAX)
			return -ENFILE;
		r = arena_grow(&t->slots, (size_t)(t->end + 1) * sizeof(*s));
		if (r == 0)
			r = objects_grow(t, (size_t)(t->end + 1) * sizeof(void *));
		if (r < 0)
			return r;
		id = t->end++;
		stats_memory_add(STATS_MEM_INODES, SLOT_BYTES);
		s = slot_at(t, id);
	}
	generation = s->generation + 1;
	*s = (struct node_slot){ .state = NODE_LOWER, .generation = generation };
	t->count++;
	*ret_id = id;
	return 0;
}

void nodetab_release(struct nodetab *t, uint32_t id)
{
	struct node_slot *s = slot_at(t, id);

	nodetab_clear_name(t, id);
	s->state = NODE_FREE;
	s->next_free = t->free_head;
	t->free_head = id;
	t->objects[id] = NULL;
	t->count--;
}

struct node_slot *nodetab_slot(struct nodetab *t, uint64_t id)
{
	if (id < NODETAB_ROOT || id >= t->end || slot_at(t, (uint32_t)id)->state == NODE_FREE)
		return NULL;
	return slot_at(t, (uint32_t)id);
}

static unsigned name_class(size_t len)
{
	unsigned c = NAME_CLASS_MIN;

	while (((size_t)1 << c) < len)
		c++;
	return c;
}

static int name_alloc(struct nodetab *t, size_t len, uint32_t *ret_off)
{
	unsigned c = name_class(len);
	uint64_t next;
	int r;

	if (t->free_names[c]) {
		uint64_t off = t->free_names[c] - 1;

		memcpy(&next, t->names.base + off, sizeof(next));
		t->free_names[c] = next;
		*ret_off = (uint32_t)off;
		return 0;
	}
	r = arena_grow(&t->names, t->names_end + ((size_t)1 << c));
	if (r < 0)
		return r;
	*ret_off = (uint32_t)t->names_end;
	t->names_end += (uint64_t)1 << c;
	stats_memory_add(STATS_MEM_INODES, (int64_t)1 << c);
	return 0;
}

void nodetab_clear_name(struct nodetab *t, uint32_t id)
{
	struct node_slot *s = slot_at(t, id);

	if (s->name_len) {
		unsigned c = name_class(s->name_len);

		memcpy(t->names.base + s->name_off, &t->free_names[c], sizeof(uint64_t));
		t->free_names[c] = (uint64_t)s->name_off + 1;
	}
	s->name_len = 0;
	s->parent = 0;
}

int nodetab_set_name(struct nodetab *t, uint32_t id, uint32_t parent, const char *name)
{
	struct node_slot *s = slot_at(t, id);
	size_t len = strlen(name);
	uint32_t off;
	int r;

	if (!len || len > NAME_MAX)
		return -EINVAL;
	r = name_alloc(t, len, &off);
	if (r < 0)
		return r;
	nodetab_clear_name(t, id);
	memcpy(t->names.base + off, name, len);
	s->name_off = off;
	s->name_len = (uint16_t)len;
	s->parent = parent;
	return 0;
}

const char *nodetab_name(struct nodetab *t, uint32_t id)
{
	return (const char *)t->names.base + slot_at(t, id)->name_off;
}

void nodetab_set_object(struct nodetab *t, uint32_t id, void *obj)
{
	__atomic_store_n(&t->objects[id], obj, __ATOMIC_RELEASE);
}

void *nodetab_object(struct nodetab *t, uint64_t id)
{
	size_t mapped = __atomic_load_n(&t->objects_mapped, __ATOMIC_ACQUIRE);

	return id < mapped / sizeof(void *) ? __atomic_load_n(&t->objects[id], __ATOMIC_ACQUIRE) : NULL;
}

uint32_t nodetab_end(const struct nodetab *t)
{
	return t->end;
}

size_t nodetab_count(const struct nodetab *t)
{
	return t->count;
}
