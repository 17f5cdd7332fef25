/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the inode table that outlives the server: fixed slots, addressed by node id, and an
 * arena of names, in two memory files. A later server attaches them and makes its inodes from what
 * is there; in-process state lives beside it, by the same index. A server may be killed between any
 * two instructions: each update is one aligned store, of a state or of a name's offset, and what
 * was written before it or is to be written after it means nothing by itself. The caller serialises
 * all calls. */
#pragma once

#include "veneer/base/types.h"

#define NODE_TABLE_ROOT 1 /* FUSE_ROOT_ID */
#define NODE_TABLE_VERSION \
	1 /* of slots, records and what stands before them; another one is not attached */
#define NODE_TABLE_DEVS_MAX 255

enum node_state {
	NODE_FREE = 0,
	NODE_LOWER = 1, /* seen as the image has it */
	NODE_UPPER = 2, /* has an entry in the upper */
	NODE_ORPHAN = 3, /* unlinked, still held by the kernel */
	NODE_FORMER = 4, /* the kernel still holds it, its inode has another node id: successor */
};

struct node_slot {
	uint64_t nlookup; /* what the kernel owes us in FORGETs */
	uint64_t ino; /* st_ino presented */
	uint64_t upper_ino; /* number of the upper object; 0: it has none, or had none when the
			       server died */
	uint32_t generation; /* with the node id unique for the life of the mount */
	/* The rest is zero in a slot just given out. */
	uint32_t name_off; /* a record in the arena: one name, or a path; 0 is none */
	uint32_t successor; /* NODE_FORMER: node id of the same inode. NODE_FREE: the next one */
	uint32_t backing_id; /* passthrough registration, 0 is none */
	uint32_t n_backed; /* opens outstanding, guarded as passthrough_table.h says: on the backing
			      file, */
	uint32_t n_cached; /* on the mount's page cache, */
	uint32_t n_direct; /* and on neither */
	int32_t held_fd; /* one more than the descriptor without which the object would not be
			    found; 0: none */
	uint8_t state; /* enum node_state */
	uint8_t type; /* DT_* */
	uint8_t passthrough_table_kind; /* enum passthrough_table_kind of backing_id */
	uint8_t is_left; /* its inode has another node id, or is about to get one */
	uint8_t is_successor; /* came after another node id of its inode, whose file is being
				 written */
	uint8_t is_mapped_past_us; /* as in struct inode */
	uint16_t n_tied; /* of its look-ups: those that are not the kernel's (inode_note_tied) */
};

/* Devices, and mounts inside layers, in the order in which inode numbers have them (xino.h), so
 * that a later server numbers them alike. */
struct node_table_devs {
	uint32_t n;
	uint32_t reserved;
	uint64_t dev[NODE_TABLE_DEVS_MAX];
};

/* A mount goes back to a snapshot (inode_rollback.h). Zeroed: it does not. */
enum node_table_stage { NODE_TABLE_STAYS, NODE_TABLE_PREPARED, NODE_TABLE_WENT_BACK };
struct node_table_rollback {
	uint32_t stage; /* enum node_table_stage */
	uint32_t kept[2]; /* number of the snapshot that keeps what it had, lower half first */
};

enum node_table_place { NODE_TABLE_OF_TREE, NODE_TABLE_OF_IMAGE, NODE_TABLE_PLACES };

struct node_table;

int node_table_new(struct node_table **ret);
/* The table that another server left. The descriptors are taken over, but on failure, and keep
 * their numbers, by which the next server finds them. What cannot be right is left out, with one
 * line. -EPROTO: no such table, or of another version; -ENOMEM; -errno. */
int node_table_attach(int slots_fd, int names_fd, struct node_table **ret);
struct node_table_rollback *node_table_rollback(struct node_table *t); /* lives as long as t */
void node_table_free(struct node_table *t);
/* Likewise, but its memory files stay open, and are the caller's. */
void node_table_leave(struct node_table *t, int *ret_slots, int *ret_names);
/* The memory files of the table; borrowed. */
void node_table_fds(const struct node_table *t, int *ret_slots, int *ret_names);
/* Call fn for each descriptor that a slot of such a memory file holds, without attaching it;
 * borrowed. */
void node_table_held_fds(int slots_fd, void (*fn)(int fd, void *arg), void *arg);

/* A fresh slot (state NODE_LOWER, nlookup 0, generation set). -ENOMEM or -ENFILE. */
int node_table_alloc(struct node_table *t, uint32_t *ret_id);
void node_table_release(struct node_table *t, uint32_t id);
/* Never moves. NULL for an id that is not in use. */
struct node_slot *node_table_slot(struct node_table *t, uint64_t id);
void node_table_set_state(struct node_slot *s, enum node_state state);
/* The name by which the slot can be found again; replaces the old one. With parent 0 it is a path
 * in the image. 0, -EINVAL (empty, or too long), -ENOMEM or -ENFILE. */
int node_table_set_name(struct node_table *t, uint32_t id, uint32_t parent, const char *name);
void node_table_clear_name(struct node_table *t, uint32_t id);
/* The length of the slot's name; 0 is none. The name is borrowed until the next node_table_set_name
 * of that slot, and not terminated. */
size_t node_table_name(struct node_table *t, uint32_t id, uint32_t *ret_parent, const char **ret);
/* Note the number of a device. */
void node_table_note_dev(struct node_table *t, enum node_table_place place, uint64_t dev);
const struct node_table_devs *node_table_devs(const struct node_table *t,
					      enum node_table_place place);

/* The in-process companion of a slot. Reading needs no lock for a node the kernel holds. */
void node_table_set_object(struct node_table *t, uint32_t id, void *obj);
void *node_table_object(struct node_table *t, uint64_t id);
/* One past the highest id ever used, and slots in use. */
uint32_t node_table_end(const struct node_table *t);
size_t node_table_count(const struct node_table *t);

/* ---- the same slots with other objects (inode_rebuild.h) ---- */

/* Note from now on which slots are given out, released, or change in what an inode is made of. 0,
 * -ENOMEM, -EBUSY: somebody does already, or -EUCLEAN: a name could not be noted once, so that only
 * node_table_attach can tell which are right. */
int node_table_touch_begin(struct node_table *t);
void node_table_touch_end(struct node_table *t);
/* The other functions do it themselves, for what they change. */
void node_table_touch(struct node_table *t, uint32_t id);
bool node_table_touch_has(const struct node_table *t, uint32_t id);
/* How many, each once; borrowed until the next change. -ENOMEM: some could not be noted. */
ssize_t node_table_touch_list(const struct node_table *t, const uint32_t **ret);

/* A view of the slots and names of t, with objects of its own, none so far. Nothing else of it may
 * be changed. It may outlive t, but then only its objects are left. 0 or -ENOMEM. */
int node_table_share(const struct node_table *t, struct node_table **ret);
/* After t grew: what is in it is in the view, too. 0 or -ENOMEM. */
int node_table_share_refresh(struct node_table *view, const struct node_table *t);
/* t gets the objects of its view, and that gets the ones of t. */
void node_table_share_swap(struct node_table *t, struct node_table *view);
void node_table_share_free(struct node_table *view);
