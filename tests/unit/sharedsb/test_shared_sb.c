// SPDX-License-Identifier: Apache-2.0
#include "support/sharing.h"

#include <string.h>

#define OPTIONS "volatile,io=cached"

static ssize_t read_text(struct sharing *s, uint64_t node, char *ret, size_t size)
{
	ssize_t n = fuse_kernel_read(&s->k, node, 0, ret, size - 1);

	ret[n > 0 ? n : 0] = '\0';
	return n;
}

static void test_shared_sb__root_knows_mounts_by_their_number_alone(void **state)
{
	static const char *const names[] = { "0",  "",	"a", "01", "+1", "1 ", "999999999999",
					     "-1", "77" };
	struct sharing *s = *state;
	char list[256];
	const struct fuse_read_in in = { .size = sizeof(list) };
	uint64_t a, b;

	sharing_start(s, OPTIONS);
	a = sharing_root(s, 0);
	b = sharing_root(s, 1);
	assert_int_not_equal(a, b);
	assert_true(S_ISDIR(fuse_kernel_attr(&s->k, a).mode));
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		assert_int_equal(
			fuse_kernel_ask_name(&s->k, FUSE_LOOKUP, FUSE_ROOT_ID, names[i], NULL, 0),
			-ENOENT);
	/* It has no entries, and takes none. */
	assert_int_equal(FUSE_KERNEL_ASK(&s->k, FUSE_READDIR, FUSE_ROOT_ID, in, list, sizeof(list)),
			 0);
	assert_int_equal(fuse_kernel_ask_name(&s->k, FUSE_UNLINK, FUSE_ROOT_ID, "1", NULL, 0),
			 -EROFS);
}

static void test_shared_sb__unchanged_file_is_one_node_for_all(void **state)
{
	struct sharing *s = *state;
	uint64_t a, b;
	char text[16];

	sharing_start(s, OPTIONS);
	a = sharing_look(s, 0, "file");
	b = sharing_look(s, 1, "file");
	assert_int_equal(a, b);
	assert_true(a <= UINT32_MAX);
	assert_int_equal(read_text(s, a, text, sizeof(text)), 4);
	assert_string_equal(text, "text");
	/* Directories are each mount's own. */
	assert_int_not_equal(sharing_look(s, 0, "dir"), sharing_look(s, 1, "dir"));
	assert_int_equal(sharing_look(s, 0, "dir/inside"), sharing_look(s, 1, "dir/inside"));
}

/* The kernel is told to look again, and what it finds is the mount's own. */
static void test_shared_sb__change_of_it_goes_to_the_mount_that_asks(void **state)
{
	const struct fuse_setattr_in in = { .valid = FATTR_SIZE, .size = 2 };
	const struct fuse_open_in open_in = { .flags = O_RDWR };
	struct sharing *s = *state;
	uint64_t common, own;
	char text[16];

	sharing_start(s, OPTIONS);
	common = sharing_look(s, 0, "file");
	assert_int_equal(FUSE_KERNEL_ASK(&s->k, FUSE_OPEN, common, open_in, NULL, 0), -ESTALE);
	own = sharing_look(s, 0, "file");
	assert_int_equal(own >> 32, sb_member_number(s->c[0]));
	assert_true(FUSE_KERNEL_ASK(&s->k, FUSE_SETATTR, own, in, NULL, 0) > 0);
	assert_int_equal(read_text(s, own, text, sizeof(text)), 2);
	/* The other mount, and the image, have it as it was; by the same node, for another caller
	 * than the one that was told to look again. */
	s->k.pid++;
	assert_int_equal(sharing_look(s, 1, "file"), common);
	assert_int_equal(read_text(s, common, text, sizeof(text)), 4);
	assert_true(tree_is_there(s->d[0], "upper/file"));
	assert_false(tree_is_there(s->d[1], "upper/file"));
	/* From then on it is the mount's own. */
	assert_int_equal(sharing_look(s, 0, "file"), own);
}

static void test_shared_sb__no_request_changes_the_image(void **state)
{
	static const uint32_t opcodes[] = { FUSE_WRITE,		 FUSE_FALLOCATE,   FUSE_SETATTR,
					    FUSE_SETXATTR,	 FUSE_REMOVEXATTR, FUSE_UNLINK,
					    FUSE_RENAME2,	 FUSE_LINK,	   FUSE_MKDIR,
					    FUSE_COPY_FILE_RANGE };
	static const char zeros[200];
	struct sharing *s = *state;
	uint64_t common;
	char text[16];

	sharing_start(s, OPTIONS);
	common = sharing_look(s, 0, "file");
	for (size_t i = 0; i < sizeof(opcodes) / sizeof(*opcodes); i++)
		assert_true(fuse_kernel_ask(&s->k,
					    &(struct fuse_question){ .opcode = opcodes[i],
								     .node = common,
								     .head = zeros,
								     .head_len = sizeof(zeros) },
					    NULL, 0) < 0);
	assert_int_equal(read_text(s, common, text, sizeof(text)), 4);
	assert_string_equal(text, "text");
}

