// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "cli/upper_layers.h"

static void test_upper_layers__upper_with_its_lower_layers(void **state)
{
	struct tree_dirs *d = *state;
	char upper[PATH_MAX + 16], list[] = "lowerdir=/a:/b\\:c:relative";
	struct upper_layers l;

	snprintf(upper, sizeof(upper), "%s/upper", d->s.path);
	assert_int_equal(upper_layers_find(upper, list, "veneer diff", &l), 0);
	assert_string_equal(l.upper, upper);
	assert_false(l.is_mounted);
	assert_int_equal(l.n_lower, 3);
	assert_string_equal(l.lower[0], "/a");
	assert_string_equal(l.lower[1], "/b:c");
	/* Where the command was given. */
	assert_true(l.lower[2][0] == '/' && strstr(l.lower[2], "/relative"));
	upper_layers_release(&l);
	assert_null(l.upper);
	upper_layers_release(&l);
}

static void test_upper_layers__directory_that_is_no_mount_needs_them(void **state)
{
	struct tree_dirs *d = *state;
	char upper[PATH_MAX + 16];
	struct upper_layers l;

	snprintf(upper, sizeof(upper), "%s/upper", d->s.path);
	assert_int_equal(upper_layers_find(upper, NULL, "veneer diff", &l), -EINVAL);
	upper_layers_release(&l);
}

static void test_upper_layers__list_that_is_none_is_refused(void **state)
{
	static const char *const lists[] = { "", "lowerdir=", "nonsense", "upperdir=/u",
					     "lowerdir=/a,size=x" };
	struct tree_dirs *d = *state;
	char upper[PATH_MAX + 16];

	snprintf(upper, sizeof(upper), "%s/upper", d->s.path);
	for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++) {
		char list[64];
		struct upper_layers l;

		snprintf(list, sizeof(list), "%s", lists[i]);
		if (upper_layers_find(upper, list, "veneer diff", &l) == 0)
			fail_msg("\"%s\" was taken", lists[i]);
		upper_layers_release(&l);
	}
}

static void test_upper_layers__nothing_of_it_is_written(void **state)
{
	char list[] = "lowerdir=/a";
	struct mount_opts o;

	(void)state;
	assert_int_equal(upper_layers_parse(list, &o), 0);
	assert_true(o.is_readonly);
	assert_null(o.upper);
	options_release(&o);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_upper_layers__upper_with_its_lower_layers),
		row(test_upper_layers__directory_that_is_no_mount_needs_them),
		row(test_upper_layers__list_that_is_none_is_refused),
		cmocka_unit_test(test_upper_layers__nothing_of_it_is_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
