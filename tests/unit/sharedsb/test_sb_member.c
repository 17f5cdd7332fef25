// SPDX-License-Identifier: Apache-2.0
#include "support/sharing.h"

#include "veneer/union/locks.h"

#define OPTIONS	 "volatile,io=cached"
#define SHORT_MS 1
#define LONG_MS	 60000

static void test_sb_member__numbers_are_never_used_twice(void **state)
{
	struct sharing *s = *state;
	uint32_t first;

	sharing_start(s, OPTIONS);
	first = sb_member_number(s->c[0]);
	assert_int_not_equal(first, 0);
	assert_int_not_equal(first, sb_member_number(s->c[1]));
	assert_ptr_equal(sb_member_mount(s->c[0]), &s->d[0]->m);
	sharing_leave(s, 0);
	assert_null(s->d[0]->m.sb_member);
	assert_false(s->d[0]->m.is_sb_member);
	sharing_join(s, 0, NULL);
	assert_true(sb_member_number(s->c[0]) > sb_member_number(s->c[1]));
	assert_true(sb_member_number(s->c[0]) > first);
}

static void test_sb_member__number_is_the_key_of_a_mount_that_has_one(void **state)
{
	struct sharing *s = *state;
	struct sb_member *c = NULL;

	sharing_start(s, OPTIONS);
	sharing_leave(s, 0);
	s->d[0]->m.key = 4711;
	sharing_join(s, 0, NULL);
	assert_int_equal(sb_member_number(s->c[0]), 4711);
	sharing_leave(s, 0);
	/* A name of more digits than are read. */
	s->d[0]->m.key = 1000000000;
	assert_int_equal(sb_member_join(s->g, &s->d[0]->m, &s->n_unused, NULL, &c), -ENOMEM);
	assert_null(c);
	assert_false(s->d[0]->m.is_sb_member);
	s->d[0]->m.key = 0;
	sharing_join(s, 0, NULL);
}

static void test_sb_member__secret_changes_generations_and_comes_back(void **state)
{
	struct fuse_entry_out before, after;
	struct sharing *s = *state;
	uint32_t secret;
	char name[16];

	sharing_start(s, OPTIONS);
	secret = sb_member_secret(s->c[0]);
	assert_int_not_equal(secret, sb_member_secret(s->c[1]));
	snprintf(name, sizeof(name), "%u", sb_member_number(s->c[0]));
	fuse_kernel_ask_name(&s->k, FUSE_LOOKUP, FUSE_ROOT_ID, name, &before, sizeof(before));
	sharing_leave(s, 0);
	sharing_join(s, 0, &secret);
	assert_int_equal(sb_member_secret(s->c[0]), secret);
	snprintf(name, sizeof(name), "%u", sb_member_number(s->c[0]));
	fuse_kernel_ask_name(&s->k, FUSE_LOOKUP, FUSE_ROOT_ID, name, &after, sizeof(after));
	assert_int_equal(after.generation, before.generation);
}

static void test_sb_member__suspension_waits_for_requests_and_gives_up(void **state)
{
	struct sharing *s = *state;
	struct sb_member *c;

	sharing_start(s, OPTIONS);
	c = sb_member_pin(s->g, sb_member_number(s->c[0]));
	assert_ptr_equal(c, s->c[0]);
	assert_int_equal(sb_member_suspend(c, SHORT_MS), -EAGAIN);
	/* It goes on. */
	assert_ptr_equal(sb_member_pin(s->g, sb_member_number(c)), c);
	sb_member_unpin(c);
	sb_member_unpin(c);
	assert_int_equal(sb_member_suspend(c, LONG_MS), 0);
	sb_member_resume(c);
	assert_true(S_ISDIR(fuse_kernel_attr(&s->k, sharing_root(s, 0)).mode));
}

struct request {
	struct sharing *s;
	uint32_t number;
	bool is_found;
};

static void *pin(void *arg)
{
	struct request *q = arg;
	struct sb_member *c = sb_member_pin(q->s->g, q->number);

	q->is_found = c;
	if (c)
		sb_member_unpin(c);
	return NULL;
}

static bool ask_meanwhile(struct sharing *s, uint32_t number, void (*then)(struct sharing *s))
{
	struct request q = { .s = s, .number = number };
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, pin, &q), 0);
	then(s);
	pthread_join(thread, NULL);
	return q.is_found;
}

static void resume_first(struct sharing *s)
{
	sb_member_resume(s->c[0]);
}

static void lose_first(struct sharing *s)
{
	sb_member_lost(s->c[0], NULL);
}

static void test_sb_member__requests_wait_until_it_goes_on_or_is_lost(void **state)
{
	const struct fuse_getattr_in in = { .dummy = 0 };
	struct sharing *s = *state;
	const uint64_t base = (uint64_t)1 << 32;
	uint64_t root;

	sharing_start(s, OPTIONS);
	root = sharing_root(s, 0);
	assert_true(root >= base);
	assert_int_equal(sb_member_suspend(s->c[0], LONG_MS), 0);
	assert_true(ask_meanwhile(s, sb_member_number(s->c[0]), resume_first));
	assert_int_equal(sb_member_suspend(s->c[0], LONG_MS), 0);
	assert_false(ask_meanwhile(s, sb_member_number(s->c[0]), lose_first));
	assert_int_equal(FUSE_KERNEL_ASK(&s->k, FUSE_GETATTR, root, in, NULL, 0), -ESTALE);
}

#define EXPECTED 4712u

static void lose_expected(struct sharing *s)
{
	sb_member_lose(s->g, EXPECTED);
}

static void lose_rest(struct sharing *s)
{
	sb_member_lose_rest(s->g);
}

static void join_expected(struct sharing *s)
{
	sharing_leave(s, 0);
	s->d[0]->m.key = EXPECTED;
	sharing_join(s, 0, NULL);
	s->d[0]->m.key = 0;
}

static void test_sb_member__expected_mount_is_waited_for(void **state)
{
	struct sharing *s = *state;

	sharing_start(s, OPTIONS);
	assert_false(ask_meanwhile(s, EXPECTED, lose_expected));
	assert_int_equal(sb_member_expect(s->g, EXPECTED), 0);
	assert_int_equal(sb_member_expect(s->g, EXPECTED + 1), 0);
	assert_false(ask_meanwhile(s, EXPECTED, lose_expected));
	assert_false(ask_meanwhile(s, EXPECTED + 1, lose_rest));
	assert_int_equal(sb_member_expect(s->g, EXPECTED), 0);
	assert_true(ask_meanwhile(s, EXPECTED, join_expected));
}

static void test_sb_member__kernel_is_told_to_forget_its_name(void **state)
{
	struct sharing *s = *state;

	sharing_start(s, OPTIONS);
	sharing_root(s, 0);
	s->k.n_notified = 0;
	sb_member_forget(s->c[0]);
	assert_true(fuse_kernel_is_silent(&s->k));
	assert_int_equal(s->k.n_notified, 1);
	assert_int_equal(s->k.last_notified, FUSE_NOTIFY_INVAL_ENTRY);
}

#define row(test) cmocka_unit_test_setup_teardown(test, sharing_setup, sharing_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_sb_member__numbers_are_never_used_twice),
		row(test_sb_member__number_is_the_key_of_a_mount_that_has_one),
		row(test_sb_member__secret_changes_generations_and_comes_back),
		row(test_sb_member__suspension_waits_for_requests_and_gives_up),
		row(test_sb_member__requests_wait_until_it_goes_on_or_is_lost),
		row(test_sb_member__expected_mount_is_waited_for),
		row(test_sb_member__kernel_is_told_to_forget_its_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
