/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the inode table that must outlive the server: one shared mapping of fixed slots, addressed
 * by node id, and an arena of names. A later server rebuilds its inodes from it (design of record,
 * section 7); in-process state lives beside it, by the same index. The caller serialises all calls. */
#pragma once

#include "veneer/types.h"

#define NODETAB_ROOT 1	/* FUSE_ROOT_ID */

enum node_state {
	NODE_FREE = 0,
	NODE_LOWER = 1,		/* seen as the image has it */
	NODE_UPPER = 2,		/* has an entry in the upper */
	NODE_ORPHAN = 3,	/* unlinked, still held by the kernel */
	NODE_FORMER = 4,	/* the kernel still holds it, its inode has another node id: successor */
};

struct node_slot {
	uint64_t nlookup;	/* what the kernel owes us in FORGETs */
	uint64_t ino;		/* st_ino presented */
	uint32_t generation;	/* with the node id unique for the life of the mount */
	uint32_t parent;	/* node id of one name's directory; 0: the root, or an orphan */
	uint32_t name_off;	/* that name in the arena */
	uint16_t name_len;
	uint8_t state;		/* enum node_state */
	uint8_t type;		/* DT_* */
	uint32_t backing_id;	/* passthrough registration, 0 is none */
	uint32_t next_free;
	uint32_t successor;	/* NODE_FORMER: node id of the same inode */
	uint32_t n_backed;	/* opens outstanding, guarded as backing.h says: on the backing file, */
	uint32_t n_cached;	/* on the mount's page cache, */
	uint32_t n_direct;	/* and on neither */
	uint8_t backing_kind;	/* enum backing_kind of backing_id */
	uint8_t is_left;	/* its inode has another node id, or is about to get one */
	uint8_t is_successor;	/* came after another node id of its inode, whose file is being written */
	uint8_t reserved[5];
};

struct nodetab;

int nodetab_new(struct nodetab **ret);
void nodetab_free(struct nodetab *t);

/* A fresh slot (state NODE_LOWER, nlookup 0, generation set). -ENOMEM or -ENFILE. */
int nodetab_alloc(struct nodetab *t, uint32_t *ret_id);
void nodetab_release(struct nodetab *t, uint32_t id);
/* Never moves. NULL for an id that is not in use. */
struct node_slot *nodetab_slot(struct nodetab *t, uint64_t id);
/* The name by which the slot can be found again; replaces the old one. 0 or -ENOMEM. */
int nodetab_set_name(struct nodetab *t, uint32_t id, uint32_t parent, const char *name);
void nodetab_clear_name(struct nodetab *t, uint32_t id);
/* Borrowed until the next nodetab_set_name of that slot; not NUL-terminated (name_len bytes). */
const char *nodetab_name(struct nodetab *t, uint32_t id);

/* The in-process companion of a slot. Reading needs no lock for a node the kernel holds. */
void nodetab_set_object(struct nodetab *t, uint32_t id, void *obj);
void *nodetab_object(struct nodetab *t, uint64_t id);
/* One past the highest id ever used, and slots in use. */
uint32_t nodetab_end(const struct nodetab *t);
size_t nodetab_count(const struct nodetab *t);
