// SPDX-License-Identifier: Apache-2.0
#include "support/fuse_kernel.h"
#include "support/tree.h"

#include <string.h>

static ssize_t lookup(struct fuse_kernel *k, uint64_t dir, const char *name,
		      struct fuse_entry_out *ret)
{
	memset(ret, 0, sizeof(*ret));
	return fuse_kernel_ask_name(k, FUSE_LOOKUP, dir, name, ret, sizeof(*ret));
}

static ssize_t set(struct fuse_kernel *k, uint64_t node, const struct fuse_setattr_in *in,
		   struct fuse_attr *ret)
{
	struct fuse_attr_out out = { .attr_valid = 0 };
	ssize_t r = FUSE_KERNEL_ASK(k, FUSE_SETATTR, node, *in, &out, sizeof(out));

	if (ret)
		*ret = out.attr;
	return r < 0 ? r : 0;
}

static void test_op_meta__missing_name_is_remembered_only_with_a_timeout(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k = fuse_kernel_mount(d, "volatile");
	struct fuse_entry_out e;

	assert_int_equal(lookup(&k, FUSE_ROOT_ID, "missing", &e), sizeof(e));
	assert_int_equal(e.nodeid, 0);
	assert_true(e.entry_valid > 0);
	fuse_kernel_close(&k);
	tree_unmount(d);

	k = fuse_kernel_mount(d, "volatile,timeout=0");
	assert_int_equal(lookup(&k, FUSE_ROOT_ID, "missing", &e), -ENOENT);
	fuse_kernel_close(&k);
}

static void test_op_meta__name_that_is_too_long_is_told_apart_from_a_missing_one(void **state)
{
	struct fuse_kernel k = fuse_kernel_mount(*state, "volatile");
	char name[NAME_MAX + 2];
	struct fuse_entry_out e;

	memset(name, 'n', sizeof(name));
	name[NAME_MAX + 1] = '\0';
	assert_int_equal(lookup(&k, FUSE_ROOT_ID, name, &e), -ENAMETOOLONG);
	name[NAME_MAX] = '\0';
	assert_int_equal(lookup(&k, FUSE_ROOT_ID, name, &e), sizeof(e));
	assert_int_equal(e.nodeid, 0);
	fuse_kernel_close(&k);
}

static void test_op_meta__node_that_was_never_given_is_stale(void **state)
{
	static const uint64_t nodes[] = { 0, 2, 77, UINT32_MAX, UINT64_MAX, (uint64_t)1 << 32 };
	struct fuse_kernel k = fuse_kernel_mount(*state, "volatile");
	const struct fuse_getattr_in in = { .dummy = 0 };
	struct fuse_entry_out e;

	for (size_t i = 0; i < sizeof(nodes) / sizeof(*nodes); i++) {
		assert_int_equal(FUSE_KERNEL_ASK(&k, FUSE_GETATTR, nodes[i], in, NULL, 0), -ESTALE);
		assert_int_equal(lookup(&k, nodes[i], "name", &e), -ESTALE);
	}
	fuse_kernel_close(&k);
}

static void forget(struct fuse_kernel *k, uint64_t node, uint64_t n)
{
	const struct fuse_forget_in in = { .nlookup = n };

	fuse_kernel_tell(k, &(struct fuse_question){ .opcode = FUSE_FORGET,
						     .node = node,
						     .head = &in,
						     .head_len = sizeof(in) });
}

static void test_op_meta__node_lives_until_each_look_up_is_given_back(void **state)
{
	const struct fuse_getattr_in in = { .dummy = 0 };
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	uint64_t node;

	node = fuse_kernel_mount_file(&k, d);
	assert_int_equal(fuse_kernel_node(&k, "file"), node);
	forget(&k, node, 1);
	assert_int_equal(fuse_kernel_attr(&k, node).size, 4);
	forget(&k, node, 1);
	assert_int_equal(FUSE_KERNEL_ASK(&k, FUSE_GETATTR, node, in, NULL, 0), -ESTALE);
	/* Too many, or of a node that is none, do no harm. */
	forget(&k, node, 1000);
	forget(&k, 77777, UINT64_MAX);
	assert_int_equal(fuse_kernel_attr(&k, fuse_kernel_node(&k, "file")).size, 4);
	fuse_kernel_close(&k);
}

static void test_op_meta__many_are_forgotten_at_once(void **state)
{
	const struct fuse_getattr_in in = { .dummy = 0 };
	struct fuse_forget_one ones[2] = { { .nlookup = 1 }, { .nlookup = 1 } };
	const struct fuse_batch_forget_in head = { .count = 2 };
	struct tree_dirs *d = *state;
	struct fuse_kernel k;

	tree_put_text(d, "lower/a", "a");
	tree_put_text(d, "lower/b", "b");
	k = fuse_kernel_mount(d, "volatile");
	ones[0].nodeid = fuse_kernel_node(&k, "a");
	ones[1].nodeid = fuse_kernel_node(&k, "b");
	fuse_kernel_tell(&k, &(struct fuse_question){ .opcode = FUSE_BATCH_FORGET,
						      .head = &head,
						      .head_len = sizeof(head),
						      .rest = ones,
						      .rest_len = sizeof(ones) });
	for (int i = 0; i < 2; i++)
		assert_int_equal(FUSE_KERNEL_ASK(&k, FUSE_GETATTR, ones[i].nodeid, in, NULL, 0),
				 -ESTALE);
	fuse_kernel_close(&k);
}