static void test_shared_sb__requests_that_are_cut_short_are_refused(void **state)
{
	static const uint32_t of_image[] = { FUSE_OPEN, FUSE_COPY_FILE_RANGE, FUSE_GETLK,
					     FUSE_SETLK, FUSE_SETLKW };
	static const uint32_t of_mount[] = { FUSE_RENAME, FUSE_RENAME2, FUSE_LINK,
					     FUSE_COPY_FILE_RANGE };
	struct sharing *s = *state;
	uint64_t common, root;
	const char head[sizeof(struct fuse_rename2_in)] = { 0 };

	sharing_start(s, OPTIONS);
	common = sharing_look(s, 0, "file");
	root = sharing_root(s, 0);
	for (size_t i = 0; i < sizeof(of_image) / sizeof(*of_image); i++)
		assert_true(fuse_kernel_ask(&s->k,
					    &(struct fuse_question){ .opcode = of_image[i],
								     .node = common,
								     .head = head,
								     .head_len = 2 },
					    NULL, 0) < 0);
	for (size_t i = 0; i < sizeof(of_mount) / sizeof(*of_mount); i++)
		assert_int_equal(fuse_kernel_ask(&s->k,
						 &(struct fuse_question){ .opcode = of_mount[i],
									  .node = root,
									  .head = head,
									  .head_len = 2 },
						 NULL, 0),
				 -EINVAL);
	/* A name without an end. */
	assert_int_equal(fuse_kernel_ask(&s->k,
					 &(struct fuse_question){ .opcode = FUSE_LOOKUP,
								  .node = FUSE_ROOT_ID,
								  .rest = "1",
								  .rest_len = 1 },
					 NULL, 0),
			 -ENOENT);
	assert_true(S_ISDIR(fuse_kernel_attr(&s->k, root).mode));
}

static ssize_t rename_to(struct sharing *s, uint64_t from_dir, const char *from, uint64_t to_dir,
			 const char *to)
{
	const struct fuse_rename2_in in = { .newdir = to_dir };
	char names[64];
	const size_t len = strlen(from) + 1;

	strcpy(names, from);
	strcpy(names + len, to);
	return FUSE_KERNEL_ASK_WITH(&s->k, FUSE_RENAME2, from_dir, in, names, len + strlen(to) + 1,
				    NULL, 0);
}

static void test_shared_sb__names_stay_within_their_mount(void **state)
{
	struct sharing *s = *state;
	uint64_t a, b, linked;
	struct fuse_link_in in;

	sharing_start(s, OPTIONS);
	a = sharing_root(s, 0);
	b = sharing_root(s, 1);
	assert_int_equal(rename_to(s, a, "dir", b, "dir2"), -EXDEV);
	assert_int_equal(rename_to(s, a, "dir", FUSE_ROOT_ID, "dir2"), -EXDEV);
	linked = fuse_kernel_make(&s->k, b, "made", 0644);
	in.oldnodeid = linked;
	assert_int_equal(FUSE_KERNEL_ASK_WITH(&s->k, FUSE_LINK, a, in, "name", 5, NULL, 0), -EXDEV);
	/* A file of the image is moved by its own node. */
	sharing_look(s, 0, "file");
	assert_int_equal(rename_to(s, a, "file", a, "moved"), -ESTALE);
	sharing_look(s, 0, "file");
	assert_int_equal(rename_to(s, a, "file", a, "moved"), 0);
	tree_expect_text(s->d[0], "moved", "text");
	tree_expect_text(s->d[1], "file", "text");
}

static void forget(struct sharing *s, uint64_t node, uint64_t n)
{
	const struct fuse_forget_in in = { .nlookup = n };

	fuse_kernel_tell(&s->k, &(struct fuse_question){ .opcode = FUSE_FORGET,
							 .node = node,
							 .head = &in,
							 .head_len = sizeof(in) });
}

static void test_shared_sb__mount_is_unused_when_its_root_is_given_back(void **state)
{
	struct sharing *s = *state;
	uint64_t a;

	sharing_start(s, OPTIONS);
	assert_false(sb_member_is_used(s->c[0]));
	a = sharing_root(s, 0);
	sharing_root(s, 0);
	assert_true(sb_member_is_used(s->c[0]));
	forget(s, a, 1);
	assert_int_equal(s->n_unused, 0);
	/* More than it had do no harm. */
	forget(s, a, 1000);
	assert_int_equal(s->n_unused, 1);
	assert_false(sb_member_is_used(s->c[0]));
	assert_false(sb_member_is_used(s->c[1]));
	/* Of mounts and nodes that are none. */
	forget(s, (uint64_t)4711 << 32 | 1, 1);
	forget(s, 4711, 1);
	forget(s, FUSE_ROOT_ID, 1000);
	assert_int_equal(s->n_unused, 1);
}

