// SPDX-License-Identifier: Apache-2.0
#include "support/sharing.h"

#define ROUNDS 500

static int setup(void **state)
{
	struct shared_sb *g = calloc(1, sizeof(*g));

	if (!g)
		return -1;
	mutex_init(&g->lock);
	pthread_cond_init(&g->unpinned, NULL);
	*state = g;
	return 0;
}

static int teardown(void **state)
{
	struct shared_sb *g = *state;

	htab_release(&g->members);
	pthread_cond_destroy(&g->unpinned);
	mutex_destroy(&g->lock);
	free(g);
	return 0;
}

static void enter(struct shared_sb *g, struct sb_member *c, uint32_t number)
{
	*c = (struct sb_member){ .shared_sb = g, .number = number };
	assert_int_equal(htab_insert(&g->members, &c->link, number), 0);
}

static void test_sb_member_pin__member_is_found_by_its_number_alone(void **state)
{
	struct shared_sb *g = *state;
	struct sb_member a, b;

	enter(g, &a, 5);
	enter(g, &b, UINT32_MAX);
	assert_ptr_equal(sb_member_pin(g, 5), &a);
	assert_ptr_equal(sb_member_pin(g, UINT32_MAX), &b);
	assert_null(sb_member_pin(g, 0));
	assert_null(sb_member_pin(g, 6));
	/* A number that only the lower half agrees with. */
	assert_null(sb_member_pin(g, ((uint64_t)1 << 32) | 5));
	assert_int_equal(a.pins, 1);
	sb_member_unpin(&a);
	sb_member_unpin(&b);
	assert_int_equal(a.pins, 0);
}

static void test_sb_member_pin__expected_numbers(void **state)
{
	uint32_t numbers[] = { 7, 0, 9 };
	struct shared_sb *g = *state;

	g->expected = numbers;
	g->n_expected = 3;
	assert_ptr_equal(sb_member_expected_locked(g, 7), &numbers[0]);
	assert_ptr_equal(sb_member_expected_locked(g, 9), &numbers[2]);
	assert_null(sb_member_expected_locked(g, 8));
	/* The place of one that has come stands for none. */
	assert_null(sb_member_expected_locked(g, 0));
	g->n_expected = 2;
	assert_null(sb_member_expected_locked(g, 9));
	assert_null(sb_member_pin(g, 9));
}

static void *pin_often(void *arg)
{
	struct shared_sb *g = arg;

	for (int i = 0; i < ROUNDS; i++) {
		struct sb_member *c = sb_member_pin(g, 5);

		if (!c)
			return NULL;
		sb_member_unpin(c);
	}
	return g;
}

/* A member that is suspended is answered for only when nobody has it pinned. */
static void test_sb_member_pin__suspended_member_has_no_pins(void **state)
{
	struct shared_sb *g = *state;
	pthread_t threads[3];
	struct sb_member a;
	void *result;

	enter(g, &a, 5);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, pin_often, g), 0);
	for (int i = 0; i < ROUNDS / 10; i++) {
		mutex_lock(&g->lock);
		a.is_suspended = true;
		while (a.pins)
			pthread_cond_wait(&g->unpinned, &g->lock);
		mutex_unlock(&g->lock);
		assert_int_equal(a.pins, 0);
		mutex_lock(&g->lock);
		a.is_suspended = false;
		pthread_cond_broadcast(&g->unpinned);
		mutex_unlock(&g->lock);
	}
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], &result);
		assert_ptr_equal(result, g);
	}
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_sb_member_pin__member_is_found_by_its_number_alone),
		row(test_sb_member_pin__expected_numbers),
		row(test_sb_member_pin__suspended_member_has_no_pins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