static void test_op_meta__size_mode_and_times_are_set_in_the_upper(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_attr attr;
	struct fuse_kernel k;
	uint64_t node;

	tree_put_text(d, "lower/file", "a longer text");
	k = fuse_kernel_mount(d, "volatile");
	node = fuse_kernel_node(&k, "file");
	assert_int_equal(
		set(&k, node,
		    &(struct fuse_setattr_in){ .valid = FATTR_SIZE | FATTR_MODE | FATTR_MTIME,
					       .size = 3,
					       .mode = S_IFREG | 0640,
					       .mtime = 1000,
					       .mtimensec = 7 },
		    &attr),
		0);
	assert_int_equal(attr.size, 3);
	assert_int_equal(attr.mode, S_IFREG | 0640);
	assert_int_equal(attr.mtime, 1000);
	assert_int_equal(attr.mtimensec, 7);
	tree_expect_text(d, "file", "a l");
	assert_true(tree_is_there(d, "upper/file"));
	fuse_kernel_close(&k);
}

static void test_op_meta__size_of_what_is_no_file_is_refused(void **state)
{
	const struct fuse_setattr_in in = { .valid = FATTR_SIZE, .size = 1 };
	struct tree_dirs *d = *state;
	struct fuse_kernel k;

	tree_put_dir(d, "lower/dir");
	k = fuse_kernel_mount(d, "volatile");
	assert_int_equal(set(&k, fuse_kernel_node(&k, "dir"), &in, NULL), -EINVAL);
	/* Nothing of it is copied up. */
	assert_false(tree_is_there(d, "upper/dir"));
	fuse_kernel_close(&k);
}

static void test_op_meta__failed_change_has_the_kernel_drop_the_attributes(void **state)
{
	const struct fuse_setattr_in in = { .valid = FATTR_SIZE, .size = INT64_MAX };
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	uint64_t node;

	node = fuse_kernel_mount_file(&k, d);
	assert_int_equal(k.n_notified, 0);
	assert_true(set(&k, node, &in, NULL) < 0);
	assert_true(k.n_notified > 0);
	assert_int_equal(k.last_notified, FUSE_NOTIFY_INVAL_INODE);
	fuse_kernel_close(&k);
}

static void test_op_meta__times_that_are_the_same_copy_up_nothing(void **state)
{
	struct fuse_setattr_in in = { .valid = FATTR_MTIME | FATTR_CTIME };
	struct tree_dirs *d = *state;
	struct fuse_attr attr;
	struct fuse_kernel k;
	uint64_t node;

	node = fuse_kernel_mount_file(&k, d);
	attr = fuse_kernel_attr(&k, node);
	in.mtime = attr.mtime;
	in.mtimensec = attr.mtimensec;
	assert_int_equal(set(&k, node, &in, NULL), 0);
	assert_false(tree_is_there(d, "upper/file"));
	in.mtime++;
	assert_int_equal(set(&k, node, &in, NULL), 0);
	assert_true(tree_is_there(d, "upper/file"));
	assert_int_equal(fuse_kernel_attr(&k, node).mtime, in.mtime);
	fuse_kernel_close(&k);
}

static void test_op_meta__mount_that_is_read_only_takes_no_change(void **state)
{
	const struct fuse_setattr_in in = { .valid = FATTR_MODE, .mode = S_IFREG | 0600 };
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	uint64_t node;

	tree_put_text(d, "lower/file", "text");
	k = fuse_kernel_mount(d, "volatile,ro");
	node = fuse_kernel_node(&k, "file");
	assert_int_equal(set(&k, node, &in, NULL), -EROFS);
	assert_false(tree_is_there(d, "upper/file"));
	fuse_kernel_close(&k);
}

static void test_op_meta__quota_is_the_size_of_the_file_system(void **state)
{
	struct fuse_statfs_out out;
	struct fuse_kernel k = fuse_kernel_mount(*state, "volatile,size=64m,inodes=1000");

	assert_int_equal(fuse_kernel_ask(&k,
					 &(struct fuse_question){ .opcode = FUSE_STATFS,
								  .node = FUSE_ROOT_ID },
					 &out, sizeof(out)),
			 sizeof(out));
	assert_true(out.st.frsize > 0);
	assert_true(out.st.blocks * out.st.frsize <= 64u << 20);
	assert_true(out.st.bavail <= out.st.blocks);
	assert_true(out.st.bfree <= out.st.bavail);
	assert_int_equal(out.st.files, 1000);
	assert_true(out.st.ffree < 1000);
	fuse_kernel_close(&k);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_op_meta__missing_name_is_remembered_only_with_a_timeout),
		row(test_op_meta__name_that_is_too_long_is_told_apart_from_a_missing_one),
		row(test_op_meta__node_that_was_never_given_is_stale),
		row(test_op_meta__node_lives_until_each_look_up_is_given_back),
		row(test_op_meta__many_are_forgotten_at_once),
		row(test_op_meta__size_mode_and_times_are_set_in_the_upper),
		row(test_op_meta__size_of_what_is_no_file_is_refused),
		row(test_op_meta__failed_change_has_the_kernel_drop_the_attributes),
		row(test_op_meta__times_that_are_the_same_copy_up_nothing),
		row(test_op_meta__mount_that_is_read_only_takes_no_change),
		row(test_op_meta__quota_is_the_size_of_the_file_system),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
