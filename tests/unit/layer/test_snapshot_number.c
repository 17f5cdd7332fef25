// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/layer/snapshot_number.h"

static void test_snapshot_number__comes_back_little_endian(void **state)
{
	static const uint8_t bytes[8] = { 8, 7, 6, 5, 4, 3, 2, 1 };
	struct tree_dirs *d = *state;
	uint64_t number = 99;
	int fd;

	tree_put_text(d, "upper/file", "x");
	assert_false(snapshot_number_read(d->s.fd, "upper/file", false, &number));
	assert_int_equal(number, 0);
	fd = openat(d->s.fd, "upper/file", O_RDONLY | O_CLOEXEC);
	assert_int_equal(snapshot_number_write(fd, 0x0102030405060708), 0);
	assert_true(snapshot_number_read(d->s.fd, "upper/file", false, &number));
	assert_int_equal(number, 0x0102030405060708);
	assert_int_equal(fsetxattr(fd, SNAPSHOT_NUMBER_USER_ATTR, bytes, sizeof(bytes), 0), 0);
	fremovexattr(fd, SNAPSHOT_NUMBER_ATTR);
	assert_true(snapshot_number_read(d->s.fd, "upper/file", false, &number));
	assert_int_equal(number, 0x0102030405060708);
	close(fd);
}

/* The owner of a file may write it. */
static void test_snapshot_number__number_of_a_user_is_doubted_or_none(void **state)
{
	struct tree_dirs *d = *state;
	uint64_t number = 7, wrong = 0;
	int fd;

	tree_put_text(d, "upper/file", "x");
	fd = openat(d->s.fd, "upper/file", O_RDONLY | O_CLOEXEC);
	assert_int_equal(fsetxattr(fd, SNAPSHOT_NUMBER_USER_ATTR, &number, sizeof(number), 0), 0);
	assert_true(snapshot_number_read(d->s.fd, "upper/file", false, &number));
	assert_false(snapshot_number_read(d->s.fd, "upper/file", true, &number));
	assert_int_equal(number, 0);
	assert_int_equal(fsetxattr(fd, SNAPSHOT_NUMBER_USER_ATTR, &wrong, 3, 0), 0);
	assert_false(snapshot_number_read(d->s.fd, "upper/file", false, &number));
	assert_int_equal(fsetxattr(fd, SNAPSHOT_NUMBER_USER_ATTR, &wrong, sizeof(wrong), 0), 0);
	assert_false(snapshot_number_read(d->s.fd, "upper/file", false, &number));
	assert_int_equal(fsetxattr(fd, SNAPSHOT_NUMBER_USER_ATTR, "much too long", 13, 0), 0);
	assert_false(snapshot_number_read(d->s.fd, "upper/file", false, &number));
	assert_false(snapshot_number_read(d->s.fd, "upper/none", false, &number));
	close(fd);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_snapshot_number__comes_back_little_endian),
		row(test_snapshot_number__number_of_a_user_is_doubted_or_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
