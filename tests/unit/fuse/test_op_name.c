// SPDX-License-Identifier: Apache-2.0
#include "support/fuse_kernel.h"
#include "support/tree.h"

#include <linux/fs.h>
#include <string.h>
#include <sys/sysmacros.h>

static ssize_t rename_names(struct fuse_kernel *k, const char *from, const char *to, uint32_t flags)
{
	const struct fuse_rename2_in in = { .newdir = FUSE_ROOT_ID, .flags = flags };
	char names[64];
	size_t len = strlen(from) + 1;

	strcpy(names, from);
	strcpy(names + len, to);
	return FUSE_KERNEL_ASK_WITH(k, FUSE_RENAME2, FUSE_ROOT_ID, in, names, len + strlen(to) + 1,
				    NULL, 0);
}

static ssize_t link_name(struct fuse_kernel *k, uint64_t node, const char *to,
			 struct fuse_entry_out *ret)
{
	const struct fuse_link_in in = { .oldnodeid = node };

	return FUSE_KERNEL_ASK_WITH(k, FUSE_LINK, FUSE_ROOT_ID, in, to, strlen(to) + 1, ret,
				    sizeof(*ret));
}

static void test_op_name__entries_are_made_with_the_callers_mask_and_owner(void **state)
{
	const struct fuse_mkdir_in dir = { .mode = 07777, .umask = 022 };
	const struct fuse_mknod_in fifo = { .mode = S_IFIFO | 0666, .umask = 027 };
	struct fuse_kernel k = fuse_kernel_mount(*state, "volatile");
	struct fuse_entry_out e;

	assert_int_equal(
		FUSE_KERNEL_ASK_WITH(&k, FUSE_MKDIR, FUSE_ROOT_ID, dir, "dir", 4, &e, sizeof(e)),
		sizeof(e));
	assert_int_equal(e.attr.mode & ~07000u, S_IFDIR | 0755);
	assert_int_equal(e.attr.uid, k.uid);
	assert_true(e.nodeid > FUSE_ROOT_ID);
	assert_int_equal(
		FUSE_KERNEL_ASK_WITH(&k, FUSE_MKNOD, e.nodeid, fifo, "fifo", 5, &e, sizeof(e)),
		sizeof(e));
	assert_int_equal(e.attr.mode, S_IFIFO | 0640);
	tree_expect_names(*state, "dir", "fifo");
	fuse_kernel_close(&k);
}

static void test_op_name__name_that_is_there_is_not_made_again(void **state)
{
	const struct fuse_mknod_in in = { .mode = S_IFREG | 0644 };
	struct tree_dirs *d = *state;
	struct fuse_kernel k;

	tree_put_text(d, "lower/file", "text");
	k = fuse_kernel_mount(d, "volatile");
	assert_int_equal(FUSE_KERNEL_ASK_WITH(&k, FUSE_MKNOD, FUSE_ROOT_ID, in, "file", 5, NULL, 0),
			 -EEXIST);
	tree_expect_text(d, "file", "text");
	fuse_kernel_close(&k);
}

/* The kernel then makes files by MKNOD, which takes one request less. */
static void test_op_name__create_is_answered_only_where_opens_are(void **state)
{
	const struct fuse_create_in in = { .flags = O_RDWR | O_CREAT, .mode = S_IFREG | 0644 };
	struct tree_dirs *d = *state;
	struct fuse_kernel k = fuse_kernel_mount(d, "volatile,io=cached");

	assert_int_equal(
		FUSE_KERNEL_ASK_WITH(&k, FUSE_CREATE, FUSE_ROOT_ID, in, "file", 5, NULL, 0),
		-ENOSYS);
	assert_false(tree_is_there(d, "upper/file"));
	fuse_kernel_close(&k);
}

