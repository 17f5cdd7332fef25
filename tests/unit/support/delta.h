/* SPDX-License-Identifier: Apache-2.0 */
/* The upper of a tree as a delta, and a layer that is made of one. Everything asserts. */
#pragma once

#include "support/tree.h"
#include "veneer/tools/delta.h"

struct delta_text {
	char *bytes; /* owned */
	size_t len;
};

/* The changes of upper in lower as a stream that is not compressed; nothing is mounted. */
void delta_make(struct tree_dirs *d, const struct delta_head *head, struct delta_text *ret);
void delta_release(struct delta_text *t);

/* A layer "made" over lower, fresh unless it goes on, with "madework" beside it. */
struct delta_place {
	struct tree_dirs *d;
	bool goes_on;
	struct delta_layer layer;
	struct image *below;
	struct layer *lower;
};

/* Receive a stream into such a place, of which everything is on the disk and closed afterwards. */
int delta_take(struct tree_dirs *d, const void *bytes, size_t len, bool goes_on,
	       struct delta_received *ret);
/* The same without a stream: an open layer. */
void delta_place_open(struct delta_place *p, struct tree_dirs *d, bool goes_on);
void delta_place_close(struct delta_place *p);
/* Mount made over lower; the upper of d is another one from then on. */
void delta_mount(struct tree_dirs *d);
