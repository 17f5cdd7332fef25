// SPDX-License-Identifier: Apache-2.0
/* The order in which a request that waits and its interruption are read is the kernel's threads' to
 * decide. */
#include "support/tree.h"

#include "sharedsb/shared_sb-internal.h"

static int setup(void **state)
{
	struct shared_sb *g = calloc(1, sizeof(*g));

	if (!g)
		return -1;
	pthread_mutex_init(&g->lock, NULL);
	*state = g;
	return 0;
}

static int teardown(void **state)
{
	struct shared_sb *g = *state;

	htab_release(&g->waiters);
	pthread_mutex_destroy(&g->lock);
	free(g);
	return 0;
}

static void test_sb_locks_wait__interrupt_goes_to_the_mount_that_waits(void **state)
{
	struct shared_sb *g = *state;

	assert_int_equal(sb_locks_wait_begin(g, 10), 0);
	assert_int_equal(sb_locks_wait_begin(g, 12), 0);
	assert_false(sb_locks_wait_at(g, 10, 3));
	assert_false(sb_locks_wait_at(g, 12, 4));
	assert_int_equal(sb_locks_wait_interrupt(g, 12), 4);
	assert_int_equal(sb_locks_wait_interrupt(g, 10), 3);
	sb_locks_wait_end(g, 10);
	sb_locks_wait_end(g, 12);
	assert_int_equal(g->n_waiters, 0);
	assert_int_equal(sb_locks_wait_interrupt(g, 12), 0);
}

static void test_sb_locks_wait__interrupt_while_it_is_found_out_whose_it_is(void **state)
{
	struct shared_sb *g = *state;

	assert_int_equal(sb_locks_wait_begin(g, 10), 0);
	assert_int_equal(sb_locks_wait_interrupt(g, 10), 0);
	assert_true(sb_locks_wait_at(g, 10, 3));
	sb_locks_wait_end(g, 10);
}

static void test_sb_locks_wait__interrupt_before_its_request(void **state)
{
	struct shared_sb *g = *state;

	for (uint64_t unique = 1000; unique < 1000 + SHARED_SB_INTERRUPTS; unique++)
		assert_int_equal(sb_locks_wait_interrupt(g, unique), 0);
	for (uint64_t unique = 1000; unique < 1000 + SHARED_SB_INTERRUPTS; unique += 100) {
		assert_int_equal(sb_locks_wait_begin(g, unique), 0);
		assert_int_equal(sb_locks_wait_begin(g, 1 + unique + SHARED_SB_INTERRUPTS), 0);
		assert_true(sb_locks_wait_at(g, unique, 3));
		assert_false(sb_locks_wait_at(g, 1 + unique + SHARED_SB_INTERRUPTS, 3));
		sb_locks_wait_end(g, unique);
		sb_locks_wait_end(g, 1 + unique + SHARED_SB_INTERRUPTS);
	}
	assert_int_equal(g->n_waiters, 0);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_sb_locks_wait__interrupt_goes_to_the_mount_that_waits),
		row(test_sb_locks_wait__interrupt_while_it_is_found_out_whose_it_is),
		row(test_sb_locks_wait__interrupt_before_its_request),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
