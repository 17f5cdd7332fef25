// SPDX-License-Identifier: Apache-2.0
#include "support/fuse_kernel.h"
#include "support/tree.h"

#include <string.h>

#define FILES 50

static void put_files(struct tree_dirs *d)
{
	for (int n = 0; n < FILES; n++) {
		char path[64];

		snprintf(path, sizeof(path), "lower/dir/file%02d", n);
		tree_put_text(d, path, "text");
	}
	tree_put_dir(d, "lower/dir/sub");
}

static ssize_t list(struct fuse_kernel *k, uint32_t opcode, uint64_t node, uint64_t off, void *ret,
		    size_t size)
{
	const struct fuse_read_in in = { .offset = off, .size = (uint32_t)size };

	return FUSE_KERNEL_ASK(k, opcode, node, in, ret, size);
}

/* The names that a listing in pieces of this size gives, the dots included; each once. */
static unsigned count_names(struct fuse_kernel *k, uint64_t node, size_t size)
{
	bool seen[FILES] = { false };
	char buf[8192];
	unsigned n = 0;
	uint64_t off = 0;
	ssize_t got;

	while ((got = list(k, FUSE_READDIR, node, off, buf, size)) > 0) {
		for (ssize_t at = 0; at < got;) {
			const struct fuse_dirent *e = (const void *)(buf + at);
			int number = -1;

			assert_true(e->off > off);
			if (e->namelen == 6 && !memcmp(e->name, "file", 4))
				number = atoi((char[]){ e->name[4], e->name[5], '\0' });
			if (number >= 0) {
				assert_false(seen[number]);
				seen[number] = true;
			}
			off = e->off;
			n++;
			at += (ssize_t)FUSE_DIRENT_SIZE(e);
		}
	}
	assert_int_equal(got, 0);
	return n;
}

static void test_op_dir__pieces_of_any_size_give_each_name_once(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	uint64_t node;

	put_files(d);
	k = fuse_kernel_mount(d, "volatile");
	node = fuse_kernel_node(&k, "dir");
	for (size_t size = 40; size <= 8192; size = size * 3 / 2)
		assert_int_equal(count_names(&k, node, size), FILES + 3);
	fuse_kernel_close(&k);
}

static void test_op_dir__no_room_for_a_name_gives_none(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	char buf[64];
	uint64_t node;

	put_files(d);
	k = fuse_kernel_mount(d, "volatile");
	node = fuse_kernel_node(&k, "dir");
	assert_int_equal(list(&k, FUSE_READDIR, node, 0, buf, 0), 0);
	assert_int_equal(list(&k, FUSE_READDIR, node, 0, buf, 31), 0);
	assert_int_equal(list(&k, FUSE_READDIRPLUS, node, 2, buf, sizeof(buf)), 0);
	fuse_kernel_close(&k);
}

static void test_op_dir__offset_of_no_entry_is_the_end(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	char buf[4096];
	uint64_t node;

	put_files(d);
	k = fuse_kernel_mount(d, "volatile");
	node = fuse_kernel_node(&k, "dir");
	assert_int_equal(list(&k, FUSE_READDIR, node, INT64_MAX, buf, sizeof(buf)), 0);
	assert_int_equal(list(&k, FUSE_READDIR, 4711, 0, buf, sizeof(buf)), -ESTALE);
	fuse_kernel_close(&k);
}

/* Each entry with a node id is a look-up that the kernel gives back; the dots are none. */
static void test_op_dir__entries_with_attributes_are_looked_up_once_each(void **state)
{
	const struct fuse_getattr_in getattr = { .dummy = 0 };
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	char buf[32768];
	unsigned n_nodes = 0;
	ssize_t got;
	uint64_t node;

	put_files(d);
	k = fuse_kernel_mount(d, "volatile");
	node = fuse_kernel_node(&k, "dir");
	got = list(&k, FUSE_READDIRPLUS, node, 0, buf, sizeof(buf));
	assert_true(got > 0);
	for (ssize_t at = 0; at < got;) {
		const struct fuse_direntplus *e = (const void *)(buf + at);
		const uint64_t id = e->entry_out.nodeid;
		const struct fuse_forget_in forget = { .nlookup = 1 };

		at += (ssize_t)FUSE_DIRENTPLUS_SIZE(e);
		if (e->dirent.name[0] == '.')
			assert_int_equal(id, 0);
		if (!id)
			continue;
		n_nodes++;
		assert_int_equal(fuse_kernel_attr(&k, id).ino, e->entry_out.attr.ino);
		fuse_kernel_tell(&k, &(struct fuse_question){ .opcode = FUSE_FORGET,
							      .node = id,
							      .head = &forget,
							      .head_len = sizeof(forget) });
		assert_int_equal(FUSE_KERNEL_ASK(&k, FUSE_GETATTR, id, getattr, NULL, 0), -ESTALE);
	}
	/* A directory always comes with its attributes. */
	assert_true(n_nodes >= 1);
	fuse_kernel_close(&k);
}

static void test_op_dir__removed_directory_lists_nothing(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	char buf[4096];
	uint64_t node;

	tree_put_dir(d, "lower/dir");
	k = fuse_kernel_mount(d, "volatile");
	node = fuse_kernel_node(&k, "dir");
	assert_int_equal(fuse_kernel_ask_name(&k, FUSE_RMDIR, FUSE_ROOT_ID, "dir", NULL, 0), 0);
	assert_int_equal(list(&k, FUSE_READDIR, node, 0, buf, sizeof(buf)), 0);
	fuse_kernel_close(&k);
}

static void test_op_dir__sync_of_a_directory(void **state)
{
	const struct fuse_fsync_in in = { .fh = 0 };
	const struct fuse_mkdir_in make = { .mode = 0755 };
	struct tree_dirs *d = *state;
	struct fuse_kernel k;

	tree_put_dir(d, "lower/dir");
	k = fuse_kernel_mount(d, "volatile");
	assert_int_equal(FUSE_KERNEL_ASK(&k, FUSE_FSYNCDIR, FUSE_ROOT_ID, in, NULL, 0), -ENOSYS);
	fuse_kernel_close(&k);
	tree_unmount(d);
	k = fuse_kernel_mount(d, NULL);
	assert_int_equal(
		FUSE_KERNEL_ASK(&k, FUSE_FSYNCDIR, fuse_kernel_node(&k, "dir"), in, NULL, 0), 0);
	assert_true(FUSE_KERNEL_ASK_WITH(&k, FUSE_MKDIR, FUSE_ROOT_ID, make, "new", 4, NULL, 0) >
		    0);
	assert_int_equal(
		FUSE_KERNEL_ASK(&k, FUSE_FSYNCDIR, fuse_kernel_node(&k, "new"), in, NULL, 0), 0);
	fuse_kernel_close(&k);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_op_dir__pieces_of_any_size_give_each_name_once),
		row(test_op_dir__no_room_for_a_name_gives_none),
		row(test_op_dir__offset_of_no_entry_is_the_end),
		row(test_op_dir__entries_with_attributes_are_looked_up_once_each),
		row(test_op_dir__removed_directory_lists_nothing),
		row(test_op_dir__sync_of_a_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
