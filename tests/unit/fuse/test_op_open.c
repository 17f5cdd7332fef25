// SPDX-License-Identifier: Apache-2.0
#include "support/fuse_kernel.h"
#include "support/tree.h"

#include "fuse/op.h"
#include "veneer/fuse/session.h"
#include "veneer/passthrough/passthrough_table.h"

static struct fuse_kernel start(struct tree_dirs *d, const char *options)
{
	struct fuse_kernel k;

	tree_put_text(d, "lower/file", "text");
	tree_mount(d, options);
	fuse_kernel_open(&k, ~(uint64_t)0);
	fuse_kernel_start(&k, &d->m);
	return k;
}

static ssize_t open_node(struct fuse_kernel *k, uint64_t node, uint32_t flags,
			 struct fuse_open_out *ret)
{
	const struct fuse_open_in in = { .flags = flags };

	*ret = (struct fuse_open_out){ .fh = 0 };
	return FUSE_KERNEL_ASK(k, FUSE_OPEN, node, in, ret, sizeof(*ret));
}

static void test_op_open__cached_mount_has_the_kernel_ask_no_more(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k = start(d, "volatile,io=cached");
	struct fuse_open_out out;

	assert_int_equal(d->m.io, IO_CACHED);
	assert_int_equal(open_node(&k, fuse_kernel_node(&k, "file"), O_RDONLY, &out), -ENOSYS);
	assert_int_equal(open_node(&k, 4711, O_RDONLY, &out), -ESTALE);
	fuse_kernel_close(&k);
}

static void test_op_open__pages_are_kept_only_with_a_timeout(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k = start(d, "volatile,io=cached,timeout=0");
	struct fuse_open_out out;

	assert_int_equal(open_node(&k, fuse_kernel_node(&k, "file"), O_RDONLY, &out), sizeof(out));
	assert_false(out.open_flags & (FOPEN_KEEP_CACHE | FOPEN_DIRECT_IO));
	fuse_kernel_close(&k);
	tree_unmount(d);
	/* Where the server keeps locks each open is answered. */
	k = start(d, "volatile,io=cached,locks=server");
	assert_int_equal(open_node(&k, fuse_kernel_node(&k, "file"), O_RDONLY, &out), sizeof(out));
	assert_true(out.open_flags & FOPEN_KEEP_CACHE);
	fuse_kernel_close(&k);
}

static void test_op_open__direct_mount_keeps_no_pages(void **state)
{
	struct fuse_kernel k = start(*state, "volatile,io=direct");
	struct fuse_open_out out;

	assert_int_equal(open_node(&k, fuse_kernel_node(&k, "file"), O_RDWR, &out), sizeof(out));
	assert_true(out.open_flags & FOPEN_DIRECT_IO);
	assert_true(out.open_flags & FOPEN_PARALLEL_DIRECT_WRITES);
	assert_false(out.open_flags & FOPEN_KEEP_CACHE);
	fuse_kernel_close(&k);
}

static void test_op_open__each_open_has_a_handle_of_its_own_where_locks_need_it(void **state)
{
	struct fuse_kernel k = start(*state, "volatile,io=direct,locks=server");
	const uint64_t node = fuse_kernel_node(&k, "file");
	struct fuse_open_out a, b;

	assert_int_equal(open_node(&k, node, O_RDONLY, &a), sizeof(a));
	assert_int_equal(open_node(&k, node, O_RDONLY, &b), sizeof(b));
	assert_int_not_equal(a.fh, b.fh);
	fuse_kernel_close(&k);
}

static void test_op_open__kernel_that_refuses_to_pass_through_gets_pages(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k = start(d, "volatile,io=passthrough");

	/* The socket knows no registrations. */
	assert_int_equal(d->m.io, IO_CACHED);
	assert_null(d->t->backing);
	fuse_kernel_close(&k);
}

static void test_op_open__mode_of_a_dead_server_is_taken_over(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;

	tree_mount(d, "volatile");
	fuse_kernel_open(&k, 0);
	fuse_kernel_start(&k, &d->m);
	d->m.io = IO_AUTO;
	assert_int_equal(op_open_resume(&d->m, NULL, IO_DIRECT), 0);
	assert_int_equal(d->m.io, IO_DIRECT);
	assert_null(d->t->backing);
	/* Decided once: the options do not matter any more. */
	assert_int_equal(op_open_settle(&d->m, NULL), IO_DIRECT);
	fuse_kernel_close(&k);
}

static ssize_t release(struct fuse_kernel *k, uint64_t node, uint64_t fh)
{
	const struct fuse_release_in in = { .fh = fh };

	return FUSE_KERNEL_ASK(k, FUSE_RELEASE, node, in, NULL, 0);
}

