// SPDX-License-Identifier: Apache-2.0
#include "support/fuse_pair.h"
#include "support/tree.h"

#include "fuse/responder.h"

#include <linux/fuse.h>
#include <sys/socket.h>

#define UNIQUE 11
#define UNREAD 1 /* as no error of a reply is */

struct answers {
	struct mount m;
	struct unanswered unanswered;
	struct responder r;
	int ends[2]; /* the session's, the kernel's */
};

static int setup(void **state)
{
	struct answers *a = calloc(1, sizeof(*a));

	assert_non_null(a);
	a->m.opts.mountpoint = (char *)"/mount";
	a->r = (struct responder){ .m = &a->m,
				   .se = fuse_pair_open(a->ends),
				   .unanswered = &a->unanswered };
	unanswered_init(&a->unanswered, &a->m, a->r.se);
	*state = a;
	return 0;
}

static int teardown(void **state)
{
	struct answers *a = *state;

	fuse_session_destroy(a->r.se);
	close(a->ends[1]);
	free(a);
	return 0;
}

/* The error of the reply; UNREAD: there is none. */
static int ask(struct answers *a, uint32_t opcode, uint32_t open_flags)
{
	struct {
		struct fuse_in_header in;
		struct fuse_open_in open;
		char rest[64];
	} q = { .in = { .opcode = opcode, .unique = UNIQUE, .nodeid = 1, .len = sizeof(q) },
		.open = { .flags = open_flags } };
	struct fuse_out_header out;

	responder_answer(&a->r, &(struct fuse_buf){ .mem = &q, .size = sizeof(q) });
	if (recv(a->ends[1], &out, sizeof(out), MSG_DONTWAIT) != sizeof(out))
		return UNREAD;
	assert_int_equal(out.unique, UNIQUE);
	return out.error;
}

static void test_responder__frozen_mount_refuses_what_may_change_it(void **state)
{
	static const struct {
		uint32_t opcode, flags;
		bool changes;
	} table[] = {
		{ FUSE_MKDIR, 0, true },	{ FUSE_WRITE, 0, true },
		{ FUSE_SETATTR, 0, true },	{ FUSE_OPEN, O_RDWR, true },
		{ FUSE_OPEN, O_TRUNC, true },	{ 4000, 0, true },
		{ FUSE_OPEN, O_RDONLY, false }, { FUSE_GETATTR, 0, false },
		{ FUSE_READ, 0, false },	{ FUSE_SETLK, 0, false },
	};
	struct answers *a = *state;

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		a->m.is_frozen = false;
		assert_int_not_equal(ask(a, table[i].opcode, table[i].flags), -EROFS);
		a->m.is_frozen = true;
		assert_int_equal(ask(a, table[i].opcode, table[i].flags) == -EROFS,
				 table[i].changes);
	}
}

static bool take_lookups(void *arg, const struct fuse_buf *buf)
{
	(*(unsigned *)arg)++;
	return ((const struct fuse_in_header *)buf->mem)->opcode == FUSE_LOOKUP;
}

static void test_responder__diverted_request_is_not_answered_again(void **state)
{
	struct answers *a = *state;
	unsigned n = 0;

	a->r.divert = take_lookups;
	a->r.divert_arg = &n;
	assert_int_equal(ask(a, FUSE_LOOKUP, 0), UNREAD);
	assert_int_not_equal(ask(a, FUSE_GETATTR, 0), UNREAD);
	assert_int_equal(n, 2);
}

static void test_responder__interrupt_without_locks_is_dropped(void **state)
{
	assert_int_equal(ask(*state, FUSE_INTERRUPT, 0), UNREAD);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_responder__frozen_mount_refuses_what_may_change_it, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_responder__diverted_request_is_not_answered_again, setup, teardown),
		cmocka_unit_test_setup_teardown(test_responder__interrupt_without_locks_is_dropped,
						setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
