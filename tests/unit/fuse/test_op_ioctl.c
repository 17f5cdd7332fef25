// SPDX-License-Identifier: Apache-2.0
#include "support/fuse_kernel.h"
#include "support/tree.h"

#include <linux/fs.h>
#include <sys/ioctl.h>

struct answer {
	struct fuse_ioctl_out out;
	union {
		unsigned flags;
		struct fsxattr x;
	};
};

static ssize_t ask(struct fuse_kernel *k, uint64_t node, unsigned long cmd, uint32_t room,
		   struct answer *ret)
{
	const struct fuse_ioctl_in in = { .cmd = (uint32_t)cmd, .out_size = room };

	return FUSE_KERNEL_ASK(k, FUSE_IOCTL, node, in, ret, sizeof(*ret));
}

static void test_op_ioctl__flags_are_read_and_never_set(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	struct answer a;
	uint64_t node;

	tree_put_text(d, "lower/file", "text");
	tree_mount(d, "volatile");
	fuse_kernel_open(&k, 0);
	fuse_kernel_start(&k, &d->m);
	node = fuse_kernel_node(&k, "file");
	assert_int_equal(ask(&k, node, FS_IOC_GETFLAGS, sizeof(unsigned), &a),
			 sizeof(a.out) + sizeof(unsigned));
	assert_int_equal(a.flags & ~(unsigned)(FS_IMMUTABLE_FL | FS_APPEND_FL | FS_NODUMP_FL), 0);
	assert_int_equal(ask(&k, node, FS_IOC_FSGETXATTR, sizeof(struct fsxattr), &a),
			 sizeof(a.out) + sizeof(struct fsxattr));
	assert_int_equal(a.x.fsx_extsize, 0);
	assert_int_equal(ask(&k, node, FS_IOC_SETFLAGS, 0, &a), -EOPNOTSUPP);
	assert_int_equal(ask(&k, node, FS_IOC_FSSETXATTR, 0, &a), -EOPNOTSUPP);
	/* Not ENOSYS, after which the kernel would ask for nothing. */
	assert_int_equal(ask(&k, node, FIOQSIZE, 0, &a), -ENOTTY);
	assert_int_equal(ask(&k, node, 0xdeadbeef, 1000, &a), -ENOTTY);
	fuse_kernel_close(&k);
}

static void test_op_ioctl__answer_that_has_no_room_is_refused(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	struct answer a;

	tree_mount(d, "volatile");
	fuse_kernel_open(&k, 0);
	fuse_kernel_start(&k, &d->m);
	assert_int_equal(ask(&k, FUSE_ROOT_ID, FS_IOC_GETFLAGS, 0, &a), -EINVAL);
	assert_int_equal(ask(&k, FUSE_ROOT_ID, FS_IOC_GETFLAGS, sizeof(unsigned) - 1, &a), -EINVAL);
	assert_int_equal(ask(&k, FUSE_ROOT_ID, FS_IOC_FSGETXATTR, sizeof(unsigned), &a), -EINVAL);
	assert_int_equal(ask(&k, 4711, FS_IOC_GETFLAGS, sizeof(unsigned), &a), -ESTALE);
	fuse_kernel_close(&k);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_op_ioctl__flags_are_read_and_never_set),
		row(test_op_ioctl__answer_that_has_no_room_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
