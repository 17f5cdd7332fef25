// SPDX-License-Identifier: Apache-2.0
#include "support/served.h"

#include "server/snapshot_take.h"
#include "veneer/layer/branch_dir.h"

#include <sys/resource.h>

#define KEPT  "io=cached,copies=all,volatile"
#define MINOR 7u

static const struct mount_table_target target = { .dev_minor = MINOR };

static int take(struct served *s, const char *to, char *name, char *err)
{
	return snapshot_take(s->table, &target, to, name, err, 1024);
}

static void read_names(enum wire_type type, const char *text, char *to, char *name)
{
	const struct wire_message m = { .type = type, .text = text, .text_len = strlen(text) };

	snapshot_take_names(&m, to, name);
}

static void test_snapshot_take__names_of_both_messages(void **state)
{
	char to[BRANCH_CHAIN_NAME_MAX + 1], name[BRANCH_CHAIN_NAME_MAX + 1];
	char longer[BRANCH_CHAIN_NAME_MAX + 2];

	(void)state;
	read_names(WIRE_SNAPSHOT, "name", to, name);
	assert_string_equal(to, "");
	assert_string_equal(name, "name");
	read_names(WIRE_SNAPSHOT, "", to, name);
	assert_string_equal(name, "");
	read_names(WIRE_ROLLBACK, "back\nname", to, name);
	assert_string_equal(to, "back");
	assert_string_equal(name, "name");
	read_names(WIRE_ROLLBACK, "back", to, name);
	assert_string_equal(to, "back");
	assert_string_equal(name, "");
	/* One that is no name where there must be one. */
	read_names(WIRE_ROLLBACK, "\nname", to, name);
	assert_false(branch_chain_is_name(to));
	read_names(WIRE_ROLLBACK, "", to, name);
	assert_false(branch_chain_is_name(to));
	memset(longer, 'n', sizeof(longer));
	longer[BRANCH_CHAIN_NAME_MAX + 1] = '\0';
	read_names(WIRE_SNAPSHOT, longer, to, name);
	assert_false(branch_chain_is_name(name));
	read_names(WIRE_SNAPSHOT, longer + 1, to, name);
	assert_string_equal(name, longer + 1);
}

static void test_snapshot_take__upper_moves_below_an_empty_one(void **state)
{
	char err[1024], name[BRANCH_CHAIN_NAME_MAX + 1] = "";
	struct served *s = *state;
	struct fuse_kernel k;
	uint64_t node;
	char got[8];

	tree_put_text(s->d, "lower/file", "text");
	served_start(s, "", KEPT, MINOR, &k);
	node = fuse_kernel_node(&k, "file");
	assert_int_equal(fuse_kernel_write(&k, node, 0, "T", 1), 1);
	assert_true(tree_is_there(s->d, "upper/file"));
	if (take(s, "", name, err) < 0)
		fail_msg("%s", err);
	/* The server has chosen one. */
	assert_true(branch_chain_is_name(name));
	assert_false(tree_is_there(s->d, "upper/file"));
	assert_int_equal(fuse_kernel_read(&k, node, 0, got, sizeof(got)), 4);
	assert_memory_equal(got, "Text", 4);
	assert_int_equal(fuse_kernel_write(&k, node, 1, "E", 1), 1);
	assert_true(tree_is_there(s->d, "upper/file"));
	served_unmount(s, &k, 1);
}

