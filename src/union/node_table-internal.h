/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of a node table: node_table.c changes it, node_table_load.c attaches one,
 * node_table_share.c has the in-process parts. */
#pragma once

#include "veneer/union/node_table.h"

/* Address space is reserved once, so that nothing ever moves; memory is added in steps. */
#define NODE_TABLE_SLOTS_MAX (1u << 26)
#define NODE_TABLE_NAMES_MAX (1ull << 32)
#define NODE_TABLE_STEP	     (1u << 20)
#define NODE_TABLE_MAGIC     0x7665696e6e6f6465ull
#define NAME_CLASS_MIN	     4 /* 16 bytes */
#define NAME_CLASS_MAX	     16 /* the longest record: a path, 64 KiB */
#define NAMES_BEGIN	     ((sizeof(struct node_table_devs) * NODE_TABLE_PLACES + 15) / 16 * 16)

/* Node id 0 is never used: its slot holds the head of the table. */
struct node_table_head {
	uint64_t magic;
	uint32_t version;
	struct node_table_rollback rollback;
	uint8_t reserved[36];
};

/* A piece of the arena that a slot refers to; constant while one does. */
struct name_record {
	uint32_t parent; /* node id of the directory; 0: a path in the image */
	uint16_t len;
	char bytes[];
};
#define NAME_RECORD_HEAD offsetof(struct name_record, bytes)

struct arena {
	int memfd;
	uint8_t *base;
	size_t reserved, mapped;
};

struct node_table {
	struct arena slots, names;
	void **objects;
	size_t objects_mapped;
	uint32_t end, free_head;
	size_t count;
	uint64_t names_end;
	/* By class: offset of a free piece, chained through its first bytes; 0: none. */
	uint64_t free_names[NAME_CLASS_MAX + 1];
	struct node_table_touched *touched; /* node_table_share.c; NULL: changes are not recorded */
	bool has_stale_name; /* a slot still refers to a name that its inode has lost */
};

_Static_assert(sizeof(struct node_slot) == 64, "a slot is one cache line");
_Static_assert(sizeof(struct node_table_head) == sizeof(struct node_slot),
	       "it has the place of a slot");

static inline struct node_slot *node_table_slot_at(const struct node_table *t, uint32_t id)
{
	return (struct node_slot *)t->slots.base + id;
}

/* Reserve address space for a table in these memory files, or in new ones (-1). On failure given
 * files stay the caller's. */
int node_table_reserve(int slots_fd, int names_fd, struct node_table **ret);
/* Map this much of a file, and extend the file if necessary. */
int node_table_grow_slots(struct node_table *t, size_t n);
int node_table_grow_names(struct node_table *t, uint64_t bytes);
/* The class of a piece for so many bytes: its size is 1 << class. */
unsigned node_table_name_class(size_t bytes);
void node_table_free_piece(struct node_table *t, uint64_t off, unsigned class);
void node_table_count_memory(const struct node_table *t, int sign);
/* Make room for this many bytes of object pointers. 0 or -ENOMEM. */
int node_table_grow_objects(struct node_table *t, size_t need);
/* Reserve address space for the objects of all possible slots. NULL: none. */
void **node_table_reserve_objects(void);
void node_table_free_objects(struct node_table *t);
/* A field that the slot's inode is made of has changed. */
static inline void node_table_note_change(struct node_table *t, uint32_t id)
{
	if (t->touched)
		node_table_touch(t, id);
}
