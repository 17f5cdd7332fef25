// SPDX-License-Identifier: Apache-2.0
#include "veneer/recover/estale_table.h"

#include "veneer/base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static int set_up(void **state)
{
	return estale_table_new((struct estale_table **)state);
}

static int tear_down(void **state)
{
	estale_table_free(*state);
	return 0;
}

static void test_estale_table__knows_whom_and_what(void **state)
{
	struct estale_table *r = *state;

	assert_false(estale_table_has(r, 7, 100, 0));
	estale_table_note(r, 7, 100, 0);
	assert_true(estale_table_has(r, 7, 100, 0));
	assert_false(estale_table_has(r, 8, 100, 0));
	assert_false(estale_table_has(r, 7, 101, 0));
}

static void test_estale_table__a_note_is_there_until_its_time_is_over(void **state)
{
	struct estale_table *r = *state;

	estale_table_note(r, 7, 100, 1000);
	assert_true(estale_table_has(r, 7, 100, 1000 + ESTALE_TABLE_MS));
	assert_false(estale_table_has(r, 7, 100, 1001 + ESTALE_TABLE_MS));
	estale_table_note(r, 7, 100, 1001 + ESTALE_TABLE_MS);
	assert_true(estale_table_has(r, 7, 100, 1001 + ESTALE_TABLE_MS));
}

/* The look-up is not read as long as all threads wait for a disk; the caller looks no second
 * time. */
static void test_estale_table__a_note_outlives_a_disk_that_hangs_for_a_while(void **state)
{
	struct estale_table *r = *state;

	estale_table_note(r, 7, 100, 1000);
	assert_true(estale_table_has(r, 7, 100, 31000));
}

/* Each is told so once before the one of another container is heard, and once more before he is
 * heard again. */
static void test_estale_table__many_who_are_told_at_once_push_nobody_out(void **state)
{
	struct estale_table *r = *state;

	for (uint32_t i = 0; i < 20; i++)
		estale_table_note(r, 7, i, 1000);
	for (uint32_t i = 0; i < 4096; i++)
		estale_table_note(r, 1000 + i % 2048, 100 + i, 1001);
	for (uint32_t i = 0; i < 20; i++)
		assert_true(estale_table_has(r, 7, i, 1002));
}

/* A caller that was just answered finds his note, whoever came before him. */
static void test_estale_table__the_newest_notes_stay(void **state)
{
	struct estale_table *r = *state;

	for (uint32_t i = 0; i < 400000; i++) {
		estale_table_note(r, i % 50, i, i / 100);
		assert_true(estale_table_has(r, i % 50, i, i / 100));
		if (i)
			assert_true(estale_table_has(r, (i - 1) % 50, i - 1, i / 100));
	}
	assert_false(estale_table_has(r, 0, 0, 0));
}

static void test_estale_table__the_next_server_knows_as_long_as_if_it_were_just_said(void **state)
{
	struct estale_table *r = *state, *next;

	estale_table_note(r, 7, 100, 1000);
	estale_table_note(r, 8, 101, 2000);
	assert_int_equal(
		estale_table_attach(fcntl(estale_table_fd(r), F_DUPFD_CLOEXEC, 3), 60000, &next),
		0);
	assert_true(estale_table_has(next, 7, 100, 60000 + ESTALE_TABLE_MS));
	assert_true(estale_table_has(next, 8, 101, 60000 + ESTALE_TABLE_MS));
	assert_false(estale_table_has(next, 7, 101, 60000));
	assert_false(estale_table_has(next, 7, 100, 60001 + ESTALE_TABLE_MS));
	estale_table_free(next);
}

static void test_estale_table__another_file_is_refused(void **state)
{
	int fd = memfd_create("other", MFD_CLOEXEC);
	struct estale_table *next;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 100), 0);
	assert_int_equal(estale_table_attach(fd, 0, &next), -EPROTO);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	assert_int_equal(estale_table_attach(-1, 0, &next), -EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_estale_table__knows_whom_and_what, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(
			test_estale_table__a_note_is_there_until_its_time_is_over, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(
			test_estale_table__a_note_outlives_a_disk_that_hangs_for_a_while, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(
			test_estale_table__many_who_are_told_at_once_push_nobody_out, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(test_estale_table__the_newest_notes_stay, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(
			test_estale_table__the_next_server_knows_as_long_as_if_it_were_just_said,
			set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_estale_table__another_file_is_refused, set_up,
						tear_down),
	};

	hash_use_secret(20260731); /* chance is not tested */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
