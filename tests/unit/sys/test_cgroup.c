// SPDX-License-Identifier: Apache-2.0
/* Going to another group takes real ones: tests/integration/test_cgroup.py. */
#include "veneer/sys/cgroup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void assert_target(const char *path, const char *wish, const char *want)
{
	char got[PATH_MAX];

	if (!want) {
		assert_false(cgroup_target(path, wish, got));
		return;
	}
	assert_true(cgroup_target(path, wish, got));
	assert_string_equal(got, want);
}

static void test_cgroup__beside_the_one_it_was_started_in(void **state)
{
	(void)state;
	assert_target("/a", NULL, "/veneer");
	assert_target("/a/b c/d", NULL, "/a/b c/veneer");
	assert_target("/a/veneer", NULL, "/a/veneer");
}

static void test_cgroup__nothing_to_leave(void **state)
{
	(void)state;
	assert_target("/", NULL, NULL);
	assert_target("/", "/wish", NULL);
	assert_target("", NULL, NULL);
	assert_target("/../other", NULL, NULL);
}

static void test_cgroup__a_wish_is_followed_if_it_is_a_path(void **state)
{
	(void)state;
	assert_target("/a/b", "/x/y", "/x/y");
	assert_target("/a/b", "y", NULL);
}

static void test_cgroup__too_long(void **state)
{
	char path[PATH_MAX + 16];

	(void)state;
	memset(path, 'a', sizeof(path));
	path[0] = '/';
	path[sizeof(path) - 3] = '/';
	path[sizeof(path) - 1] = '\0';
	assert_target(path, NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cgroup__beside_the_one_it_was_started_in),
		cmocka_unit_test(test_cgroup__nothing_to_leave),
		cmocka_unit_test(test_cgroup__a_wish_is_followed_if_it_is_a_path),
		cmocka_unit_test(test_cgroup__too_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
