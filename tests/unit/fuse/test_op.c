// SPDX-License-Identifier: Apache-2.0
#include "support/fuse_kernel.h"
#include "support/tree.h"

#include "fuse/op.h"
#include "veneer/fuse/session.h"
#include "veneer/union/lookup.h"

#include <sys/resource.h>

struct served {
	struct tree_dirs *d;
	struct fuse_kernel k;
};

static int setup(void **state)
{
	struct served *s = calloc(1, sizeof(*s));

	if (!s || tree_setup((void **)&s->d) < 0)
		return -1;
	tree_put_text(s->d, "lower/file", "text");
	tree_mount(s->d, "volatile");
	fuse_kernel_open(&s->k, 0);
	fuse_kernel_start(&s->k, &s->d->m);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct served *s = *state;

	fuse_kernel_close(&s->k);
	tree_teardown((void **)&s->d);
	free(s);
	return 0;
}

static void test_op__entry_is_granted_once_for_each_reply(void **state)
{
	struct served *s = *state;
	struct inode *i = tree_get(s->d, "file");
	struct fuse_entry_param e;
	struct stat st;

	assert_int_equal(lookup_stat(s->d->t, i, &st), 0);
	op_fill_entry(&s->d->m, i, &st, &e);
	assert_int_equal(e.ino, inode_id(i));
	assert_true(e.entry_timeout > 0);
	assert_int_equal(e.attr.st_size, 4);
	assert_ptr_equal(inode_get(s->d->t, e.ino), i);
	inode_forget(s->d->t, e.ino, 1);
	assert_null(inode_get(s->d->t, e.ino));
}

static void test_op__attributes_of_two_node_ids_are_not_relied_on(void **state)
{
	struct served *s = *state;
	const uint64_t node = fuse_kernel_node(&s->k, "file");
	struct inode *i = tree_get(s->d, "file");

	assert_true(op_attr_timeout(&s->d->m, i, node) > 0);
	assert_int_equal(inode_renumber(s->d->t, i, (uint32_t)node), 0);
	assert_int_not_equal(inode_id(i), node);
	assert_true(op_attr_timeout(&s->d->m, i, node) == 0);
	tree_forget(s->d, i);
}

static void test_op__change_by_a_former_id_drops_attributes_of_the_present_one(void **state)
{
	struct served *s = *state;
	const uint64_t node = fuse_kernel_node(&s->k, "file");
	struct inode *i = tree_get(s->d, "file");

	assert_int_equal(fuse_kernel_write(&s->k, node, 0, "T", 1), 1);
	assert_true(fuse_kernel_is_silent(&s->k));
	assert_int_equal(inode_renumber(s->d->t, i, (uint32_t)node), 0);
	s->k.n_notified = 0;
	op_changed(i, inode_id(i));
	assert_true(fuse_kernel_is_silent(&s->k));
	assert_int_equal(s->k.n_notified, 0);
	/* Within a request of its session, which is served by no thread here. */
	assert_int_equal(fuse_kernel_ask_name(&s->k, FUSE_REMOVEXATTR, node, "user.none", NULL, 0),
			 -ENODATA);
	assert_true(s->k.n_notified > 0);
	assert_int_equal(s->k.last_notified, FUSE_NOTIFY_INVAL_INODE);
	tree_forget(s->d, i);
}

static void test_op__background_work_has_no_session_to_notify(void **state)
{
	struct served *s = *state;
	struct inode *i = tree_get(s->d, "file");

	assert_null(negotiate_request_extra.session);
	op_touched(s->d->t, i);
	assert_true(fuse_kernel_is_silent(&s->k));
	assert_int_equal(s->k.n_notified, 0);
	tree_forget(s->d, i);
}

/* EUCLEAN is of ours: programs do not know it. */
static void test_op__damage_is_an_input_error_to_programs(void **state)
{
	struct served *s = *state;
	const struct fuse_read_in in = { .size = 10 };
	struct fuse_entry_out e = { .nodeid = 0 };
	const char bad[] = "no map at all";
	char value[16];
	ssize_t r;
	int fd;

	tree_unmount(s->d);
	fuse_kernel_close(&s->k);
	/* A partial file whose mark says nothing. */
	tree_put_text(s->d, "upper/file", "xxxx");
	fd = openat(s->d->s.fd, "upper/file", O_RDONLY | O_CLOEXEC);
	assert_int_equal(fsetxattr(fd, "user.veneer.partial", bad, sizeof(bad), 0), 0);
	close(fd);
	tree_mount(s->d, "volatile");
	fuse_kernel_open(&s->k, 0);
	fuse_kernel_start(&s->k, &s->d->m);
	r = fuse_kernel_ask_name(&s->k, FUSE_LOOKUP, FUSE_ROOT_ID, "file", &e, sizeof(e));
	if (r > 0)
		r = FUSE_KERNEL_ASK(&s->k, FUSE_READ, e.nodeid, in, value, sizeof(value));
	assert_int_equal(r, -EIO);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_op__entry_is_granted_once_for_each_reply),
		row(test_op__attributes_of_two_node_ids_are_not_relied_on),
		row(test_op__change_by_a_former_id_drops_attributes_of_the_present_one),
		row(test_op__background_work_has_no_session_to_notify),
		row(test_op__damage_is_an_input_error_to_programs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
