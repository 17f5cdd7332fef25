// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "cli/upper_root.h"

static void test_upper_root__is_like_the_other_but_for_what_is_a_layers(void **state)
{
	struct tree_dirs *d = *state;
	char *like = tree_path(d, "lower"), *path = tree_path(d, "new"), value[8];
	struct stat st;

	assert_int_equal(chmod(like, 03751), 0);
	assert_int_equal(setxattr(like, "user.kept", "yes", 3, 0), 0);
	assert_int_equal(setxattr(like, "user.overlay.opaque", "y", 1, 0), 0);
	assert_int_equal(setxattr(like, "user.fuseoverlayfs.opaque", "y", 1, 0), 0);
	assert_int_equal(upper_root_make(path, like), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 03751);
	assert_int_equal(getxattr(path, "user.kept", value, sizeof(value)), 3);
	assert_true(getxattr(path, "user.overlay.opaque", value, sizeof(value)) < 0);
	assert_true(getxattr(path, "user.fuseoverlayfs.opaque", value, sizeof(value)) < 0);
	free(like);
	free(path);
}

static void test_upper_root__owner_goes_as_far_as_this_user_may(void **state)
{
	struct tree_dirs *d = *state;
	char *like = tree_path(d, "lower"), *path = tree_path(d, "new");
	struct stat st;

	if (geteuid() != 0 || chown(like, 1234, 5678) < 0) {
		free(like);
		free(path);
		skip();
	}
	assert_int_equal(chmod(like, 02755), 0);
	assert_int_equal(upper_root_make(path, like), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, 1234);
	assert_int_equal(st.st_gid, 5678);
	/* A change of the owner does not take it away. */
	assert_int_equal(st.st_mode & 07777, 02755);
	free(like);
	free(path);
}

static void test_upper_root__place_that_is_taken_or_none_is_an_error(void **state)
{
	struct tree_dirs *d = *state;
	char *like = tree_path(d, "lower"), *path = tree_path(d, "upper"),
	     *none = tree_path(d, "none");

	assert_int_equal(upper_root_make(path, like), -EEXIST);
	assert_int_equal(upper_root_make(none, none), -ENOENT);
	assert_false(tree_is_there(d, "none"));
	free(like);
	free(path);
	free(none);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_upper_root__is_like_the_other_but_for_what_is_a_layers),
		row(test_upper_root__owner_goes_as_far_as_this_user_may),
		row(test_upper_root__place_that_is_taken_or_none_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
