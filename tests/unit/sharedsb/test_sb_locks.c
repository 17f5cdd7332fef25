// SPDX-License-Identifier: Apache-2.0
/* The mount of an open file of the image is asked of /proc, which has no file of a socket: open
 * files come here from another server, with what they hold. */
#include "support/sharing.h"

#include "veneer/union/locks.h"

#define OPTIONS "volatile,io=cached,locks=server"
#define OWNER	77u

static const uint64_t handle = (uint64_t)5 << 8 | SHARED_SB_OF_IMAGE;

static struct fuse_lk_in record(uint64_t fh, uint64_t owner, uint32_t type)
{
	return (struct fuse_lk_in){ .fh = fh,
				    .owner = owner,
				    .lk = { .end = INT64_MAX, .type = type, .pid = 1 } };
}

static ssize_t set(struct sharing *s, uint64_t node, uint64_t fh, uint64_t owner, uint32_t type)
{
	const struct fuse_lk_in in = record(fh, owner, type);

	return FUSE_KERNEL_ASK(&s->k, FUSE_SETLK, node, in, NULL, 0);
}

/* A lock of lower/file that the first member has from a dead server, by an open file of the image;
 * the member has left. The mount's node of the file. */
static uint32_t leave_with_lock(struct sharing *s, enum lock_kind kind)
{
	struct inode *i = tree_get(s->d[0], "file");
	struct lock_request q = { .kind = kind,
				  .type = LOCKS_EXCLUSIVE,
				  .inode = (uint64_t)(uintptr_t)i,
				  .owner = OWNER,
				  .handle = handle,
				  .end = LOCKS_END };
	uint32_t own, generation;
	bool is_closing;

	inode_grant(s->d[0]->t, i, &own, &generation);
	assert_int_equal(inode_note_tied(s->d[0]->t, own, 1), 0);
	q.node = own;
	assert_int_equal(locks_set(s->d[0]->t->locks, &q, &is_closing), 0);
	sharing_leave(s, 0);
	return own;
}

static void come_back(struct sharing *s)
{
	const uint32_t secret = 1;

	sharing_join(s, 0, &secret);
}

static uint32_t n_held(struct sharing *s)
{
	return locks_count(s->d[0]->t->locks);
}

static void test_sb_locks__caller_that_cannot_be_placed_gets_no_lock(void **state)
{
	struct sharing *s = *state;
	uint64_t common;

	sharing_start(s, OPTIONS);
	common = sharing_look(s, 0, "file");
	assert_int_equal(set(s, common, handle, OWNER, F_WRLCK), -ENOLCK);
	s->k.pid = 0;
	assert_int_equal(set(s, common, handle, OWNER, F_WRLCK), -ENOLCK);
	assert_int_equal(set(s, 4711, handle, OWNER, F_WRLCK), -ENOLCK);
	/* Closes of such an open file are not told of. */
	assert_int_equal(set(s, common, handle | SHARED_SB_UNFLUSHED, OWNER, F_WRLCK), -ENOLCK);
	assert_int_equal(set(s, common, handle | SHARED_SB_UNFLUSHED, OWNER, F_UNLCK), 0);
	assert_int_equal(n_held(s), 0);
}

static void test_sb_locks__lock_of_a_dead_server_is_known_by_its_open_file(void **state)
{
	struct sharing *s = *state;
	uint64_t common;
	uint32_t own;

	sharing_start(s, OPTIONS);
	common = sharing_look(s, 1, "file");
	own = leave_with_lock(s, LOCKS_RECORD);
	come_back(s);
	assert_int_equal(s->g->n_ties, 1);
	assert_int_equal(inode_count_tied(s->d[0]->t, own), 1);
	/* By the same open file, whatever process asks. */
	s->k.pid = 0;
	assert_int_equal(set(s, common, handle, OWNER, F_RDLCK), 0);
	assert_int_equal(set(s, common, handle, OWNER + 1, F_WRLCK), -EAGAIN);
	assert_int_equal(set(s, common, handle, OWNER, F_UNLCK), 0);
	assert_int_equal(n_held(s), 0);
	assert_int_equal(set(s, common, handle, OWNER + 1, F_WRLCK), 0);
}

static void release(struct sharing *s, uint64_t node)
{
	const struct fuse_release_in in = { .fh = handle };

	assert_int_equal(FUSE_KERNEL_ASK(&s->k, FUSE_RELEASE, node, in, NULL, 0), 0);
}

