/* SPDX-License-Identifier: Apache-2.0 */
/* An upper directory without a mount, and the snapshots taken of it. Everything asserts. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/scratch.h"
#include "veneer/layer/branch_dir.h"

/* The directory of a snapshot; id is a digit in quotes. */
#define BRANCHES_AT(id) BRANCH_DIR_NAME "/000000000000000" id

struct branches {
	struct scratch s;
	struct branch_chain chain;
};

/* cmocka fixtures; *state is a struct branches. */
int branches_setup(void **state);
int branches_teardown(void **state);

/* A new file that contains its name. */
void branches_put(struct branches *p, const char *name);
bool branches_is_there(struct branches *p, const char *name);
/* A snapshot of the chain, as its head; branches_take also moves the upper's entries there. */
void branches_add(struct branches *p, uint64_t id, const char *name);
void branches_take(struct branches *p, uint64_t id, const char *name);
