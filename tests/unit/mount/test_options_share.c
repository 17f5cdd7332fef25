// SPDX-License-Identifier: Apache-2.0
#include "support/parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_options_share__what_shows_files_otherwise_does_not_agree(void **state)
{
	static const struct {
		const char *text;
		bool agrees;
	} table[] = {
		{ "share=pages", true },
		{ "share=pages,volatile", true },
		{ "share=pages,cow=copy", true },
		{ "share=pages,upperdir=/other,workdir=/w", true },
		{ "share=pages,uidmapping=0:1:2", false },
		{ "share=pages,gidmapping=0:1:2", false },
		{ "share=pages,squash_to_root", false },
		{ "share=pages,squash_to_uid=1", false },
		{ "share=pages,squash_to_gid=1", false },
		{ "share=pages,timeout=1", false },
		{ "share=pages,noacl", false },
		{ "share=pages,static_nlink", false },
		{ "share=pages,noxattrs=1", false },
		{ "share=pages,xattr_permissions=2", false },
		{ "share=pages,nosuid", false },
	};
	struct mount_opts o = good_with_lower("share=pages");

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct mount_opts other = good_with_lower(table[i].text), common;

		assert_int_equal(options_agree(&o, &other), table[i].agrees);
		assert_int_equal(options_common(&other, &common), 0);
		assert_null(common.upper);
		assert_false(common.is_volatile);
		assert_int_equal(common.n_lower, other.n_lower);
		assert_string_equal(common.lower[0], other.lower[0]);
		assert_true(options_agree(&other, &common));
		options_release(&other);
		options_release(&common);
	}
	options_release(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options_share__what_shows_files_otherwise_does_not_agree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
