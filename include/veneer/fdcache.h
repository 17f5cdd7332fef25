/* SPDX-License-Identifier: Apache-2.0 */
/* Open descriptors of layer files, bounded in number: never one per inode, because the hard limit
 * may be 20,000 (measured). A slot sits in the object it belongs to; between pin and unpin its
 * descriptor stays open. One lock inside, never held over a system call. */
#pragma once

#include "veneer/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero-initialised is empty. All fields belong to fdcache.c. */
struct fdslot {
	struct list_link lru;	/* in the LRU while unpinned and open */
	int fd_plus_one;
	uint32_t pins : 31;
	uint32_t is_writable : 1;
};

/* What one mount holds: descriptors that stay open whatever happens, as nothing leads to their files any more. */
struct fdshare {
	size_t n;
};

/* Set the bound from RLIMIT_NOFILE, raised to its hard limit first. Once per process. */
void fdcache_init(void);
/* Set the bound to half of what is free: once more when the layers are open. */
void fdcache_bound(void);

/* The slot's descriptor, pinned, or -1 when it has none: open it and call fdcache_fill. */
int fdcache_pin(struct fdslot *s);
/* The same after it had none a moment ago, which is counted already. */
int fdcache_pin_again(struct fdslot *s);
/* Give the slot a descriptor just opened, pinned; when another thread was first, fd is closed and the
 * other one is the answer. May close the least recently used ones of other slots. */
int fdcache_fill(struct fdslot *s, int fd);
void fdcache_unpin(struct fdslot *s);
/* The descriptor, which the caller has pinned, is known to be open for reading and writing; until the slot has another. */
void fdcache_note_writable(struct fdslot *s);
bool fdcache_is_writable(struct fdslot *s);
/* Replace the descriptor (the file was copied up). Nobody has it pinned; the old one is closed. */
void fdcache_replace(struct fdslot *s, int fd);
/* Close and empty. Nobody has it pinned. */
void fdcache_drop(struct fdslot *s);
/* Before a slot is pinned for good: one more is held by this mount. -ENFILE: it holds its share. That is eight ninths
 * of what it and all others leave free: however greedy some are, there is something left for the next. */
int fdcache_hold(struct fdshare *m);
/* Before or after that pin is given back. */
void fdcache_unhold(struct fdshare *m);
/* How many it holds. */
size_t fdcache_held(const struct fdshare *m);
/* Slots that have a descriptor. */
size_t fdcache_count(void);
/* Close every unpinned descriptor: after EMFILE. */
void fdcache_shrink(void);

/* For a local variable: unpinned at the end of the block. */
static inline void fdcache_unpinp(struct fdslot **s)
{
	if (*s)
		fdcache_unpin(*s);
}
