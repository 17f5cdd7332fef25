// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/base/cleanup.h"
#include "veneer/recover/fd_renumber.h"

#include <limits.h>
#include <sys/mman.h>

#define FIRST 40 /* nothing of the test program is here or above */
#define N     60

/* A file that tells k. */
static int tagged(int k, int at_least)
{
	_cleanup_(closep) int fd = memfd_create("slot", MFD_CLOEXEC);
	int moved;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, k + 1), 0);
	moved = fcntl(fd, F_DUPFD_CLOEXEC, at_least);
	assert_true(moved >= at_least);
	return moved;
}

static int tag_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 ? -1 : (int)st.st_size - 1;
}

static void assert_all_closed(void)
{
	for (int fd = FIRST; fd < FIRST + 10 * N; fd++)
		assert_int_equal(tag_of(fd), -1);
}

static void place_shifted(int by)
{
	int got[N], wanted[N];

	for (int k = 0; k < N; k++) {
		got[k] = tagged(k, FIRST);
		wanted[k] = FIRST + (k * 7 + by) % N;
	}
	assert_int_equal(fd_renumber_place(got, wanted, N), 0);
	for (int k = 0; k < N; k++) {
		assert_int_equal(got[k], -1);
		assert_int_equal(tag_of(wanted[k]), k);
		assert_true(fcntl(wanted[k], F_GETFD) & FD_CLOEXEC);
		close(wanted[k]);
	}
	assert_all_closed();
}

static void test_fd_renumber__each_gets_its_number_whatever_is_there_before(void **state)
{
	(void)state;
	for (int by = 0; by < N; by++)
		place_shifted(by);
}

static void test_fd_renumber__numbers_far_away(void **state)
{
	int got[2] = { tagged(0, FIRST), tagged(1, FIRST) }, wanted[2] = { FIRST + 500, FIRST };

	(void)state;
	assert_int_equal(fd_renumber_place(got, wanted, 2), 0);
	assert_int_equal(tag_of(FIRST + 500), 0);
	assert_int_equal(tag_of(FIRST), 1);
	close(FIRST);
	close(FIRST + 500);
	assert_all_closed();
}

/* A sanitizer finds what is noted of it. */
static void test_fd_renumber__from_right_above_the_numbers(void **state)
{
	int got[1] = { tagged(1, FIRST + 1) };
	const int wanted[1] = { FIRST };

	(void)state;
	assert_int_equal(got[0], FIRST + 1);
	assert_int_equal(fd_renumber_place(got, wanted, 1), 0);
	assert_int_equal(tag_of(FIRST), 1);
	close(FIRST);
	assert_all_closed();
}

static void test_fd_renumber__one_number_twice_is_one_descriptor(void **state)
{
	int got[3] = { tagged(5, FIRST), tagged(5, FIRST), tagged(6, FIRST) };
	const int wanted[3] = { FIRST + 1, FIRST + 1, FIRST };

	(void)state;
	assert_int_equal(fd_renumber_place(got, wanted, 3), 0);
	assert_int_equal(tag_of(FIRST + 1), 5);
	assert_int_equal(tag_of(FIRST), 6);
	close(FIRST);
	close(FIRST + 1);
	assert_all_closed();
}

static void test_fd_renumber__what_is_somebody_elses_stays_and_nothing_is_left(void **state)
{
	int other = tagged(9, FIRST + 2), got[3];
	const int wanted[3] = { FIRST + 1, FIRST, other };

	(void)state;
	for (int k = 0; k < 3; k++)
		got[k] = tagged(k, FIRST);
	assert_int_equal(fd_renumber_place(got, wanted, 3), -EBUSY);
	assert_int_equal(tag_of(other), 9);
	close(other);
	assert_all_closed();
}

static void test_fd_renumber__standard_descriptors_are_nobodys(void **state)
{
	int got[1] = { tagged(1, FIRST) };
	const int wanted[1] = { 2 };

	(void)state;
	assert_int_equal(fd_renumber_place(got, wanted, 1), -EINVAL);
	assert_all_closed();
}

static void test_fd_renumber__own_ones_make_room(void **state)
{
	int a = tagged(1, FIRST), b = tagged(2, FIRST), none = -1;
	int *const own[] = { &a, &none, &b };
	/* the last one is not wanted */
	const int wanted[] = { FIRST, FIRST + 20, INT_MAX - 1 }, far[] = { INT_MAX - 1 };

	(void)state;
	assert_int_equal(fd_renumber_make_room(wanted, 2, own, 3), 0);
	assert_true(a > FIRST + 20 && b > FIRST + 20 && a != b);
	assert_int_equal(none, -1);
	assert_int_equal(tag_of(a), 1);
	assert_int_equal(tag_of(b), 2);
	assert_int_equal(tag_of(FIRST), -1);
	assert_int_equal(fd_renumber_make_room(far, 1, own, 3), -EMFILE);
	close(a);
	close(b);
	assert_all_closed();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fd_renumber__each_gets_its_number_whatever_is_there_before),
		cmocka_unit_test(test_fd_renumber__numbers_far_away),
		cmocka_unit_test(test_fd_renumber__from_right_above_the_numbers),
		cmocka_unit_test(test_fd_renumber__one_number_twice_is_one_descriptor),
		cmocka_unit_test(
			test_fd_renumber__what_is_somebody_elses_stays_and_nothing_is_left),
		cmocka_unit_test(test_fd_renumber__standard_descriptors_are_nobodys),
		cmocka_unit_test(test_fd_renumber__own_ones_make_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
