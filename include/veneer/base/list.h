/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive doubly linked list; the head is a list_link of its own. */
#pragma once

#include "veneer/base/container_of.h"

#include <stdbool.h>

struct list_link {
	struct list_link *prev, *next;
};

static inline void list_init(struct list_link *l)
{
	l->prev = l->next = l;
}
static inline bool list_is_empty(const struct list_link *l)
{
	return l->next == l;
}
static inline void list_insert_(struct list_link *l, struct list_link *prev, struct list_link *next)
{
	l->prev = prev;
	l->next = next;
	prev->next = l;
	next->prev = l;
}
static inline void list_add_head(struct list_link *head, struct list_link *l)
{
	list_insert_(l, head, head->next);
}
static inline void list_add_tail(struct list_link *head, struct list_link *l)
{
	list_insert_(l, head->prev, head);
}
/* Removing a link that is in no list (initialised only) is harmless. */
static inline void list_del(struct list_link *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	list_init(l);
}
