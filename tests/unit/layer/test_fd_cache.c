// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/layer/fd_cache.h"

#include <pthread.h>
#include <sys/resource.h>

static int new_fd(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void test_fd_cache__empty_slot_has_nothing_to_pin(void **state)
{
	struct fd_cache_slot s = { 0 };

	(void)state;
	assert_int_equal(fd_cache_pin(&s), -1);
	fd_cache_drop(&s);
}

static void test_fd_cache__filled_slot_is_pinned_and_kept(void **state)
{
	struct fd_cache_slot s = { 0 };
	int fd = new_fd();

	(void)state;
	assert_int_equal(fd_cache_fill(&s, fd), fd);
	fd_cache_unpin(&s);
	assert_int_equal(fd_cache_pin(&s), fd);
	fd_cache_unpin(&s);
	assert_true(is_open(fd));
	fd_cache_drop(&s);
	assert_false(is_open(fd));
}

static void test_fd_cache__second_look_pins_what_another_thread_has_filled(void **state)
{
	struct fd_cache_slot s = { 0 };
	int fd = new_fd();

	(void)state;
	assert_int_equal(fd_cache_pin_again(&s), -1);
	fd_cache_fill(&s, fd);
	fd_cache_unpin(&s);
	assert_int_equal(fd_cache_pin_again(&s), fd);
	fd_cache_shrink();
	assert_true(is_open(fd));
	fd_cache_unpin(&s);
	fd_cache_drop(&s);
}

static void test_fd_cache__second_filler_gets_the_first_ones_descriptor(void **state)
{
	struct fd_cache_slot s = { 0 };
	int first = new_fd(), second = new_fd();

	(void)state;
	fd_cache_fill(&s, first);
	assert_int_equal(fd_cache_fill(&s, second), first);
	assert_false(is_open(second));
	fd_cache_unpin(&s);
	fd_cache_shrink();
	assert_true(is_open(first));
	fd_cache_unpin(&s);
	fd_cache_shrink();
	assert_false(is_open(first));
}

static void test_fd_cache__shrink_closes_what_is_not_pinned(void **state)
{
	struct fd_cache_slot pinned = { 0 }, idle[40] = { 0 };
	int fd = new_fd();

	(void)state;
	fd_cache_fill(&pinned, fd);
	for (unsigned k = 0; k < 40; k++) {
		fd_cache_fill(&idle[k], new_fd());
		fd_cache_unpin(&idle[k]);
	}
	fd_cache_shrink();
	assert_true(is_open(fd));
	for (unsigned k = 0; k < 40; k++)
		assert_int_equal(fd_cache_pin(&idle[k]), -1);
	fd_cache_drop(&pinned);
}

static void test_fd_cache__drop_closes_a_pinned_one_too(void **state)
{
	struct fd_cache_slot s = { 0 };
	int fd = new_fd();

	(void)state;
	fd_cache_fill(&s, fd);
	fd_cache_drop(&s);
	assert_false(is_open(fd));
	assert_int_equal(fd_cache_pin(&s), -1);
}

/* These come last in their program: the bound is one for the process. */
static void test_fd_cache__greedy_one_leaves_something_to_hold_for_others(void **state)
{
	struct fd_cache_share greedy = { 0 }, second = { 0 }, third = { 0 };
	struct rlimit rl = { 400, 400 };
	size_t most;

	(void)state;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &rl), 0);
	fd_cache_init();
	while (fd_cache_hold(&greedy) == 0)
		assert_true(greedy.n <= 200);
	assert_true(greedy.n > 100);
	while (fd_cache_hold(&second) == 0)
		assert_true(second.n <= 200);
	assert_true(second.n > 5);
	assert_int_equal(fd_cache_hold(&third), 0);
	assert_true(greedy.n + second.n + third.n < 200);
	most = greedy.n;
	assert_int_equal(fd_cache_hold(&greedy), -ENFILE);
	while (greedy.n)
		fd_cache_unhold(&greedy);
	while (fd_cache_hold(&second) == 0)
		assert_true(second.n <= 200);
	assert_true(second.n >= most - 2);
	while (second.n)
		fd_cache_unhold(&second);
	fd_cache_unhold(&third);
}

static void test_fd_cache__what_is_held_pushes_nothing_out(void **state)
{
	struct fd_cache_slot held[100] = { 0 }, s[200] = { 0 };
	struct fd_cache_share m = { 0 };
	unsigned nopen = 0;

	(void)state;
	for (unsigned k = 0; k < 100; k++) {
		assert_int_equal(fd_cache_hold(&m), 0);
		fd_cache_fill(&held[k], new_fd());
	}
	for (unsigned k = 0; k < 200; k++) {
		fd_cache_fill(&s[k], new_fd());
		fd_cache_unpin(&s[k]);
	}
	for (unsigned k = 0; k < 200; k++) {
		if (fd_cache_pin(&s[k]) < 0)
			continue;
		nopen++;
		fd_cache_unpin(&s[k]);
	}
	assert_int_equal(nopen, 200);
	for (unsigned k = 0; k < 200; k++)
		fd_cache_drop(&s[k]);
	for (unsigned k = 0; k < 100; k++) {
		fd_cache_drop(&held[k]);
		fd_cache_unhold(&m);
	}
}