static void test_op_name__symbolic_link_has_its_target(void **state)
{
	static const char names[] = "link\0target/of it";
	struct fuse_kernel k = fuse_kernel_mount(*state, "volatile");
	struct fuse_entry_out e;
	char target[64] = "";

	assert_int_equal(fuse_kernel_ask(&k,
					 &(struct fuse_question){ .opcode = FUSE_SYMLINK,
								  .node = FUSE_ROOT_ID,
								  .rest = names,
								  .rest_len = sizeof(names) },
					 &e, sizeof(e)),
			 sizeof(e));
	assert_int_equal(e.attr.mode & S_IFMT, S_IFLNK);
	assert_int_equal(fuse_kernel_ask(&k,
					 &(struct fuse_question){ .opcode = FUSE_READLINK,
								  .node = e.nodeid },
					 target, sizeof(target)),
			 strlen("target/of it"));
	assert_string_equal(target, "target/of it");
	fuse_kernel_close(&k);
}

static void test_op_name__link_is_another_name_of_the_same_node(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_entry_out e;
	struct fuse_kernel k;
	uint64_t node;

	node = fuse_kernel_mount_file(&k, d);
	assert_int_equal(link_name(&k, node, "again", &e), sizeof(e));
	assert_int_equal(e.nodeid, node);
	assert_int_equal(e.attr.nlink, 2);
	assert_int_equal(link_name(&k, node, "again", &e), -EEXIST);
	tree_expect_text(d, "again", "text");
	fuse_kernel_close(&k);
}

static void test_op_name__removal_tells_files_and_directories_apart(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;

	tree_put_text(d, "lower/file", "text");
	tree_put_text(d, "lower/full/file", "text");
	tree_put_dir(d, "lower/empty");
	k = fuse_kernel_mount(d, "volatile");
	assert_int_equal(fuse_kernel_ask_name(&k, FUSE_RMDIR, FUSE_ROOT_ID, "file", NULL, 0),
			 -ENOTDIR);
	assert_int_equal(fuse_kernel_ask_name(&k, FUSE_UNLINK, FUSE_ROOT_ID, "full", NULL, 0),
			 -EISDIR);
	assert_int_equal(fuse_kernel_ask_name(&k, FUSE_RMDIR, FUSE_ROOT_ID, "full", NULL, 0),
			 -ENOTEMPTY);
	assert_int_equal(fuse_kernel_ask_name(&k, FUSE_UNLINK, FUSE_ROOT_ID, "none", NULL, 0),
			 -ENOENT);
	assert_int_equal(fuse_kernel_ask_name(&k, FUSE_UNLINK, FUSE_ROOT_ID, "file", NULL, 0), 0);
	assert_int_equal(fuse_kernel_ask_name(&k, FUSE_RMDIR, FUSE_ROOT_ID, "empty", NULL, 0), 0);
	tree_expect_names(d, "", "full");
	/* Of the lower layer nothing is gone. */
	assert_true(tree_is_there(d, "lower/file"));
	fuse_kernel_close(&k);
}

static void test_op_name__rename_replaces_exchanges_or_refuses(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;

	tree_put_text(d, "lower/a", "of a");
	tree_put_text(d, "lower/b", "of b");
	k = fuse_kernel_mount(d, "volatile");
	assert_int_equal(rename_names(&k, "a", "b", RENAME_NOREPLACE), -EEXIST);
	assert_int_equal(rename_names(&k, "none", "b", 0), -ENOENT);
	assert_int_equal(rename_names(&k, "a", "none", RENAME_EXCHANGE), -ENOENT);
	assert_int_equal(rename_names(&k, "a", "b", RENAME_EXCHANGE), 0);
	tree_expect_text(d, "a", "of b");
	assert_int_equal(rename_names(&k, "a", "b", 0), 0);
	tree_expect_text(d, "b", "of b");
	tree_expect_names(d, "", "b");
	fuse_kernel_close(&k);
}