static void test_sb_locks__last_close_gives_back_lock_tie_and_look_up(void **state)
{
	struct sharing *s = *state;
	uint64_t common;
	uint32_t own;

	sharing_start(s, OPTIONS);
	common = sharing_look(s, 1, "file");
	own = leave_with_lock(s, LOCKS_FLOCK);
	come_back(s);
	release(s, common);
	assert_int_equal(n_held(s), 0);
	assert_int_equal(s->g->n_ties, 0);
	assert_int_equal(inode_count_tied(s->d[0]->t, own), 0);
	/* Once more does nothing. */
	release(s, common);
}

static void test_sb_locks__close_by_a_process_ends_its_records(void **state)
{
	const struct fuse_flush_in in = { .fh = handle, .lock_owner = OWNER },
				   other = { .fh = handle, .lock_owner = OWNER + 1 };
	struct sharing *s = *state;
	uint64_t common;

	sharing_start(s, OPTIONS);
	common = sharing_look(s, 1, "file");
	leave_with_lock(s, LOCKS_RECORD);
	come_back(s);
	assert_int_equal(FUSE_KERNEL_ASK(&s->k, FUSE_FLUSH, common, other, NULL, 0), 0);
	assert_int_equal(n_held(s), 1);
	assert_int_equal(FUSE_KERNEL_ASK(&s->k, FUSE_FLUSH, common, in, NULL, 0), 0);
	assert_int_equal(n_held(s), 0);
	/* The open file is still there. */
	assert_int_equal(s->g->n_ties, 1);
}

/* It is not sent again: what ended is noted until the mount is open, or will not be. */
static void test_sb_locks__close_before_the_mount_is_open_again_counts(void **state)
{
	struct sharing *s = *state;
	uint64_t common;
	uint32_t own;

	sharing_start(s, OPTIONS);
	common = sharing_look(s, 1, "file");
	own = leave_with_lock(s, LOCKS_FLOCK);
	assert_int_equal(sb_member_expect(s->g, 4711), 0);
	release(s, common);
	assert_int_equal(s->g->n_late, 1);
	s->d[0]->m.key = 4711;
	come_back(s);
	s->d[0]->m.key = 0;
	assert_int_equal(n_held(s), 0);
	assert_int_equal(inode_count_tied(s->d[0]->t, own), 0);
	assert_int_equal(s->g->n_ties, 0);
	/* Nobody is awaited any more. */
	assert_int_equal(s->g->n_late, 0);
}

static void test_sb_locks__what_ended_is_forgotten_with_the_last_that_was_awaited(void **state)
{
	struct sharing *s = *state;
	uint64_t common;

	sharing_start(s, OPTIONS);
	common = sharing_look(s, 1, "file");
	release(s, common);
	assert_int_equal(s->g->n_late, 0);
	assert_int_equal(sb_member_expect(s->g, 4711), 0);
	assert_int_equal(sb_member_expect(s->g, 4712), 0);
	release(s, common);
	sb_member_lose(s->g, 4711);
	assert_int_equal(s->g->n_late, 1);
	sb_member_lose(s->g, 4712);
	assert_int_equal(s->g->n_late, 0);
}

static void test_sb_locks__ties_go_with_their_mount(void **state)
{
	struct sharing *s = *state;

	sharing_start(s, OPTIONS);
	leave_with_lock(s, LOCKS_RECORD);
	come_back(s);
	assert_int_equal(s->g->n_ties, 1);
	sharing_leave(s, 0);
	assert_int_equal(s->g->n_ties, 0);
	come_back(s);
	assert_int_equal(s->g->n_ties, 1);
}

#define row(test) cmocka_unit_test_setup_teardown(test, sharing_setup, sharing_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_sb_locks__caller_that_cannot_be_placed_gets_no_lock),
		row(test_sb_locks__lock_of_a_dead_server_is_known_by_its_open_file),
		row(test_sb_locks__last_close_gives_back_lock_tie_and_look_up),
		row(test_sb_locks__close_by_a_process_ends_its_records),
		row(test_sb_locks__close_before_the_mount_is_open_again_counts),
		row(test_sb_locks__what_ended_is_forgotten_with_the_last_that_was_awaited),
		row(test_sb_locks__ties_go_with_their_mount),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
