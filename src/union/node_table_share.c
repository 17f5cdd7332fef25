// SPDX-License-Identifier: Apache-2.0
/* Records which slots of a node table change, and gives a table a second set of objects. */
#include "node_table-internal.h"

#include "veneer/base/array.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MAP_BYTES (NODE_TABLE_SLOTS_MAX / 8)

struct node_table_touched {
	uint8_t *map; /* a bit per slot; allocated on first use */
	uint32_t *ids;
	size_t n, cap;
	bool is_incomplete;
};

int node_table_touch_begin(struct node_table *t)
{
	struct node_table_touched *d;

	if (t->touched)
		return -EBUSY;
	if (t->has_stale_name)
		return -EUCLEAN;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->map = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (d->map == MAP_FAILED) {
		free(d);
		return -ENOMEM;
	}
	t->touched = d;
	return 0;
}

void node_table_touch_end(struct node_table *t)
{
	if (!t->touched)
		return;
	munmap(t->touched->map, MAP_BYTES);
	free(t->touched->ids);
	free(t->touched);
	t->touched = NULL;
}

bool node_table_touch_has(const struct node_table *t, uint32_t id)
{
	return t->touched->map[id / 8] & (1u << id % 8);
}

void node_table_touch(struct node_table *t, uint32_t id)
{
	struct node_table_touched *d = t->touched;

	if (!d || node_table_touch_has(t, id))
		return;
	d->map[id / 8] |= (uint8_t)(1u << id % 8);
	if (array_reserve(&d->ids, &d->cap, d->n + 1) < 0)
		d->is_incomplete = true;
	else
		d->ids[d->n++] = id;
}

ssize_t node_table_touch_list(const struct node_table *t, const uint32_t **ret)
{
	*ret = t->touched->ids;
	return t->touched->is_incomplete || t->has_stale_name ? -ENOMEM : (ssize_t)t->touched->n;
}

/* ---- objects ---- */

void **node_table_reserve_objects(void)
{
	void *p = mmap(NULL, NODE_TABLE_SLOTS_MAX * sizeof(void *), PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

void node_table_free_objects(struct node_table *t)
{
	if (t->objects)
		munmap(t->objects, NODE_TABLE_SLOTS_MAX * sizeof(void *));
	t->objects = NULL;
}

/* The object pointers grow with the slots: reserved address space costs nothing, committed memory
 * does. */
int node_table_grow_objects(struct node_table *t, size_t need)
{
	while (t->objects_mapped < need) {
		if (mprotect((char *)t->objects + t->objects_mapped, NODE_TABLE_STEP,
			     PROT_READ | PROT_WRITE) < 0)
			return -errno;
		__atomic_store_n(&t->objects_mapped, t->objects_mapped + NODE_TABLE_STEP,
				 __ATOMIC_RELEASE);
	}
	return 0;
}

int node_table_share_refresh(struct node_table *view, const struct node_table *t)
{
	view->slots = t->slots;
	view->names = t->names;
	view->end = t->end;
	view->count = t->count;
	return node_table_grow_objects(view, t->end * sizeof(void *));
}

int node_table_share(const struct node_table *t, struct node_table **ret)
{
	struct node_table *view = calloc(1, sizeof(*view));

	if (!view)
		return -ENOMEM;
	view->objects = node_table_reserve_objects();
	if (!view->objects || node_table_share_refresh(view, t) < 0) {
		node_table_share_free(view);
		return -ENOMEM;
	}
	*ret = view;
	return 0;
}

void node_table_share_swap(struct node_table *t, struct node_table *view)
{
	void **objects = t->objects;
	const size_t mapped = t->objects_mapped;

	t->objects = view->objects;
	t->objects_mapped = view->objects_mapped;
	view->objects = objects;
	view->objects_mapped = mapped;
}

void node_table_share_free(struct node_table *view)
{
	node_table_free_objects(view);
	free(view);
}
