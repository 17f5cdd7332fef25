/* SPDX-License-Identifier: Apache-2.0 */
/* The listings of one directory in several layers, added from the top down, to what is seen of
 * them. */
#pragma once

#include "veneer/base/htab.h"
#include "veneer/layer/dir_listing.h"

struct draft { /* one name, while the directory is being merged */
	struct hlink link;
	const char *name;
	uint32_t nlayers;
	uint16_t *layers; /* that have it: several for a directory, and for a regular file over
			     others */
	uint8_t type;
	bool is_hidden; /* a whiteout came before any entry: not seen */
	bool is_closed; /* nothing further down is merged into it, or under a file's holes */
	uint64_t ino;
	struct draft *next; /* in order of appearance */
};

struct dir_merge {
	struct htab drafts;
	struct draft *first, **tail;
};

static inline void dir_merge_init(struct dir_merge *m)
{
	*m = (struct dir_merge){ .tail = &m->first };
}
/* The next layer down. 0 or -ENOMEM. */
int dir_merge_add(struct dir_merge *m, const struct dir_listing *l, uint16_t layer);
void dir_merge_release(struct dir_merge *m);
