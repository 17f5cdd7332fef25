// SPDX-License-Identifier: Apache-2.0
#include "support/fuse_kernel.h"
#include "support/tree.h"

#include "fuse/op.h"

#include <linux/falloc.h>

#define STRANGER 4711u

static struct fuse_kernel start(struct tree_dirs *d)
{
	struct fuse_kernel k;

	tree_put_text(d, "lower/program", "a program");
	tree_put_text(d, "lower/plain", "text");
	assert_int_equal(fchmodat(d->s.fd, "lower/program", 06755, 0), 0);
	tree_mount(d, "volatile");
	fuse_kernel_open(&k, FUSE_HANDLE_KILLPRIV_V2);
	fuse_kernel_start(&k, &d->m);
	return k;
}

static mode_t mode_of(struct fuse_kernel *k, uint64_t node)
{
	return fuse_kernel_attr(k, node).mode & 07777;
}

static void test_killpriv__write_keeps_the_bits_unless_its_flag_says_so(void **state)
{
	struct fuse_write_in in = { .size = 1 };
	struct fuse_kernel k = start(*state);
	const uint64_t node = fuse_kernel_node(&k, "program");
	struct fuse_write_out out;

	assert_int_equal(fuse_kernel_write(&k, node, 0, "A", 1), 1);
	assert_int_equal(mode_of(&k, node), 06755);
	in.write_flags = FUSE_WRITE_KILL_SUIDGID;
	k.n_notified = 0;
	assert_int_equal(FUSE_KERNEL_ASK_WITH(&k, FUSE_WRITE, node, in, "B", 1, &out, sizeof(out)),
			 sizeof(out));
	assert_int_equal(mode_of(&k, node), 0755);
	/* It executes files by the mode that it knows. */
	assert_true(k.n_notified > 0);
	tree_expect_text(*state, "program", "B program");
	fuse_kernel_close(&k);
}

static void test_killpriv__truncation_likewise(void **state)
{
	struct fuse_setattr_in in = { .valid = FATTR_SIZE, .size = 5 };
	struct fuse_kernel k = start(*state);
	const uint64_t node = fuse_kernel_node(&k, "program");
	struct fuse_attr_out out;

	assert_int_equal(FUSE_KERNEL_ASK(&k, FUSE_SETATTR, node, in, &out, sizeof(out)),
			 sizeof(out));
	assert_int_equal(out.attr.mode & 07777, 06755);
	in.valid |= FATTR_KILL_SUIDGID;
	in.size = 3;
	assert_int_equal(FUSE_KERNEL_ASK(&k, FUSE_SETATTR, node, in, &out, sizeof(out)),
			 sizeof(out));
	assert_int_equal(out.attr.mode & 07777, 0755);
	assert_int_equal(out.attr.size, 3);
	fuse_kernel_close(&k);
}

static ssize_t punch(struct fuse_kernel *k, uint64_t node)
{
	const struct fuse_fallocate_in in = { .length = 1,
					      .mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE };

	return FUSE_KERNEL_ASK(k, FUSE_FALLOCATE, node, in, NULL, 0);
}

/* Such a request has no flag: the process that is named says it. */
static void test_killpriv__fallocate_keeps_them_for_a_privileged_process_alone(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k = start(d);
	const uint64_t node = fuse_kernel_node(&k, "program");

	if (geteuid() == 0 && d->t->can.has_trusted_xattr) {
		assert_int_equal(punch(&k, node), 0);
		assert_int_equal(mode_of(&k, node), 06755);
	}
	k.pid = 0; /* of another process namespace */
	k.uid = k.gid = STRANGER;
	assert_int_equal(punch(&k, node), 0);
	assert_int_equal(mode_of(&k, node), 0755);
	fuse_kernel_close(&k);
}

/* SETATTR of nothing: comes before a write, and from a chown(2) of nothing by any user. */
static void test_killpriv__change_of_nothing_clears_them_for_the_owner_alone(void **state)
{
	const struct fuse_setattr_in in = { .valid = 0 };
	struct tree_dirs *d = *state;
	struct fuse_kernel k = start(d);
	const uint64_t node = fuse_kernel_node(&k, "program");
	struct fuse_attr_out out;

	k.pid = 0;
	k.uid = k.gid = STRANGER;
	assert_int_equal(FUSE_KERNEL_ASK(&k, FUSE_SETATTR, node, in, &out, sizeof(out)),
			 sizeof(out));
	assert_int_equal(out.attr.mode & 07777, 06755);
	assert_false(tree_is_there(d, "upper/program"));
	k.uid = geteuid();
	assert_int_equal(FUSE_KERNEL_ASK(&k, FUSE_SETATTR, node, in, &out, sizeof(out)),
			 sizeof(out));
	assert_int_equal(out.attr.mode & 07777, 0755);
	fuse_kernel_close(&k);
}

static void test_killpriv__file_without_bits_is_not_copied_up_for_nothing(void **state)
{
	const struct fuse_setattr_in in = { .valid = 0 };
	struct tree_dirs *d = *state;
	struct fuse_kernel k = start(d);
	const uint64_t node = fuse_kernel_node(&k, "plain");

	assert_true(FUSE_KERNEL_ASK(&k, FUSE_SETATTR, node, in, NULL, 0) > 0);
	assert_true(FUSE_KERNEL_ASK(&k, FUSE_SETATTR, FUSE_ROOT_ID, in, NULL, 0) > 0);
	assert_false(tree_is_there(d, "upper/plain"));
	fuse_kernel_close(&k);
}

static void test_killpriv__another_owner_loses_them(void **state)
{
	const struct fuse_setattr_in in = { .valid = FATTR_UID, .uid = geteuid() };
	struct fuse_kernel k = start(*state);
	const uint64_t node = fuse_kernel_node(&k, "program");
	struct fuse_attr_out out;

	assert_int_equal(FUSE_KERNEL_ASK(&k, FUSE_SETATTR, node, in, &out, sizeof(out)),
			 sizeof(out));
	assert_int_equal(out.attr.mode & 06000, 0);
	fuse_kernel_close(&k);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_killpriv__write_keeps_the_bits_unless_its_flag_says_so),
		row(test_killpriv__truncation_likewise),
		row(test_killpriv__fallocate_keeps_them_for_a_privileged_process_alone),
		row(test_killpriv__change_of_nothing_clears_them_for_the_owner_alone),
		row(test_killpriv__file_without_bits_is_not_copied_up_for_nothing),
		row(test_killpriv__another_owner_loses_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
