// SPDX-License-Identifier: Apache-2.0
#include "support/fuse_kernel.h"
#include "support/tree.h"

#include "veneer/mount/workdir.h"

#include <string.h>

static ssize_t get(struct fuse_kernel *k, uint64_t node, const char *name, void *ret, uint32_t size)
{
	const struct fuse_getxattr_in in = { .size = size };

	return FUSE_KERNEL_ASK_WITH(k, FUSE_GETXATTR, node, in, name, strlen(name) + 1, ret, size);
}

/* The length that a request of no room is answered with. */
static ssize_t length(struct fuse_kernel *k, uint64_t node, const char *name)
{
	const struct fuse_getxattr_in in = { .size = 0 };
	struct fuse_getxattr_out out = { .size = 0 };
	ssize_t r = FUSE_KERNEL_ASK_WITH(k, FUSE_GETXATTR, node, in, name, strlen(name) + 1, &out,
					 sizeof(out));

	return r < 0 ? r : (ssize_t)out.size;
}

/* Without FUSE_SETXATTR_EXT the request has the short head. */
static ssize_t set(struct fuse_kernel *k, uint64_t node, const char *name, const char *value,
		   uint32_t flags)
{
	struct {
		uint32_t size, flags;
	} in = { (uint32_t)strlen(value), flags };
	char rest[256];
	const size_t len = strlen(name) + 1;

	assert_true(len + strlen(value) <= sizeof(rest));
	memcpy(rest, name, len);
	memcpy(rest + len, value, strlen(value));
	return FUSE_KERNEL_ASK_WITH(k, FUSE_SETXATTR, node, in, rest, len + strlen(value), NULL, 0);
}

static void test_op_xattr__value_is_stored_in_the_upper_and_read_within_its_room(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	char value[16] = "";
	uint64_t node;

	node = fuse_kernel_mount_file(&k, d);
	assert_int_equal(get(&k, node, "user.a", value, sizeof(value)), -ENODATA);
	assert_int_equal(set(&k, node, "user.a", "value", 0), 0);
	assert_int_equal(length(&k, node, "user.a"), 5);
	assert_int_equal(get(&k, node, "user.a", value, 4), -ERANGE);
	assert_int_equal(get(&k, node, "user.a", value, 5), 5);
	assert_memory_equal(value, "value", 5);
	assert_true(tree_is_there(d, "upper/file"));
	fuse_kernel_close(&k);
}

static void test_op_xattr__create_and_replace_are_told_apart(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	char value[8];
	uint64_t node;

	node = fuse_kernel_mount_file(&k, d);
	assert_int_equal(set(&k, node, "user.a", "1", XATTR_REPLACE), -ENODATA);
	assert_int_equal(set(&k, node, "user.a", "2", XATTR_CREATE), 0);
	assert_int_equal(set(&k, node, "user.a", "3", XATTR_CREATE), -EEXIST);
	assert_int_equal(get(&k, node, "user.a", value, sizeof(value)), 1);
	assert_int_equal(value[0], '2');
	fuse_kernel_close(&k);
}

static void test_op_xattr__list_has_no_attribute_of_the_union(void **state)
{
	const struct fuse_getxattr_in in = { .size = 4096 }, none = { .size = 0 },
				      few = { .size = 3 };
	struct fuse_getxattr_out out = { .size = 0 };
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	char list[4096] = "";
	uint64_t node;
	ssize_t n;

	free(tree_put_pattern(d, "lower/file", 100000, 1));
	k = fuse_kernel_mount(d, "volatile");
	node = fuse_kernel_node(&k, "file");
	/* Makes it a partial file, which has a mark. */
	assert_int_equal(fuse_kernel_write(&k, node, 0, "x", 1), 1);
	assert_int_equal(set(&k, node, "user.seen", "1", 0), 0);
	n = FUSE_KERNEL_ASK(&k, FUSE_LISTXATTR, node, in, list, sizeof(list));
	assert_int_equal(n, sizeof("user.seen"));
	assert_memory_equal(list, "user.seen", sizeof("user.seen"));
	assert_int_equal(FUSE_KERNEL_ASK(&k, FUSE_LISTXATTR, node, none, &out, sizeof(out)),
			 sizeof(out));
	assert_int_equal(out.size, n);
	assert_int_equal(FUSE_KERNEL_ASK(&k, FUSE_LISTXATTR, node, few, list, sizeof(list)),
			 -ERANGE);
	assert_true(get(&k, node, "user.veneer.partial", list, 100) < 0);
	fuse_kernel_close(&k);
}

static void test_op_xattr__removal_of_none_is_an_error(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	char value[8];
	uint64_t node;

	node = fuse_kernel_mount_file(&k, d);
	assert_int_equal(fuse_kernel_ask_name(&k, FUSE_REMOVEXATTR, node, "user.a", NULL, 0),
			 -ENODATA);
	assert_int_equal(set(&k, node, "user.a", "1", 0), 0);
	assert_int_equal(fuse_kernel_ask_name(&k, FUSE_REMOVEXATTR, node, "user.a", NULL, 0), 0);
	assert_int_equal(get(&k, node, "user.a", value, sizeof(value)), -ENODATA);
	fuse_kernel_close(&k);
}

static void test_op_xattr__mount_without_attributes_has_the_kernel_stop_asking(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	char value[8];
	uint64_t node;

	tree_put_text(d, "lower/file", "text");
	k = fuse_kernel_mount(d, "volatile,noxattrs=1");
	assert_true(d->m.opts.has_no_xattrs);
	node = fuse_kernel_node(&k, "file");
	assert_int_equal(get(&k, node, "user.a", value, sizeof(value)), -ENOSYS);
	assert_int_equal(set(&k, node, "user.a", "1", 0), -ENOSYS);
	assert_int_equal(fuse_kernel_ask_name(&k, FUSE_REMOVEXATTR, node, "user.a", NULL, 0),
			 -ENOSYS);
	fuse_kernel_close(&k);
}

/* A path of the host is for processes that may unmount alone. */
static void test_op_xattr__work_directory_is_told_to_its_user_alone(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k = fuse_kernel_mount(d, "volatile");
	char text[WORKDIR_HANDLE_SIZE];
	ssize_t len = length(&k, FUSE_ROOT_ID, WORKDIR_ATTR);

	assert_true(len > 0);
	assert_int_equal(get(&k, FUSE_ROOT_ID, WORKDIR_ATTR, text, (uint32_t)len - 1), -ERANGE);
	assert_int_equal(get(&k, FUSE_ROOT_ID, WORKDIR_ATTR, text, sizeof(text)), len);
	k.uid = 12345;
	assert_int_equal(length(&k, FUSE_ROOT_ID, WORKDIR_ATTR), -ENODATA);
	k.uid = geteuid();
	k.pid = 0; /* of another process namespace */
	assert_int_equal(length(&k, FUSE_ROOT_ID, WORKDIR_ATTR), -ENODATA);
	fuse_kernel_close(&k);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_op_xattr__value_is_stored_in_the_upper_and_read_within_its_room),
		row(test_op_xattr__create_and_replace_are_told_apart),
		row(test_op_xattr__list_has_no_attribute_of_the_union),
		row(test_op_xattr__removal_of_none_is_an_error),
		row(test_op_xattr__mount_without_attributes_has_the_kernel_stop_asking),
		row(test_op_xattr__work_directory_is_told_to_its_user_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