static void test_shared_sb__many_are_forgotten_within_what_the_request_holds(void **state)
{
	struct {
		struct fuse_batch_forget_in head;
		struct fuse_forget_one one[2];
	} in = { .head = { .count = 1000 } };
	struct sharing *s = *state;

	sharing_start(s, OPTIONS);
	in.one[0] = (struct fuse_forget_one){ sharing_root(s, 0), 1 };
	in.one[1] = (struct fuse_forget_one){ sharing_root(s, 1), 1 };
	fuse_kernel_tell(&s->k, &(struct fuse_question){ .opcode = FUSE_BATCH_FORGET,
							 .head = &in,
							 .head_len = sizeof(in) });
	assert_int_equal(s->n_unused, 2);
	fuse_kernel_tell(&s->k, &(struct fuse_question){
					.opcode = FUSE_BATCH_FORGET, .head = &in, .head_len = 2 });
}

static void test_shared_sb__request_for_a_mount_that_left_is_stale(void **state)
{
	const struct fuse_release_in release = { .fh = 0 };
	const struct fuse_getattr_in getattr = { .dummy = 0 };
	struct sharing *s = *state;
	uint64_t a;

	sharing_start(s, OPTIONS);
	a = sharing_root(s, 0);
	sharing_leave(s, 0);
	assert_int_equal(FUSE_KERNEL_ASK(&s->k, FUSE_GETATTR, a, getattr, NULL, 0), -ESTALE);
	/* A close cannot fail. */
	assert_int_equal(FUSE_KERNEL_ASK(&s->k, FUSE_RELEASE, a, release, NULL, 0), 0);
	forget(s, a, 1);
	assert_true(S_ISDIR(fuse_kernel_attr(&s->k, sharing_root(s, 1)).mode));
}

static void test_shared_sb__copy_from_the_image_goes_within_one_mount(void **state)
{
	struct fuse_copy_file_range_in in = { .len = 100 };
	struct sharing *s = *state;
	struct fuse_write_out out;
	uint64_t common, to;

	sharing_start(s, OPTIONS);
	common = sharing_look(s, 0, "file");
	to = fuse_kernel_make(&s->k, sharing_root(s, 0), "copy", 0644);
	in.nodeid_out = to;
	assert_int_equal(
		FUSE_KERNEL_ASK(&s->k, FUSE_COPY_FILE_RANGE, common, in, &out, sizeof(out)),
		sizeof(out));
	assert_int_equal(out.size, 4);
	tree_expect_text(s->d[0], "copy", "text");
	in.nodeid_out = common;
	assert_int_equal(FUSE_KERNEL_ASK(&s->k, FUSE_COPY_FILE_RANGE, common, in, NULL, 0), -EXDEV);
	in.nodeid_out = (uint64_t)4711 << 32 | 1;
	assert_int_equal(FUSE_KERNEL_ASK(&s->k, FUSE_COPY_FILE_RANGE, common, in, NULL, 0), -EXDEV);
}

static void test_shared_sb__open_files_of_the_image_have_handles_of_their_own(void **state)
{
	const struct fuse_open_in in = { .flags = O_RDONLY };
	struct sharing *s = *state;
	struct fuse_open_out a, b;
	uint64_t common, library;

	tree_put_text(s->common, "lower/libx.so.6", "code");
	sharing_start(s, OPTIONS);
	common = sharing_look(s, 0, "file");
	library = sharing_look(s, 0, "libx.so.6");
	assert_int_equal(FUSE_KERNEL_ASK(&s->k, FUSE_OPEN, common, in, &a, sizeof(a)), sizeof(a));
	assert_int_equal(FUSE_KERNEL_ASK(&s->k, FUSE_OPEN, common, in, &b, sizeof(b)), sizeof(b));
	assert_int_not_equal(a.fh, b.fh);
	assert_true(a.fh & SHARED_SB_OF_IMAGE);
	assert_false(a.fh & SHARED_SB_UNFLUSHED);
	/* Nobody locks a range of a library. */
	assert_int_equal(FUSE_KERNEL_ASK(&s->k, FUSE_OPEN, library, in, &b, sizeof(b)), sizeof(b));
	assert_true(b.fh & SHARED_SB_UNFLUSHED);
	assert_true(b.open_flags & FOPEN_NOFLUSH);
}

#define row(test) cmocka_unit_test_setup_teardown(test, sharing_setup, sharing_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_shared_sb__root_knows_mounts_by_their_number_alone),
		row(test_shared_sb__unchanged_file_is_one_node_for_all),
		row(test_shared_sb__change_of_it_goes_to_the_mount_that_asks),
		row(test_shared_sb__no_request_changes_the_image),
		row(test_shared_sb__requests_that_are_cut_short_are_refused),
		row(test_shared_sb__names_stay_within_their_mount),
		row(test_shared_sb__mount_is_unused_when_its_root_is_given_back),
		row(test_shared_sb__many_are_forgotten_within_what_the_request_holds),
		row(test_shared_sb__request_for_a_mount_that_left_is_stale),
		row(test_shared_sb__copy_from_the_image_goes_within_one_mount),
		row(test_shared_sb__open_files_of_the_image_have_handles_of_their_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
