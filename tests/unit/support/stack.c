// SPDX-License-Identifier: Apache-2.0
#include "support/stack.h"

const char *stack_path(unsigned node)
{
	static char paths[STACK_NODES][8];
	unsigned up;

	if (node == 0 || *paths[node])
		return paths[node];
	up = stack_parent(node);
	snprintf(paths[node], sizeof(paths[node]), "%.5s%s%c", stack_path(up), up ? "/" : "",
		 'a' + (node - 1) % 3);
	return paths[node];
}

void stack_text(char out[64], unsigned layer, unsigned node)
{
	snprintf(out, 64, "layer %u %s", layer, stack_path(node));
}

static void draw(struct stack *s, unsigned layer, uint64_t *state)
{
	static const enum stack_kind kinds[] = { STACK_ABSENT, STACK_ABSENT, STACK_FILE,
						 STACK_DIR,    STACK_DIR,    STACK_DIR,
						 STACK_DIR,    STACK_DEVICE };

	s->at[layer][0] = (struct stack_entry){ .kind = STACK_DIR };
	for (unsigned node = 1; node < STACK_NODES; node++) {
		struct stack_entry *e = &s->at[layer][node];

		*e = (struct stack_entry){ 0 };
		if (s->at[layer][stack_parent(node)].kind != STACK_DIR)
			continue;
		e->kind = kinds[tree_random(state) % 8];
		e->is_hidden = tree_random(state) % 12 == 0;
		e->is_opaque = e->kind == STACK_DIR && tree_random(state) % 6 == 0;
	}
}

static void write_one(struct tree_dirs *d, const char *layer, unsigned nr,
		      const struct stack_entry *e, unsigned node, uint64_t *state)
{
	const char *path = stack_path(node), *name = strrchr(path, '/');
	char rel[64], beside[96], text[64];

	snprintf(rel, sizeof(rel), "%s/%s", layer, path);
	name = name ? name + 1 : path;
	snprintf(beside, sizeof(beside), "%s/%.*s.wh.%s", layer, (int)(name - path), path, name);
	stack_text(text, nr, node);
	if (e->kind == STACK_FILE)
		tree_put_text(d, rel, text);
	else if (e->kind == STACK_DIR)
		tree_put_dir(d, rel);
	else if (e->kind == STACK_DEVICE)
		tree_put_whiteout(d, rel);
	if (e->is_hidden)
		tree_put_text(d, beside, "");
	if (e->is_opaque && tree_random(state) % 2) {
		tree_put_opaque(d, rel);
	} else if (e->is_opaque) {
		snprintf(beside, sizeof(beside), "%s/.wh..wh..opq", rel);
		tree_put_text(d, beside, "");
	}
}

/* Of the layers that make up the directory above, top first: a whiteout ends it, so does a file,
 * so does an opaque directory after itself. */
static struct stack_view look(const struct stack *s, unsigned node)
{
	const struct stack_view *up = &s->seen[stack_parent(node)];
	struct stack_view v = { .kind = STACK_ABSENT };

	for (unsigned k = 0; up->kind == STACK_DIR && k < up->n; k++) {
		const struct stack_entry *e = &s->at[up->layers[k]][node];

		if (e->is_hidden || e->kind == STACK_DEVICE)
			break;
		if (e->kind == STACK_ABSENT)
			continue;
		if (e->kind == STACK_FILE && v.n)
			break;
		v.kind = e->kind;
		v.layers[v.n++] = up->layers[k];
		if (e->kind == STACK_FILE || e->is_opaque)
			break;
	}
	return v;
}

void stack_make(struct stack *s, struct tree_dirs *d, const char *const names[STACK_LAYERS],
		uint64_t *state)
{
	for (unsigned layer = 0; layer < STACK_LAYERS; layer++) {
		tree_put_dir(d, names[layer]);
		draw(s, layer, state);
		for (unsigned node = 1; node < STACK_NODES; node++)
			write_one(d, names[layer], layer, &s->at[layer][node], node, state);
	}
	s->seen[0] = (struct stack_view){ .kind = STACK_DIR, .n = STACK_LAYERS };
	for (unsigned layer = 0; layer < STACK_LAYERS; layer++)
		s->seen[0].layers[layer] = layer;
	for (unsigned node = 1; node < STACK_NODES; node++)
		s->seen[node] = look(s, node);
}