static void test_fd_cache__least_recently_used_goes_when_there_are_too_many(void **state)
{
	struct fd_cache_slot s[200] = { 0 };
	struct rlimit rl = { 400, 400 };
	unsigned nopen = 0;
	int fd;

	(void)state;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &rl), 0);
	fd_cache_init();
	for (unsigned k = 0; k < 200; k++) {
		fd_cache_fill(&s[k], new_fd());
		fd_cache_unpin(&s[k]);
	}
	for (unsigned k = 0; k < 200; k++) {
		fd = fd_cache_pin(&s[k]);
		nopen += fd >= 0;
		if (fd >= 0)
			fd_cache_unpin(&s[k]);
	}
	assert_int_equal(nopen, 200);
	/* One more than half the limit: the one used longest ago, which is the first, must go. */
	for (unsigned k = 1; k < 200; k++)
		if (fd_cache_pin(&s[k]) >= 0)
			fd_cache_unpin(&s[k]);
	{
		struct fd_cache_slot more = { 0 };

		fd_cache_fill(&more, new_fd());
		assert_int_equal(fd_cache_pin(&s[0]), -1);
		fd = fd_cache_pin(&s[1]);
		assert_true(fd >= 0);
		fd_cache_unpin(&s[1]);
		fd_cache_drop(&more);
	}
	for (unsigned k = 0; k < 200; k++)
		fd_cache_drop(&s[k]);
}

struct user {
	struct fd_cache_slot *slots;
	uint64_t seed;
	int result;
};

static void *use_slots(void *arg)
{
	struct user *u = arg;

	for (unsigned k = 0; k < 3000 && u->result == 0; k++) {
		struct fd_cache_slot *s = &u->slots[tree_random(&u->seed) % 8];
		int fd = fd_cache_pin(s);

		if (fd < 0) {
			fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
			fd = fd < 0 ? fd : fd_cache_fill(s, fd);
		}
		if (fd < 0 || !is_open(fd))
			u->result = -EBADF;
		if (fd >= 0)
			fd_cache_unpin(s);
		if (k % 100 == 0)
			fd_cache_shrink();
	}
	return NULL;
}

static void test_fd_cache__pinned_descriptor_stays_open_among_threads(void **state)
{
	struct fd_cache_slot slots[8] = { 0 };
	struct user users[4];
	pthread_t threads[4];

	(void)state;
	for (unsigned k = 0; k < 4; k++) {
		users[k] = (struct user){ .slots = slots, .seed = k + 1 };
		assert_int_equal(pthread_create(&threads[k], NULL, use_slots, &users[k]), 0);
	}
	for (unsigned k = 0; k < 4; k++) {
		pthread_join(threads[k], NULL);
		assert_int_equal(users[k].result, 0);
	}
	for (unsigned k = 0; k < 8; k++)
		fd_cache_drop(&slots[k]);
}

static void test_fd_cache__bound_leaves_room_for_what_is_open(void **state)
{
	struct fd_cache_slot s[100] = { 0 };
	int held[200];

	(void)state;
	for (unsigned k = 0; k < 200; k++)
		held[k] = new_fd();
	fd_cache_bound();
	/* 400 allowed (the test above), some 205 taken: not 200 but less than 100 may be kept. */
	for (unsigned k = 0; k < 100; k++) {
		fd_cache_fill(&s[k], new_fd());
		fd_cache_unpin(&s[k]);
	}
	assert_in_range(fd_cache_count(), 64, 99);
	for (unsigned k = 0; k < 100; k++)
		fd_cache_drop(&s[k]);
	assert_int_equal(fd_cache_count(), 0);
	for (unsigned k = 0; k < 200; k++)
		close(held[k]);
	fd_cache_bound();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fd_cache__empty_slot_has_nothing_to_pin),
		cmocka_unit_test(test_fd_cache__filled_slot_is_pinned_and_kept),
		cmocka_unit_test(test_fd_cache__second_look_pins_what_another_thread_has_filled),
		cmocka_unit_test(test_fd_cache__second_filler_gets_the_first_ones_descriptor),
		cmocka_unit_test(test_fd_cache__shrink_closes_what_is_not_pinned),
		cmocka_unit_test(test_fd_cache__drop_closes_a_pinned_one_too),
		cmocka_unit_test(test_fd_cache__pinned_descriptor_stays_open_among_threads),
		cmocka_unit_test(test_fd_cache__greedy_one_leaves_something_to_hold_for_others),
		cmocka_unit_test(test_fd_cache__what_is_held_pushes_nothing_out),
		cmocka_unit_test(test_fd_cache__least_recently_used_goes_when_there_are_too_many),
		cmocka_unit_test(test_fd_cache__bound_leaves_room_for_what_is_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
