// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "tools/entry_attrs.h"

struct two {
	struct tree_dirs *d;
	int a, b;
};

static int setup(void **state)
{
	struct two *t = calloc(1, sizeof(*t));

	if (!t || tree_setup((void **)&t->d) < 0)
		return -1;
	tree_put_text(t->d, "upper/a", "of a");
	tree_put_text(t->d, "upper/b", "of b");
	t->a = openat(t->d->s.fd, "upper/a", O_RDWR | O_CLOEXEC);
	t->b = openat(t->d->s.fd, "upper/b", O_RDWR | O_CLOEXEC);
	*state = t;
	return 0;
}

static int teardown(void **state)
{
	struct two *t = *state;

	close(t->a);
	close(t->b);
	tree_teardown((void **)&t->d);
	free(t);
	return 0;
}

static void set(int fd, const char *name, const char *value)
{
	assert_int_equal(fsetxattr(fd, name, value, strlen(value), 0), 0);
}

static void test_entry_attrs__names_that_are_the_hosts_do_not_count(void **state)
{
	(void)state;
	assert_true(entry_attrs_counts("user.a"));
	assert_true(entry_attrs_counts("security.capability"));
	assert_true(entry_attrs_counts("system.posix_acl_access"));
	assert_false(entry_attrs_counts("security.selinux"));
	assert_false(entry_attrs_counts("user.overlay.opaque"));
	assert_false(entry_attrs_counts("trusted.overlay.origin"));
	assert_false(entry_attrs_counts("user.veneer.partial"));
	assert_false(entry_attrs_counts("user.fuseoverlayfs.override_stat"));
}

static void test_entry_attrs__attributes_are_compared_both_ways(void **state)
{
	struct two *t = *state;

	assert_int_equal(entry_attrs_same_xattrs(t->a, t->b), 1);
	set(t->a, "user.x", "1");
	assert_int_equal(entry_attrs_same_xattrs(t->a, t->b), 0);
	assert_int_equal(entry_attrs_same_xattrs(t->b, t->a), 0);
	set(t->b, "user.x", "2");
	assert_int_equal(entry_attrs_same_xattrs(t->a, t->b), 0);
	set(t->b, "user.x", "12");
	assert_int_equal(entry_attrs_same_xattrs(t->a, t->b), 0);
	set(t->b, "user.x", "1");
	assert_int_equal(entry_attrs_same_xattrs(t->a, t->b), 1);
	/* One without a value is there all the same. */
	set(t->a, "user.empty", "");
	assert_int_equal(entry_attrs_same_xattrs(t->a, t->b), 0);
	set(t->b, "user.empty", "");
	assert_int_equal(entry_attrs_same_xattrs(t->a, t->b), 1);
	set(t->b, "user.veneer.partial", "mark");
	set(t->a, "user.overlay.origin", "");
	assert_int_equal(entry_attrs_same_xattrs(t->a, t->b), 1);
}

static void test_entry_attrs__descriptors_may_be_of_paths_alone(void **state)
{
	struct two *t = *state;
	int a = openat(t->d->s.fd, "upper/a", O_PATH | O_CLOEXEC);

	set(t->a, "user.x", "1");
	set(t->b, "user.x", "1");
	assert_int_equal(entry_attrs_same_xattrs(a, t->b), 1);
	set(t->b, "user.x", "2");
	assert_int_equal(entry_attrs_same_xattrs(a, t->b), 0);
	close(a);
	assert_true(entry_attrs_same_xattrs(-1, t->b) < 0);
}

static void test_entry_attrs__owner_and_mode_count_and_times_do_not(void **state)
{
	struct two *t = *state;
	struct stat x, y;

	assert_int_equal(fstat(t->a, &x), 0);
	y = x;
	y.st_mtim.tv_sec++;
	y.st_size++;
	assert_int_equal(entry_attrs_same(t->a, &x, t->b, &y), 1);
	y.st_mode ^= 01;
	assert_int_equal(entry_attrs_same(t->a, &x, t->b, &y), 0);
	y = x;
	y.st_uid++;
	assert_int_equal(entry_attrs_same(t->a, &x, t->b, &y), 0);
	y = x;
	y.st_gid++;
	assert_int_equal(entry_attrs_same(t->a, &x, t->b, &y), 0);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_entry_attrs__names_that_are_the_hosts_do_not_count),
		row(test_entry_attrs__attributes_are_compared_both_ways),
		row(test_entry_attrs__descriptors_may_be_of_paths_alone),
		row(test_entry_attrs__owner_and_mode_count_and_times_do_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
