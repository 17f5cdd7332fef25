// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/server/client.h"

#include <sys/sysmacros.h>

static void test_client_target__is_device_and_inode_of_a_directory(void **state)
{
	struct tree_dirs *d = *state;
	struct client_target t;
	char path[PATH_MAX + 64];
	struct stat st;

	snprintf(path, sizeof(path), "%s/upper", d->s.path);
	assert_int_equal(client_target_of(path, &t), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(makedev(t.dev_major, t.dev_minor), st.st_dev);
	assert_int_equal(t.ino, st.st_ino);
	/* A path below the root of a file system is no number. */
	assert_int_equal(t.number, 0);
	assert_int_equal(client_target_of("/", &t), 0);
	assert_int_equal(client_target_of("/proc", &t), 0);
	assert_int_equal(t.number, 0);
}

static void test_client_target__what_is_no_directory_is_refused(void **state)
{
	struct client_target t = { .ino = 5 };
	struct tree_dirs *d = *state;
	char path[PATH_MAX + 64];

	tree_put_text(d, "upper/file", "text");
	snprintf(path, sizeof(path), "%s/upper/file", d->s.path);
	assert_int_equal(client_target_of(path, &t), -ENOTDIR);
	strcat(path, "/in/it");
	assert_int_equal(client_target_of(path, &t), -ENOTDIR);
	snprintf(path, sizeof(path), "%s/none", d->s.path);
	assert_int_equal(client_target_of(path, &t), -ENOENT);
	assert_int_equal(client_target_of("", &t), -ENOENT);
	/* Nothing is written then. */
	assert_int_equal(t.ino, 5);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_client_target__is_device_and_inode_of_a_directory),
		row(test_client_target__what_is_no_directory_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