static void test_snapshot_take__refusals_change_nothing_and_say_why(void **state)
{
	static const struct {
		const char *to, *name;
		int result;
		const char *part;
	} table[] = {
		{ "", "a/b", -EINVAL, "letters" },
		{ "", "-a", -EINVAL, "letters" },
		{ "none", "", -ESRCH, "no snapshot of this name" },
	};
	char err[1024], name[BRANCH_CHAIN_NAME_MAX + 1] = "one";
	struct served *s = *state;
	struct fuse_kernel k;

	assert_int_equal(take(s, "", name, err), -ENOENT);
	tree_put_text(s->d, "upper/file", "text");
	served_start(s, "", KEPT, MINOR, &k);
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		strcpy(name, table[i].name);
		assert_int_equal(take(s, table[i].to, name, err), table[i].result);
		assert_non_null(strstr(err, table[i].part));
		assert_true(tree_is_there(s->d, "upper/file"));
	}
	strcpy(name, "one");
	assert_int_equal(take(s, "", name, err), 0);
	assert_int_equal(take(s, "", name, err), -EEXIST);
	assert_non_null(strstr(err, "snapshot of this name"));
	served_unmount(s, &k, 1);
}

static void test_snapshot_take__chain_that_another_process_changes_is_left_alone(void **state)
{
	char err[1024], name[BRANCH_CHAIN_NAME_MAX + 1] = "one";
	struct served *s = *state;
	struct fuse_kernel k;
	int upper, lock;

	served_start(s, "", KEPT, MINOR, &k);
	assert_int_equal(take(s, "", name, err), 0);
	upper = openat(s->d->s.fd, "upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	lock = branch_dir_lock(upper);
	assert_true(lock >= 0);
	strcpy(name, "two");
	assert_int_equal(take(s, "", name, err), -EBUSY);
	assert_non_null(strstr(err, "another snapshot"));
	close(lock);
	close(upper);
	assert_int_equal(take(s, "", name, err), 0);
	served_unmount(s, &k, 1);
}

static void test_snapshot_take__read_only_mount_has_none(void **state)
{
	char err[1024], name[BRANCH_CHAIN_NAME_MAX + 1] = "one";
	struct served *s = *state;
	struct fuse_kernel k;

	served_start(s, "", KEPT ",ro", MINOR, &k);
	assert_int_equal(take(s, "", name, err), -EROFS);
	assert_non_null(strstr(err, "no upper"));
	served_unmount(s, &k, 1);
}

/* The mount must be opened anew afterwards. */
static void test_snapshot_take__too_few_descriptors_hold_up_nothing(void **state)
{
	char err[1024], name[BRANCH_CHAIN_NAME_MAX + 1] = "one";
	struct rlimit before, few;
	struct served *s = *state;
	struct fuse_kernel k;
	int fd, r;

	served_start(s, "", KEPT, MINOR, &k);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	few = before;
	few.rlim_cur = (rlim_t)fd + 20;
	close(fd);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	r = take(s, "", name, err);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(r, -EMFILE);
	assert_true(S_ISDIR(fuse_kernel_attr(&k, FUSE_ROOT_ID).mode));
	assert_int_equal(take(s, "", name, err), 0);
	served_unmount(s, &k, 1);
}

static void test_snapshot_take__server_without_a_supervisor_takes_none(void **state)
{
	char err[1024], name[BRANCH_CHAIN_NAME_MAX + 1] = "one";
	struct served *s = *state;
	struct fuse_kernel k;

	tree_put_text(s->d, "upper/file", "text");
	served_start(s, "", KEPT, MINOR, &k);
	assert_int_equal(take(s, "", name, err), -EOPNOTSUPP);
	assert_non_null(strstr(err, "supervisor"));
	assert_true(tree_is_there(s->d, "upper/file"));
	served_unmount(s, &k, 1);
}

#define row(test) cmocka_unit_test_setup_teardown(test, served_setup_saved, served_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_snapshot_take__names_of_both_messages),
		row(test_snapshot_take__upper_moves_below_an_empty_one),
		row(test_snapshot_take__refusals_change_nothing_and_say_why),
		row(test_snapshot_take__chain_that_another_process_changes_is_left_alone),
		row(test_snapshot_take__read_only_mount_has_none),
		row(test_snapshot_take__too_few_descriptors_hold_up_nothing),
		cmocka_unit_test_setup_teardown(
			test_snapshot_take__server_without_a_supervisor_takes_none, served_setup,
			served_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
