/* SPDX-License-Identifier: Apache-2.0 */
/* A stack of layers for offline tools, top first: an upper or a snapshot, the snapshots below it,
 * and lower layers, each with its snapshots. */
#pragma once

#include "veneer/layer/layer.h"

/* Zero-initialised: empty. */
struct layer_stack {
	struct layer **v; /* owned references */
	size_t n, cap;
};

void layer_stack_release(struct layer_stack *s);
/* Add the live part of the upper at path, and its snapshots. This and the next two return 0, or
 * -errno after a line in the log. */
int layer_stack_put_upper(struct layer_stack *s, const char *path);
/* Add the snapshot `id` of the upper at path and the snapshots below it, down to `until`, which is
 * left out (0: all). Holds them, so no command removes them. */
int layer_stack_put_snapshots(struct layer_stack *s, const char *path, uint64_t id, uint64_t until);
/* Add a lower layer, and its snapshots. */
int layer_stack_put_lower(struct layer_stack *s, const char *path);