static void test_op_open__release_of_any_handle_is_answered(void **state)
{
	struct fuse_kernel k = start(*state, "volatile,io=direct");
	const uint64_t node = fuse_kernel_node(&k, "file");
	struct fuse_open_out out;

	assert_int_equal(open_node(&k, node, O_RDONLY, &out), sizeof(out));
	assert_int_equal(release(&k, node, out.fh), 0);
	assert_int_equal(release(&k, node, UINT64_MAX), 0);
	assert_int_equal(release(&k, 4711, 0), 0);
	fuse_kernel_close(&k);
}

static void test_op_open__without_registrations_no_lower_file_is_left(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k = start(d, "volatile,io=cached");
	const uint64_t node = fuse_kernel_node(&k, "file");
	struct inode *i = tree_get(d, "file");

	assert_int_equal(op_open_leave_lower(&d->m, i, node), 0);
	tree_forget(d, i);
	fuse_kernel_close(&k);
}

/* ---- a kernel that takes registrations ---- */

static uint32_t n_registered;

static int register_file(int devfd, int fd)
{
	(void)devfd;
	assert_true(fcntl(fd, F_GETFD) >= 0);
	return (int)++n_registered;
}

static int drop_file(int devfd, uint32_t id)
{
	(void)devfd;
	assert_true(id > 0 && id <= n_registered);
	return 0;
}

static const struct passthrough_table_device device = { register_file, drop_file };

static struct fuse_kernel start_passthrough(struct tree_dirs *d)
{
	struct passthrough_table *b;
	struct fuse_kernel k;

	free(tree_put_pattern(d, "lower/large", 1u << 20, 1));
	k = start(d, "volatile,io=passthrough");
	n_registered = 0;
	assert_int_equal(
		passthrough_table_new(session_fd(k.session), &device, PASSTHROUGH_TABLE_MAX, &b),
		0);
	d->t->backing = b;
	d->m.io = IO_PASSTHROUGH;
	return k;
}

#ifndef FOPEN_PASSTHROUGH
#define FOPEN_PASSTHROUGH (1 << 7) /* newer than some headers */
#endif

static void test_op_open__large_lower_file_is_read_past_the_server(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_open_out out, again;
	struct fuse_kernel k;
	uint64_t node;

	/* An ordinary user's kernel takes no registrations, and its mounts offer none. */
	if (geteuid() != 0)
		skip();
	k = start_passthrough(d);
	node = fuse_kernel_node(&k, "large");
	assert_int_equal(open_node(&k, node, O_RDONLY, &out), sizeof(out));
	assert_true(out.open_flags & FOPEN_PASSTHROUGH);
	assert_int_equal(op_handle_way(out.fh), PASSTHROUGH_TABLE_WAY_BACKED);
	/* By the same registration. */
	assert_int_equal(open_node(&k, node, O_RDONLY, &again), sizeof(again));
	assert_int_equal(n_registered, 1);
	assert_int_equal(release(&k, node, again.fh), 0);
	assert_int_equal(release(&k, node, out.fh), 0);
	fuse_kernel_close(&k);
}

/* The kernel must not write to the lower file: it looks the name up again, gets another node and
 * opens that. */
static void test_op_open__writing_a_file_that_is_passed_through_takes_another_node(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_open_out out, writing;
	struct fuse_kernel k;
	uint64_t node, other;

	if (geteuid() != 0)
		skip();
	k = start_passthrough(d);
	node = fuse_kernel_node(&k, "large");
	assert_int_equal(open_node(&k, node, O_RDONLY, &out), sizeof(out));
	assert_int_equal(open_node(&k, node, O_RDWR, &writing), -ESTALE);
	other = fuse_kernel_node(&k, "large");
	assert_int_not_equal(other, node);
	assert_int_equal(open_node(&k, other, O_RDWR, &writing), sizeof(writing));
	assert_int_equal(op_handle_way(writing.fh), PASSTHROUGH_TABLE_WAY_CACHED);
	assert_int_equal(release(&k, other, writing.fh), 0);
	assert_int_equal(release(&k, node, out.fh), 0);
	fuse_kernel_close(&k);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_op_open__cached_mount_has_the_kernel_ask_no_more),
		row(test_op_open__pages_are_kept_only_with_a_timeout),
		row(test_op_open__direct_mount_keeps_no_pages),
		row(test_op_open__each_open_has_a_handle_of_its_own_where_locks_need_it),
		row(test_op_open__kernel_that_refuses_to_pass_through_gets_pages),
		row(test_op_open__mode_of_a_dead_server_is_taken_over),
		row(test_op_open__release_of_any_handle_is_answered),
		row(test_op_open__without_registrations_no_lower_file_is_left),
		row(test_op_open__large_lower_file_is_read_past_the_server),
		row(test_op_open__writing_a_file_that_is_passed_through_takes_another_node),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
