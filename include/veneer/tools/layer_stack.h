/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of a stack as offline tools open them, top first: an upper or a snapshot, what that
 * stands on, and lower layers, each with its snapshots. */
#pragma once

#include "veneer/layer/layer.h"

/* Zeroed is empty. */
struct layer_stack {
	struct layer **v; /* owned references */
	size_t n, cap;
};

void layer_stack_release(struct layer_stack *s);
/* The live part of the upper at path, and the snapshots that it stands on. Each of these: 0, or
 * -errno after a line in the log. */
int layer_stack_put_upper(struct layer_stack *s, const char *path);
/* The snapshot `id` of the upper at path and those that it stands on, down to `until`, which is
 * left out (0: all). They are held: no command removes them. */
int layer_stack_put_snapshots(struct layer_stack *s, const char *path, uint64_t id, uint64_t until);
/* A lower layer, and its snapshots. */
int layer_stack_put_lower(struct layer_stack *s, const char *path);
