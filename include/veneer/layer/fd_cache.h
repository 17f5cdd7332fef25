/* SPDX-License-Identifier: Apache-2.0 */
/* Open descriptors of layer files, bounded in number: never one per inode, because the hard limit
 * may be 20,000 (measured). A slot sits in the object it belongs to; between pin and unpin its
 * descriptor stays open. One lock inside, never held over a system call. */
#pragma once

#include "veneer/base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero-initialised is empty. All fields belong to fd_cache.c. */
struct fd_cache_slot {
	struct list_link lru; /* in the LRU while unpinned and open */
	int fd_plus_one;
	uint32_t pins : 31;
	uint32_t is_writable : 1;
};

/* The descriptors of one mount that always stay open, as no name leads to their files any more. */
struct fd_cache_share {
	size_t n;
};

/* Set the bound from RLIMIT_NOFILE, raised to its hard limit first. Once per process. */
void fd_cache_init(void);
/* Set the bound to half of the free descriptors: once more when the layers are open. */
void fd_cache_bound(void);

/* The slot's descriptor, pinned, or -1 when it has none: open it and call fd_cache_fill. */
int fd_cache_pin(struct fd_cache_slot *s);
/* The same after it had none a moment ago, which is counted already. */
int fd_cache_pin_again(struct fd_cache_slot *s);
/* Give the slot a descriptor just opened, pinned; when another thread was first, fd is closed and
 * the other one is the answer. May close the least recently used ones of other slots. */
int fd_cache_fill(struct fd_cache_slot *s, int fd);
void fd_cache_unpin(struct fd_cache_slot *s);
/* The descriptor, which the caller has pinned, is known to be open for reading and writing; until
 * the slot has another. */
void fd_cache_note_writable(struct fd_cache_slot *s);
bool fd_cache_is_writable(struct fd_cache_slot *s);
/* Close and empty. Nobody has it pinned. */
void fd_cache_drop(struct fd_cache_slot *s);
/* The same, if nobody has it pinned. */
bool fd_cache_drop_idle(struct fd_cache_slot *s);
/* Empty, and leave its descriptor, or -1, open to the caller. Nobody else uses the slot. */
int fd_cache_steal(struct fd_cache_slot *s);
/* Before a slot is pinned for good: one more is held by this mount. -ENFILE: it holds its share.
 * That is eight ninths of the descriptors that it and all others leave free, so that greedy mounts
 * leave some for the next. */
int fd_cache_hold(struct fd_cache_share *m);
/* Before or after that pin is given back. */
void fd_cache_unhold(struct fd_cache_share *m);
/* How many it holds. */
size_t fd_cache_held(const struct fd_cache_share *m);
/* Slots that have a descriptor. */
size_t fd_cache_count(void);
/* Close every unpinned descriptor: after EMFILE. */
void fd_cache_shrink(void);

/* For a local variable: unpinned at the end of the block. */
static inline void fd_cache_unpinp(struct fd_cache_slot **s)
{
	if (*s)
		fd_cache_unpin(*s);
}
