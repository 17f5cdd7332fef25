// SPDX-License-Identifier: Apache-2.0
#include "support/fuse_kernel.h"
#include "support/tree.h"

#include <string.h>
#include <sys/file.h>

struct lock_mount {
	struct tree_dirs *d;
	struct fuse_kernel k;
	uint64_t node;
};

static int setup(void **state)
{
	struct lock_mount *l = calloc(1, sizeof(*l));

	if (!l || tree_setup((void **)&l->d) < 0)
		return -1;
	tree_put_text(l->d, "lower/file", "text");
	tree_mount(l->d, "volatile,locks=server");
	fuse_kernel_open(&l->k, FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS);
	fuse_kernel_start(&l->k, &l->d->m);
	l->node = fuse_kernel_node(&l->k, "file");
	*state = l;
	return 0;
}

static int teardown(void **state)
{
	struct lock_mount *l = *state;

	fuse_kernel_close(&l->k);
	tree_teardown((void **)&l->d);
	free(l);
	return 0;
}

static struct fuse_lk_in record(uint64_t owner, uint32_t type, uint64_t start, uint64_t end)
{
	return (struct fuse_lk_in){
		.fh = owner,
		.owner = owner,
		.lk = { .start = start, .end = end, .type = type, .pid = (uint32_t)owner }
	};
}

static ssize_t set(struct lock_mount *l, const struct fuse_lk_in *in)
{
	return FUSE_KERNEL_ASK(&l->k, FUSE_SETLK, l->node, *in, NULL, 0);
}

/* The number of the request, which waits. */
static uint64_t wait_for(struct lock_mount *l, const struct fuse_lk_in *in)
{
	fuse_kernel_tell(&l->k, &(struct fuse_question){ .opcode = FUSE_SETLKW,
							 .node = l->node,
							 .head = in,
							 .head_len = sizeof(*in) });
	return l->k.unique;
}

static void test_op_lock__records_that_overlap_exclude_each_other(void **state)
{
	struct lock_mount *l = *state;
	struct fuse_lk_in a = record(1, F_WRLCK, 0, 9), b = record(2, F_RDLCK, 9, 20);
	struct fuse_lk_out out;

	assert_int_equal(set(l, &a), 0);
	assert_int_equal(set(l, &b), -EAGAIN);
	assert_int_equal(FUSE_KERNEL_ASK(&l->k, FUSE_GETLK, l->node, b, &out, sizeof(out)),
			 sizeof(out));
	assert_int_equal(out.lk.type, F_WRLCK);
	assert_int_equal(out.lk.start, 0);
	assert_int_equal(out.lk.end, 9);
	assert_int_equal(out.lk.pid, 1);
	b.lk.start = 10;
	assert_int_equal(set(l, &b), 0);
	assert_int_equal(FUSE_KERNEL_ASK(&l->k, FUSE_GETLK, l->node, b, &out, sizeof(out)),
			 sizeof(out));
	assert_int_equal(out.lk.type, F_UNLCK);
}

static void test_op_lock__range_to_the_end_of_all_files(void **state)
{
	struct lock_mount *l = *state;
	struct fuse_lk_in all = record(1, F_WRLCK, 5, INT64_MAX), b = record(2, F_WRLCK, 0, 4);
	struct fuse_lk_out out;

	assert_int_equal(set(l, &all), 0);
	assert_int_equal(set(l, &b), 0);
	b = record(2, F_WRLCK, INT64_MAX, INT64_MAX);
	assert_int_equal(set(l, &b), -EAGAIN);
	assert_int_equal(FUSE_KERNEL_ASK(&l->k, FUSE_GETLK, l->node, b, &out, sizeof(out)),
			 sizeof(out));
	assert_int_equal(out.lk.start, 5);
	assert_int_equal(out.lk.end, INT64_MAX);
}

static void test_op_lock__waiter_is_answered_by_the_thread_that_gives_up(void **state)
{
	struct lock_mount *l = *state;
	struct fuse_lk_in a = record(1, F_WRLCK, 0, 9), b = record(2, F_WRLCK, 5, 6);
	uint64_t waiter;

	assert_int_equal(set(l, &a), 0);
	waiter = wait_for(l, &b);
	a.lk.type = F_UNLCK;
	fuse_kernel_send(&l->k, &(struct fuse_question){ .opcode = FUSE_SETLK,
							 .node = l->node,
							 .head = &a,
							 .head_len = sizeof(a) });
	fuse_kernel_serve(&l->k);
	assert_int_equal(fuse_kernel_reply(&l->k, waiter, NULL, 0), 0);
	assert_int_equal(fuse_kernel_reply(&l->k, l->k.unique, NULL, 0), 0);
	a.lk.type = F_WRLCK;
	assert_int_equal(set(l, &a), -EAGAIN);
}