/* The kernel looks at types first, by the names that it knows: others after a rollback. */
static void test_op_name__rename_over_another_type_changes_nothing(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;

	tree_put_text(d, "lower/file", "text");
	tree_put_text(d, "lower/full/file", "text");
	tree_put_dir(d, "lower/empty");
	tree_put_text(d, "upper/new", "text");
	tree_put_dir(d, "upper/newdir");
	k = fuse_kernel_mount(d, "volatile");
	assert_int_equal(rename_names(&k, "file", "full", 0), -EISDIR);
	assert_int_equal(rename_names(&k, "new", "empty", 0), -EISDIR);
	assert_int_equal(rename_names(&k, "newdir", "full", 0), -ENOTEMPTY);
	assert_int_equal(rename_names(&k, "newdir", "file", 0), -ENOTDIR);
	assert_int_equal(rename_names(&k, "newdir", "new", 0), -ENOTDIR);
	tree_expect_text(d, "full/file", "text");
	tree_expect_names(d, "", "empty file full new newdir");
	fuse_kernel_close(&k);
}

/* Names as they were before a rollback may be the ones that a program means. */
static void test_op_name__rename_after_a_rollback_needs_names_that_were_looked_up(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;

	tree_put_text(d, "lower/a", "of a");
	tree_put_text(d, "lower/b", "of b");
	k = fuse_kernel_mount(d, "volatile");
	d->m.checks_renames = true;
	assert_int_equal(rename_names(&k, "a", "c", 0), -ESTALE);
	fuse_kernel_node(&k, "a");
	assert_int_equal(rename_names(&k, "a", "b", RENAME_EXCHANGE), -ESTALE);
	assert_int_equal(rename_names(&k, "a", "c", 0), 0);
	tree_expect_names(d, "", "b c");
	fuse_kernel_close(&k);
}

static void test_op_name__read_only_mount_takes_no_name(void **state)
{
	const struct fuse_mkdir_in in = { .mode = 0755 };
	struct tree_dirs *d = *state;
	struct fuse_kernel k;

	tree_put_text(d, "lower/a", "of a");
	k = fuse_kernel_mount(d, "volatile,ro");
	assert_int_equal(FUSE_KERNEL_ASK_WITH(&k, FUSE_MKDIR, FUSE_ROOT_ID, in, "dir", 4, NULL, 0),
			 -EROFS);
	assert_int_equal(fuse_kernel_ask_name(&k, FUSE_UNLINK, FUSE_ROOT_ID, "a", NULL, 0), -EROFS);
	assert_int_equal(rename_names(&k, "a", "b", 0), -EROFS);
	fuse_kernel_close(&k);
}

/* Whiteouts of the other dialect are names that a program must not make. */
static void test_op_name__names_that_mean_something_to_the_layers_are_refused(void **state)
{
	const struct fuse_mknod_in whiteout = { .mode = S_IFCHR, .rdev = 0 };
	struct tree_dirs *d = *state;
	struct fuse_kernel k = fuse_kernel_mount(d, "volatile");
	ssize_t r = FUSE_KERNEL_ASK_WITH(&k, FUSE_MKNOD, FUSE_ROOT_ID, whiteout, "dev", 4, NULL, 0);

	assert_true(r == -EPERM || r == -EOPNOTSUPP || r == -EINVAL);
	assert_false(tree_is_there(d, "upper/dev"));
	fuse_kernel_close(&k);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_op_name__entries_are_made_with_the_callers_mask_and_owner),
		row(test_op_name__name_that_is_there_is_not_made_again),
		row(test_op_name__create_is_answered_only_where_opens_are),
		row(test_op_name__symbolic_link_has_its_target),
		row(test_op_name__link_is_another_name_of_the_same_node),
		row(test_op_name__removal_tells_files_and_directories_apart),
		row(test_op_name__rename_replaces_exchanges_or_refuses),
		row(test_op_name__rename_over_another_type_changes_nothing),
		row(test_op_name__rename_after_a_rollback_needs_names_that_were_looked_up),
		row(test_op_name__read_only_mount_takes_no_name),
		row(test_op_name__names_that_mean_something_to_the_layers_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
