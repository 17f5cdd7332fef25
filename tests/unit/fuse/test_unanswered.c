// SPDX-License-Identifier: Apache-2.0
#include "support/fuse_pair.h"
#include "support/tree.h"

#include "fuse/kernel_invalidate.h"
#include "fuse/op.h"
#include "fuse/unanswered.h"
#include "veneer/recover/intent_log.h"

#include <linux/fuse.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define KEY 7

struct resumed {
	struct mount m;
	struct unanswered u;
	int ends[2]; /* the session's, the kernel's */
};

/* A session that was resumed after a server died in two requests that make a name, 11 and 12. */
static int setup(void **state)
{
	struct resumed *s = calloc(1, sizeof(*s));
	void *area = mmap(NULL, intent_log_area_bytes(), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_non_null(s);
	assert_ptr_not_equal(area, MAP_FAILED);
	intent_log_use_area(area);
	for (uint64_t unique = 11; unique <= 12; unique++)
		intent_log_mark(intent_log_begin(&(struct intent_request){ .key = KEY,
									   .unique = unique,
									   .kind = INTENT_CREATE,
									   .from_parent = 5,
									   .from_name = "name" }));
	intent_log_use_area(area);
	s->m.key = KEY;
	unsetenv("VENEER_NO_RESEND");
	unanswered_init(&s->u, &s->m, fuse_pair_open(s->ends));
	unanswered_resume(&s->u, s->ends[0]);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct resumed *s = *state;

	unanswered_release(&s->u);
	fuse_session_destroy(s->u.se);
	close(s->ends[1]);
	free(s);
	return 0;
}

static void resend(struct resumed *s)
{
	assert_int_equal(send(s->ends[1], "", 1, 0), 1);
}

/* Read it, and find that it is this one. */
static void end_read(struct resumed *s, uint64_t unique)
{
	struct fuse_in_header in = { .unique = unique | OP_UNIQUE_RESENT };
	char byte;

	assert_int_equal(read(s->ends[0], &byte, 1), 1);
	unanswered_read_end(&s->u, &(struct fuse_buf){ .mem = &in, .size = sizeof(in) });
}

static bool has_left(void)
{
	struct kernel_invalidate *d = kernel_invalidate_take_left(KEY);

	kernel_invalidate_free(d);
	return d;
}

static void test_unanswered__kernel_is_asked_to_resend(void **state)
{
	struct resumed *s = *state;
	struct fuse_out_header out;

	assert_int_equal(recv(s->ends[1], &out, sizeof(out), MSG_DONTWAIT), sizeof(out));
	assert_int_equal(out.unique, 0);
	assert_true(s->u.has_resend && !s->u.has_clone && s->u.awaits_resent);
}

static void test_unanswered__others_are_awaited_while_a_request_is_being_read(void **state)
{
	struct resumed *s = *state;

	resend(s);
	assert_true(unanswered_read_begin(&s->u));
	assert_true(unanswered_read_begin(&s->u));
	end_read(s, 11);
	assert_true(s->u.awaits_resent && has_left());
	resend(s);
	end_read(s, 12);
	assert_false(s->u.awaits_resent || has_left());
	assert_false(unanswered_read_begin(&s->u));
}

static void test_unanswered__others_are_awaited_while_a_request_waits(void **state)
{
	struct resumed *s = *state;

	resend(s);
	resend(s);
	assert_true(unanswered_read_begin(&s->u));
	end_read(s, 11);
	assert_true(s->u.awaits_resent);
	assert_true(unanswered_read_begin(&s->u));
	end_read(s, 12);
	assert_false(s->u.awaits_resent);
}

static void test_unanswered__none_is_awaited_once_no_request_waits(void **state)
{
	struct resumed *s = *state;

	intent_log_came_again(KEY, 11);
	intent_log_came_again(KEY, 12);
	assert_false(unanswered_read_begin(&s->u));
	assert_false(s->u.awaits_resent);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_unanswered__kernel_is_asked_to_resend, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			test_unanswered__others_are_awaited_while_a_request_is_being_read, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			test_unanswered__others_are_awaited_while_a_request_waits, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_unanswered__none_is_awaited_once_no_request_waits, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
