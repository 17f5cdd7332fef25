/* SPDX-License-Identifier: Apache-2.0 */
/* A node table without a mount. Both assert. */
#pragma once

#include "support/tree.h"
#include "veneer/union/node_table.h"

static inline struct node_table *nodes_new(void)
{
	struct node_table *t;

	assert_int_equal(node_table_new(&t), 0);
	return t;
}

static inline uint32_t nodes_alloc(struct node_table *t)
{
	uint32_t id = 0;

	assert_int_equal(node_table_alloc(t, &id), 0);
	return id;
}
