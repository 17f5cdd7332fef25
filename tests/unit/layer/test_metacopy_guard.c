// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/layer/metacopy_guard.h"
#include "veneer/layer/whiteout.h"

#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>

static int put_file(struct tree_dirs *d)
{
	int fd;

	tree_put_text(d, "upper/f", "text");
	fd = openat(d->s.fd, "upper/f", O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void need_trusted(int fd)
{
	if (fsetxattr(fd, "trusted.veneer-test", "y", 1, 0) == 0) {
		assert_int_equal(fremovexattr(fd, "trusted.veneer-test"), 0);
		return;
	}
	close(fd);
	skip();
}

static void test_metacopy_guard__is_set_by_one_attribute_without_privileges(void **state)
{
	int fd = put_file(*state);
	char value[16];

	assert_false(metacopy_guard_is_set(fd, ""));
	assert_int_equal(metacopy_guard_set(fd, METACOPY_GUARD_USER), 0);
	assert_true(metacopy_guard_is_set(fd, ""));
	assert_int_equal(fgetxattr(fd, "user.overlay.metacopy", value, sizeof(value)),
			 strlen(METACOPY_GUARD_VALUE));
	assert_int_equal(metacopy_guard_remove(fd), 0);
	assert_false(metacopy_guard_is_set(fd, ""));
	assert_int_equal(flistxattr(fd, value, sizeof(value)), 0);
	close(fd);
}

static void test_metacopy_guard__is_a_metacopy_of_no_kernel_with_privileges(void **state)
{
	int fd = put_file(*state);
	char buf[PATH_MAX];

	need_trusted(fd);
	assert_int_equal(metacopy_guard_set(fd, METACOPY_GUARD_TRUSTED), 0);
	assert_true(metacopy_guard_is_set(fd, ""));
	assert_int_equal(fgetxattr(fd, "trusted.overlay.redirect", NULL, 0), -1);
	assert_int_equal(fgetxattr(fd, "user.overlay.metacopy", NULL, 0), -1);
	/* Without its mark: not one of overlayfs's. */
	assert_int_equal(whiteout_metacopy(fd, buf), -EUCLEAN);
	assert_int_equal(metacopy_guard_set(fd, METACOPY_GUARD_TRUSTED_REDIRECT), 0);
	assert_int_equal(fgetxattr(fd, "trusted.overlay.redirect", buf, sizeof(buf)), 1);
	assert_int_equal(whiteout_metacopy(fd, buf), -EUCLEAN);
	assert_int_equal(metacopy_guard_remove(fd), 0);
	assert_int_equal(flistxattr(fd, buf, sizeof(buf)), 0);
	close(fd);
}

static void test_metacopy_guard__needs_privileges_for_trusted_attributes(void **state)
{
	(void)state;
	assert_int_equal(metacopy_guard_for(false), METACOPY_GUARD_USER);
	assert_int_not_equal(metacopy_guard_for(true), METACOPY_GUARD_USER);
}

static void test_metacopy_guard__takes_the_place_of_a_metacopy(void **state)
{
	int fd = put_file(*state);

	need_trusted(fd);
	assert_int_equal(fsetxattr(fd, "trusted.overlay.metacopy", "", 0, 0), 0);
	assert_int_equal(fsetxattr(fd, "trusted.overlay.redirect", "/a/b", 4, 0), 0);
	assert_false(metacopy_guard_is_set(fd, ""));
	assert_int_equal(metacopy_guard_set(fd, METACOPY_GUARD_TRUSTED_REDIRECT), 0);
	assert_true(metacopy_guard_is_set(fd, ""));
	close(fd);
}

static void test_metacopy_guard__of_another_value_is_none(void **state)
{
	static const char *const values[] = { "", "v", "vn", "vnr2", "vnR", "veneer" };
	int fd = put_file(*state);

	for (size_t k = 0; k < sizeof(values) / sizeof(*values); k++) {
		assert_int_equal(
			fsetxattr(fd, "user.overlay.metacopy", values[k], strlen(values[k]), 0), 0);
		assert_false(metacopy_guard_is_set(fd, ""));
	}
	assert_int_equal(metacopy_guard_remove(fd), 0);
	close(fd);
}

#define row(f) cmocka_unit_test_setup_teardown(f, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_metacopy_guard__is_set_by_one_attribute_without_privileges),
		row(test_metacopy_guard__is_a_metacopy_of_no_kernel_with_privileges),
		row(test_metacopy_guard__needs_privileges_for_trusted_attributes),
		row(test_metacopy_guard__takes_the_place_of_a_metacopy),
		row(test_metacopy_guard__of_another_value_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
