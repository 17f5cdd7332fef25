// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/fuse/rollback_notify.h"

static void test_rollback_notify__only_names_that_were_looked_up_are_known(void **state)
{
	struct mount m = { .checks_renames = true };

	(void)state;
	assert_false(rollback_notify_is_known(&m, 5, "name"));
	rollback_notify_looked_up(&m, 5, "name");
	rollback_notify_looked_up(&m, 5, "name");
	rollback_notify_looked_up(&m, 6, "other");
	assert_int_equal(m.looked_up.count, 2);
	assert_true(rollback_notify_is_known(&m, 5, "name"));
	assert_false(rollback_notify_is_known(&m, 6, "name"));
	assert_true(rollback_notify_is_known(&m, 6, "other"));
	rollback_notify_stop(&m);
	assert_true(rollback_notify_is_known(&m, 6, "name"));
	assert_int_equal(m.looked_up.count, 0);
}

static void test_rollback_notify__mount_that_did_not_go_back_knows_all(void **state)
{
	struct tree_dirs *d = *state;

	tree_mount(d, "volatile");
	assert_null(rollback_notify_begin(&d->m, -1));
	assert_int_equal(rollback_notify_end(NULL, &d->m, -1, 0), 0);
	rollback_notify_looked_up(&d->m, 5, "name");
	assert_int_equal(d->m.looked_up.count, 0);
	assert_true(rollback_notify_is_known(&d->m, 5, "another"));
	rollback_notify_stop(&d->m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rollback_notify__only_names_that_were_looked_up_are_known),
		cmocka_unit_test_setup_teardown(
			test_rollback_notify__mount_that_did_not_go_back_knows_all, tree_setup,
			tree_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