static void test_op_lock__interrupt_ends_the_wait_and_nothing_else(void **state)
{
	struct lock_mount *l = *state;
	struct fuse_lk_in a = record(1, F_WRLCK, 0, 9), b = record(2, F_WRLCK, 5, 6);
	struct fuse_interrupt_in interrupt;

	assert_int_equal(set(l, &a), 0);
	interrupt.unique = wait_for(l, &b);
	fuse_kernel_send(&l->k, &(struct fuse_question){ .opcode = FUSE_INTERRUPT,
							 .head = &interrupt,
							 .head_len = sizeof(interrupt) });
	fuse_kernel_serve(&l->k);
	assert_int_equal(fuse_kernel_reply(&l->k, interrupt.unique, NULL, 0), -EINTR);
	assert_int_equal(set(l, &b), -EAGAIN);
	a.lk.type = F_UNLCK;
	assert_int_equal(set(l, &a), 0);
	assert_int_equal(set(l, &b), 0);
}

static void test_op_lock__waiters_end_with_the_session(void **state)
{
	struct lock_mount *l = *state;
	struct fuse_lk_in a = record(1, F_WRLCK, 0, 9), b = record(2, F_WRLCK, 5, 6);
	uint64_t waiter;

	assert_int_equal(set(l, &a), 0);
	waiter = wait_for(l, &b);
	fuse_kernel_stop(&l->k);
	assert_int_equal(fuse_kernel_reply(&l->k, waiter, NULL, 0), -ENODEV);
}

static void test_op_lock__locks_of_whole_files_are_others_than_records(void **state)
{
	struct lock_mount *l = *state;
	struct fuse_lk_in a = record(1, F_WRLCK, 0, INT64_MAX),
			  b = record(2, F_WRLCK, 0, INT64_MAX);

	a.lk_flags = b.lk_flags = FUSE_LK_FLOCK;
	assert_int_equal(set(l, &a), 0);
	assert_int_equal(set(l, &b), -EAGAIN);
	b.lk_flags = 0;
	assert_int_equal(set(l, &b), 0);
	b.lk_flags = FUSE_LK_FLOCK;
	a.lk.type = F_UNLCK;
	assert_int_equal(set(l, &a), 0);
	assert_int_equal(set(l, &b), 0);
}

static void test_op_lock__flush_releases_an_owners_records(void **state)
{
	struct lock_mount *l = *state;
	const struct fuse_flush_in flush = { .fh = 1, .lock_owner = 1 };
	struct fuse_lk_in a = record(1, F_WRLCK, 0, 9), b = record(2, F_WRLCK, 5, 6);

	assert_int_equal(set(l, &a), 0);
	assert_int_equal(set(l, &b), -EAGAIN);
	assert_int_equal(FUSE_KERNEL_ASK(&l->k, FUSE_FLUSH, l->node, flush, NULL, 0), 0);
	assert_int_equal(set(l, &b), 0);
	/* Of an owner that has none, and of a node that is none. */
	assert_int_equal(FUSE_KERNEL_ASK(&l->k, FUSE_FLUSH, l->node, flush, NULL, 0), 0);
	assert_int_equal(FUSE_KERNEL_ASK(&l->k, FUSE_FLUSH, 4711, flush, NULL, 0), 0);
}

static void test_op_lock__stale_node_has_no_locks(void **state)
{
	struct lock_mount *l = *state;
	struct fuse_lk_in a = record(1, F_WRLCK, 0, 9);

	assert_int_equal(FUSE_KERNEL_ASK(&l->k, FUSE_SETLK, 4711, a, NULL, 0), -ESTALE);
	assert_int_equal(FUSE_KERNEL_ASK(&l->k, FUSE_SETLKW, 4711, a, NULL, 0), -ESTALE);
	assert_int_equal(FUSE_KERNEL_ASK(&l->k, FUSE_GETLK, 4711, a, NULL, 0), -ESTALE);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_op_lock__records_that_overlap_exclude_each_other),
		row(test_op_lock__range_to_the_end_of_all_files),
		row(test_op_lock__waiter_is_answered_by_the_thread_that_gives_up),
		row(test_op_lock__interrupt_ends_the_wait_and_nothing_else),
		row(test_op_lock__waiters_end_with_the_session),
		row(test_op_lock__locks_of_whole_files_are_others_than_records),
		row(test_op_lock__flush_releases_an_owners_records),
		row(test_op_lock__stale_node_has_no_locks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
