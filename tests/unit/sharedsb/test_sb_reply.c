// SPDX-License-Identifier: Apache-2.0
#include "support/sharing.h"

#include <string.h>
#include <sys/socket.h>

#define OPTIONS "volatile,io=cached"

static struct image_entry *entry_of(struct sharing *s, const char *path)
{
	struct inode *i = tree_get(s->common, path);
	struct image_entry *e = inode_lower(i);

	tree_forget(s->common, i);
	return e;
}

static void test_sb_reply__entries_of_a_listing_are_of_their_mount(void **state)
{
	struct sharing *s = *state;
	static char buf[16384];
	const struct fuse_read_in in = { .size = sizeof(buf) };
	unsigned n = 0;
	ssize_t got;

	sharing_start(s, OPTIONS);
	tree_put_dir(s->d[0], "upper/made");
	got = FUSE_KERNEL_ASK(&s->k, FUSE_READDIRPLUS, sharing_root(s, 0), in, buf, sizeof(buf));
	assert_true(got > 0);
	for (ssize_t at = 0; at < got;) {
		const struct fuse_direntplus *e = (const void *)(buf + at);
		const uint64_t id = e->entry_out.nodeid;

		/* Files go out by look-ups alone. */
		if (id) {
			assert_int_equal(id >> 32, sb_member_number(s->c[0]));
			assert_true(S_ISDIR(e->entry_out.attr.mode));
			n++;
		}
		at += (ssize_t)FUSE_DIRENTPLUS_SIZE(e);
	}
	assert_true(n >= 1);
}

static void test_sb_reply__answers_that_would_be_heard_by_all_are_not_given(void **state)
{
	const struct fuse_fsync_in in = { .fh = 0 };
	struct sharing *s = *state;
	uint64_t root, node;

	sharing_start(s, OPTIONS);
	root = sharing_root(s, 0);
	node = fuse_kernel_make(&s->k, root, "made", 0644);
	/* A volatile mount alone says ENOSYS. */
	assert_int_equal(FUSE_KERNEL_ASK(&s->k, FUSE_FSYNC, node, in, NULL, 0), 0);
	assert_int_equal(FUSE_KERNEL_ASK(&s->k, FUSE_FSYNCDIR, root, in, NULL, 0), 0);
}

static void test_sb_reply__own_inode_is_found_as_long_as_it_is_the_images(void **state)
{
	struct sharing *s = *state;
	struct image_entry *e;
	struct inode *own = NULL;
	uint64_t node;

	sharing_start(s, OPTIONS);
	e = entry_of(s, "dir/inside");
	assert_int_equal(sb_reply_find_own(s->c[0], e, &own), 0);
	assert_ptr_equal(sb_twin_file(s->c[0], own), e);
	inode_unref(s->d[0]->t, own);
	/* Changed in this mount, and not in the other. */
	tree_put_text(s->d[0], "upper/dir/none", "");
	e = entry_of(s, "file");
	node = sharing_look(s, 0, "file");
	assert_true(node <= UINT32_MAX);
	assert_int_equal(
		fuse_kernel_ask_name(&s->k, FUSE_UNLINK, sharing_root(s, 0), "file", NULL, 0),
		-ESTALE);
	sharing_look(s, 0, "file");
	assert_int_equal(
		fuse_kernel_ask_name(&s->k, FUSE_UNLINK, sharing_root(s, 0), "file", NULL, 0), 0);
	own = NULL;
	assert_int_equal(sb_reply_find_own(s->c[0], e, &own), -ENOENT);
	assert_null(own);
	assert_int_equal(sb_reply_find_own(s->c[1], e, &own), 0);
	inode_unref(s->d[1]->t, own);
}

static void test_sb_reply__path_is_looked_up_part_by_part(void **state)
{
	struct sharing *s = *state;
	char good[] = "dir/inside", none[] = "dir/none", below_file[] = "file/below";
	struct inode *i = NULL;

	sharing_start(s, OPTIONS);
	assert_int_equal(sb_reply_look_up(s->d[0]->t, good, &i), 0);
	assert_true(inode_is_regular(i));
	inode_unref(s->d[0]->t, i);
	i = NULL;
	assert_int_equal(sb_reply_look_up(s->d[0]->t, none, &i), -ENOENT);
	assert_int_equal(sb_reply_look_up(s->d[0]->t, below_file, &i), -ENOTDIR);
	assert_null(i);
}

static void test_sb_reply__common_node_is_granted_once_for_each_answer(void **state)
{
	struct sharing *s = *state;
	uint32_t id, again, generation;
	struct image_entry *e;

	sharing_start(s, OPTIONS);
	e = entry_of(s, "dir/inside");
	assert_int_equal(sb_reply_grant_common(s->g, e, &id, &generation), 0);
	assert_int_equal(sb_reply_grant_common(s->g, e, &again, &generation), 0);
	assert_int_equal(id, again);
	assert_ptr_equal(inode_lower(sb_reply_common_inode(s->g, id)), e);
	inode_forget(s->common->t, id, 1);
	assert_non_null(sb_reply_common_inode(s->g, id));
	inode_forget(s->common->t, id, 1);
	assert_null(sb_reply_common_inode(s->g, id));
	assert_null(sb_reply_common_inode(s->g, 4711));
	/* The root of the image is no file. */
	assert_int_equal(
		sb_reply_grant_common(s->g, inode_lower(s->common->t->root), &id, &generation),
		-ENOENT);
}

static void test_sb_reply__notifications_have_the_mounts_number(void **state)
{
	const struct fuse_setattr_in in = { .valid = FATTR_SIZE, .size = INT64_MAX };
	struct {
		struct fuse_out_header head;
		struct fuse_notify_inval_inode_out what;
	} m;
	struct sharing *s = *state;
	uint64_t node;

	sharing_start(s, OPTIONS);
	node = fuse_kernel_make(&s->k, sharing_root(s, 0), "made", 0644);
	fuse_kernel_send(&s->k, &(struct fuse_question){ .opcode = FUSE_SETATTR,
							 .node = node,
							 .head = &in,
							 .head_len = sizeof(in) });
	fuse_kernel_serve(&s->k);
	/* It fails, and the kernel drops the attributes first. */
	assert_int_equal(recv(s->k.fd, &m, sizeof(m), MSG_DONTWAIT), sizeof(m));
	assert_int_equal(m.head.unique, 0);
	assert_int_equal(m.head.error, FUSE_NOTIFY_INVAL_INODE);
	assert_int_equal(m.what.ino, node);
	assert_true(fuse_kernel_reply(&s->k, s->k.unique, NULL, 0) < 0);
}

#define row(test) cmocka_unit_test_setup_teardown(test, sharing_setup, sharing_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_sb_reply__entries_of_a_listing_are_of_their_mount),
		row(test_sb_reply__answers_that_would_be_heard_by_all_are_not_given),
		row(test_sb_reply__own_inode_is_found_as_long_as_it_is_the_images),
		row(test_sb_reply__path_is_looked_up_part_by_part),
		row(test_sb_reply__common_node_is_granted_once_for_each_answer),
		row(test_sb_reply__notifications_have_the_mounts_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
