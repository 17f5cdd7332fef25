/* SPDX-License-Identifier: Apache-2.0 */
/* Merges the listings of one directory in several layers, added from the top down. */
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
	bool is_renewed; /* a snapshot further down hides it: made anew since */
	bool is_closed; /* nothing further down is merged into it, or under a file's holes */
	uint64_t ino;
	uint32_t place; /* in listings: image_place */
	struct draft *next; /* in order of appearance */
};

struct dir_merge {
	struct htab drafts;
	struct draft *first, **tail;
	bool is_snapshot; /* the layer that is being added */
	struct dir_merge *lower; /* of the layers that are no snapshots; NULL: all are none */
};

static inline void dir_merge_init(struct dir_merge *m)
{
	*m = (struct dir_merge){ .tail = &m->first };
}
/* The next layer down. 0 or -ENOMEM. */
int dir_merge_add(struct dir_merge *m, const struct dir_listing *l, uint16_t layer);
/* The merged entries, in the order of listings: *ret, malloc'd, *ret_n. The first *ret_nlower show
 * from layers that are no snapshots, or would without the snapshots. 0 or -ENOMEM. */
int dir_merge_order(struct dir_merge *m, struct draft ***ret, size_t *ret_n, size_t *ret_nlower);
void dir_merge_release(struct dir_merge *m);
