/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the inode table that outlives the server: fixed slots, addressed by node id, and an
 * arena of names, in two memory files. A later server attaches them and makes its inodes from them;
 * in-process state has the same index beside it. A server may be killed between any two
 * instructions. So each update takes effect by one aligned store, of a state or of a name's offset;
 * writes before and after that store mean nothing by themselves. The caller serialises all
 * calls. */
#pragma once

#include "veneer/base/types.h"

#define NODE_TABLE_ROOT 1 /* FUSE_ROOT_ID */
#define NODE_TABLE_VERSION \
	1 /* of slots, records and the head before them; other versions are not attached */
#define NODE_TABLE_DEVS_MAX 255

enum node_state {
	NODE_FREE = 0,
	NODE_LOWER = 1, /* shown as in the image */
	NODE_UPPER = 2, /* has an entry in the upper */
	NODE_ORPHAN = 3, /* unlinked, still held by the kernel */
	/* the kernel still holds the id, but its inode has another one: successor */
	NODE_FORMER = 4,
};

struct node_slot {
	uint64_t nlookup; /* lookups that the kernel has yet to FORGET */
	uint64_t ino; /* st_ino as shown */
	/* inode number of the upper object; 0: none, or none when the server died */
	uint64_t upper_ino;
	uint32_t generation; /* with the node id unique for the life of the mount */
	/* The following fields are zero in a new slot. */
	uint32_t name_off; /* a record in the arena: one name, or a path; 0: none */
	/* NODE_FORMER: another node id of the same inode. NODE_FREE: the next free slot */
	uint32_t successor;
	uint32_t backing_id; /* passthrough registration; 0: none */
	/* open files, guarded as passthrough_table.h says: on the backing file, */
	uint32_t n_backed;
	uint32_t n_cached; /* on the mount's page cache, */
	uint32_t n_direct; /* and on neither */
	int32_t held_fd; /* 1 + the descriptor that is the only way to the object; 0: none */
	uint8_t state; /* enum node_state */
	uint8_t type; /* DT_* */
	uint8_t passthrough_table_kind; /* enum passthrough_table_kind of backing_id */
	uint8_t is_left; /* its inode has another node id, or is about to get one */
	/* replaced another node id of its inode, whose file is being written */
	uint8_t is_successor;
	uint8_t is_mapped_past_us; /* as in struct inode */
	uint16_t n_tied; /* lookups that the server itself holds (inode_note_tied) */
};

/* Devices, and mounts inside layers, in the order in which inode numbers encode them (xino.h), so
 * that a later server encodes them alike. */
struct node_table_devs {
	uint32_t n;
	uint32_t reserved;
	uint64_t dev[NODE_TABLE_DEVS_MAX];
};

/* A rollback of the mount to a snapshot (inode_rollback.h). Zeroed: none. */
enum node_table_stage { NODE_TABLE_STAYS, NODE_TABLE_PREPARED, NODE_TABLE_WENT_BACK };
struct node_table_rollback {
	uint32_t stage; /* enum node_table_stage */
	/* number of the snapshot that keeps the present state, lower half first */
	uint32_t kept[2];
};

enum node_table_place { NODE_TABLE_OF_TREE, NODE_TABLE_OF_IMAGE, NODE_TABLE_PLACES };

struct node_table;

int node_table_new(struct node_table **ret);
/* Attach the table of another server. Takes the descriptors over, but not on failure; they keep
 * their numbers, by which the next server finds them. Drops invalid parts and logs one line.
 * -EPROTO: no such table, or of another version; -ENOMEM; -errno. */
int node_table_attach(int slots_fd, int names_fd, struct node_table **ret);
struct node_table_rollback *node_table_rollback(struct node_table *t); /* lives as long as t */
void node_table_free(struct node_table *t);
/* Likewise, but the memory files stay open and become the caller's. */
void node_table_leave(struct node_table *t, int *ret_slots, int *ret_names);
/* The memory files of the table; borrowed. */
void node_table_fds(const struct node_table *t, int *ret_slots, int *ret_names);
/* Call fn for each descriptor that a slot of such a memory file holds, without attaching it;
 * borrowed. */
void node_table_held_fds(int slots_fd, void (*fn)(int fd, void *arg), void *arg);

/* A fresh slot (state NODE_LOWER, nlookup 0, generation set). -ENOMEM or -ENFILE. */
int node_table_alloc(struct node_table *t, uint32_t *ret_id);
void node_table_release(struct node_table *t, uint32_t id);
/* Slots never move. NULL for an id that is not in use. */
struct node_slot *node_table_slot(struct node_table *t, uint64_t id);
void node_table_set_state(struct node_slot *s, enum node_state state);
/* Set the name by which the slot can be found again; replaces the old one. With parent 0 it is a
 * path in the image. 0, -EINVAL (empty, or too long), -ENOMEM or -ENFILE. */
int node_table_set_name(struct node_table *t, uint32_t id, uint32_t parent, const char *name);
void node_table_clear_name(struct node_table *t, uint32_t id);
/* The length of the slot's name; 0: none. The name is borrowed until the next node_table_set_name
 * of that slot, and not terminated. */
size_t node_table_name(struct node_table *t, uint32_t id, uint32_t *ret_parent, const char **ret);
/* Record the number of a device. */
void node_table_note_dev(struct node_table *t, enum node_table_place place, uint64_t dev);
const struct node_table_devs *node_table_devs(const struct node_table *t,
					      enum node_table_place place);

/* The in-process object of a slot. Reading it needs no lock for a node that the kernel holds. */
void node_table_set_object(struct node_table *t, uint32_t id, void *obj);
void *node_table_object(struct node_table *t, uint64_t id);
/* One past the highest id ever used, and the number of slots in use. */
uint32_t node_table_end(const struct node_table *t);
size_t node_table_count(const struct node_table *t);

/* ---- the same slots with other objects (inode_rebuild.h) ---- */

/* From now on, record slots that are allocated, released, or changed in the fields that an inode is
 * made of. 0; -ENOMEM; -EBUSY: recording has begun already; -EUCLEAN: a name could not be recorded
 * earlier, so that only node_table_attach can tell the right ones. */
int node_table_touch_begin(struct node_table *t);
void node_table_touch_end(struct node_table *t);
/* For changes by the caller; the functions above record their own. */
void node_table_touch(struct node_table *t, uint32_t id);
bool node_table_touch_has(const struct node_table *t, uint32_t id);
/* The changed ids and their number, each once; borrowed until the next change. -ENOMEM: some could
 * not be recorded. */
ssize_t node_table_touch_list(const struct node_table *t, const uint32_t **ret);

/* A view of the slots and names of t, with its own, empty set of objects. Only its objects may be
 * changed. It may outlive t, but then only the objects remain. 0 or -ENOMEM. */
int node_table_share(const struct node_table *t, struct node_table **ret);
/* After t has grown: make the view cover all of t. 0 or -ENOMEM. */
int node_table_share_refresh(struct node_table *view, const struct node_table *t);
/* Exchange the objects of t and of its view. */
void node_table_share_swap(struct node_table *t, struct node_table *view);
void node_table_share_free(struct node_table *view);
