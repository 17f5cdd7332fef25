/* SPDX-License-Identifier: Apache-2.0 */
/* Random layers in every dialect of whiteouts, and the plain rule that says what is seen through
 * them. */
#pragma once

#include "support/tree.h"

#define STACK_LAYERS 4
#define STACK_NODES  40 /* the root, and three names in each of three levels */

enum stack_kind { STACK_ABSENT, STACK_FILE, STACK_DIR, STACK_DEVICE };

struct stack_entry {
	enum stack_kind kind; /* STACK_DEVICE: a whiteout of the kernel's */
	bool is_hidden; /* ".wh.NAME" stands beside it */
	bool is_opaque;
};

/* The union's view of one node. */
struct stack_view {
	enum stack_kind kind;
	unsigned layers[STACK_LAYERS]; /* that are merged, top first; a file has one */
	unsigned n;
};

struct stack {
	struct stack_entry at[STACK_LAYERS][STACK_NODES]; /* layer 0 is the top */
	struct stack_view seen[STACK_NODES];
};

static inline unsigned stack_parent(unsigned node)
{
	return (node - 1) / 3;
}
/* Path from the root; of the root itself "". */
const char *stack_path(unsigned node);
/* Draw one, write it into the directories names[0..STACK_LAYERS) and work out what is to be
 * seen. */
void stack_make(struct stack *s, struct tree_dirs *d, const char *const names[STACK_LAYERS],
		uint64_t *state);
/* The text of the file of that layer. */
void stack_text(char out[64], unsigned layer, unsigned node);
