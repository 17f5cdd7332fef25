// SPDX-License-Identifier: Apache-2.0
#include "support/parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void test_options_path__separators_can_be_escaped(void **state)
{
	static const struct {
		const char *text, *lowers;
	} table[] = {
		{ "lowerdir=/a\\:b", "/a:b" },
		{ "lowerdir=/a\\\\:b", "/a:b" },
		{ "lowerdir=/a\\\\\\:b", "/a\\:b" },
		{ "lowerdir=/a\\:b:/c\\\\:d:/e", "/a:b|/c:d|/e" },
		{ "lowerdir=/c\\,d", "/c,d" },
		{ "lowerdir=/c\\,d:/e,noacl", "/c,d|/e" },
		{ "lowerdir=/e\\\\f", "/e\\f" },
		{ "lowerdir=/e\\\\,noacl", "/e\\" },
		{ "lowerdir=/e\\\\\\,f", "/e\\,f" },
		{ "lowerdir=/e\\\\\\\\f", "/e\\\\f" },
		{ "lowerdir=/nowhere/e\\f", "/nowhere/ef" },
		{ "lowerdir=/end\\", "/end\\" },
		{ "lowerdir=/l1::/l2:", "/l1|/l2" },
		{ "lowerdir=:/l1", "/l1" },
		{ "lowerdir=/a\"b:/c", "/a\"b|/c" },
		{ "lowerdir=\"/a,b\"", "/a,b" },
		{ "lowerdir=/a=b", "/a=b" },
		{ "lowerdir=/sp ace", "/sp ace" },
		{ "lowerdir=/\xc3\xa9", "/\xc3\xa9" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct mount_opts o = good(table[i].text);

		assert_lowers(&o, table[i].lowers);
		assert_int_equal(o.n_unknown, 0);
		options_release(&o);
	}
}

static void test_options_path__upper_and_work_never_split_at_colons(void **state)
{
	static const char *const forms[] = { "/u:p", "/u\\:p", "/u\\\\:p" };

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct mount_opts o;
		char list[128];

		snprintf(list, sizeof(list), "lowerdir=/l,upperdir=%s,workdir=%s", forms[i],
			 forms[i]);
		o = good(list);
		assert_string_equal(o.upper, "/u:p");
		assert_string_equal(o.work, "/u:p");
		options_release(&o);
	}
}

static void test_options_path__lone_backslash_stays_where_the_name_has_one(void **state)
{
	char root[] = "/tmp/test_optpath.XXXXXX", name[64], list[128];
	struct mount_opts o;

	(void)state;
	assert_non_null(mkdtemp(root));
	snprintf(name, sizeof(name), "%s/e\\f", root);
	snprintf(list, sizeof(list), "lowerdir=%s", name);
	o = good(list);
	assert_string_not_equal(o.lower[0], name);
	options_release(&o);
	assert_int_equal(mkdir(name, 0700), 0);
	o = good(list);
	assert_string_equal(o.lower[0], name);
	options_release(&o);
	assert_int_equal(rmdir(name), 0);
	assert_int_equal(rmdir(root), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options_path__separators_can_be_escaped),
		cmocka_unit_test(test_options_path__upper_and_work_never_split_at_colons),
		cmocka_unit_test(test_options_path__lone_backslash_stays_where_the_name_has_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
