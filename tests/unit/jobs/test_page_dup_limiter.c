// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/base/page_events.h"
#include "veneer/data/cow.h"
#include "veneer/jobs/page_dup_limiter.h"
#include "veneer/map/format.h"

#include <linux/fuse.h>
#include <poll.h>
#include <sys/socket.h>

#define WAIT_MS	  60000
#define STEP_MS	  1000 /* longer than a copy is left alone */
#define BIG	  (2 * CHUNK_BYTES + 3 * BLK_BYTES)
#define NO_READER 0

/* ---- notes ---- */

static struct page_dup_limiter_note describe(struct tree_dirs *d, const char *path, uint64_t off,
					     uint64_t len, bool *ret)
{
	struct page_dup_limiter_note n = { .count = 99 };
	struct inode *i = tree_get(d, path);

	*ret = page_dup_limiter_describe(i, d->t, off, len, &n);
	tree_forget(d, i);
	return n;
}

static void test_page_dup_limiter__pages_are_described_by_parts_of_the_lower_file(void **state)
{
	struct tree_dirs *d = *state;
	struct page_dup_limiter_note n;
	struct stat st;
	bool is_noted;

	free(tree_put_pattern(d, "lower/big", BIG, 1));
	tree_mount(d, "volatile");
	assert_int_equal(fstatat(d->s.fd, "lower/big", &st, 0), 0);
	n = describe(d, "big", 0, BIG, &is_noted);
	assert_true(is_noted);
	assert_int_equal(n.count, 3);
	assert_int_equal(n.last_nblk, 3);
	assert_int_equal(n.first.key.index, 0);
	assert_int_equal(n.first.key.ino, st.st_ino);
	assert_int_equal(n.first.key.dev, st.st_dev);
	n = describe(d, "big", CHUNK_BYTES, 1, &is_noted);
	assert_true(is_noted);
	assert_int_equal(n.first.key.index, 1);
	assert_int_equal(n.count, 1);
	assert_int_equal(n.last_nblk, 1);
	n = describe(d, "big", CHUNK_BYTES - 1, 2, &is_noted);
	assert_int_equal(n.first.key.index, 0);
	assert_int_equal(n.count, 2);
	n = describe(d, "big", 0, CHUNK_BYTES, &is_noted);
	assert_int_equal(n.count, 1);
	assert_int_equal(n.last_nblk, CHUNK_BLKS);
}

static void test_page_dup_limiter__what_shares_no_bytes_is_not_noted(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	bool is_noted;

	free(tree_put_pattern(d, "lower/big", BIG, 1));
	tree_put_text(d, "upper/made", "text");
	tree_put_text(d, "upper/whole", "text");
	tree_put_text(d, "lower/whole", "text");
	tree_mount(d, "volatile");
	describe(d, "big", 0, 0, &is_noted);
	assert_false(is_noted);
	/* An offset that no extent's number holds. */
	describe(d, "big", (uint64_t)UINT32_MAX * CHUNK_BYTES, 1, &is_noted);
	assert_false(is_noted);
	describe(d, "made", 0, 4, &is_noted);
	assert_false(is_noted);
	describe(d, "whole", 0, 4, &is_noted);
	assert_false(is_noted);
	/* A partial file has lower blocks yet. */
	i = tree_get(d, "big");
	assert_int_equal(cow_write(d->t, i, "x", 1, 0), 0);
	tree_forget(d, i);
	describe(d, "big", 0, 4, &is_noted);
	assert_true(is_noted);
}

/* ---- two mounts ---- */

struct pair {
	struct tree_dirs *d[2];
	int kernel[2], fd[2]; /* both ends */
	uint32_t number[2];
};

static int setup(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));
	char path[PATH_MAX + 16];

	for (int i = 0; p && i < 2; i++) {
		int ends[2];

		if (tree_setup((void **)&p->d[i]) < 0 ||
		    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
			return -1;
		p->kernel[i] = ends[0];
		p->fd[i] = ends[1];
	}
	if (!p)
		return -1;
	free(tree_put_pattern(p->d[0], "lower/big", BIG, 1));
	free(tree_put_pattern(p->d[0], "lower/lib.so", BIG, 2));
	snprintf(path, sizeof(path), "%s/lower", p->d[0]->s.path);
	if (unlinkat(p->d[1]->s.fd, "lower", AT_REMOVEDIR) < 0 ||
	    symlinkat(path, p->d[1]->s.fd, "lower") < 0)
		return -1;
	for (int i = 0; i < 2; i++)
		tree_mount(p->d[i], "volatile");
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	struct pair *p = *state;

	for (int i = 0; i < 2; i++) {
		page_dup_limiter_leave(p->number[i]);
		close(p->kernel[i]);
		close(p->fd[i]);
	}
	tree_teardown((void **)&p->d[1]);
	tree_teardown((void **)&p->d[0]);
	free(p);
	return 0;
}

/* One copy of each extent may stay. */
static void enter(struct pair *p, int i)
{
	assert_int_equal(page_dup_limiter_enter(p->d[i]->t, p->fd[i], 1, &p->number[i]), 0);
	assert_int_not_equal(p->number[i], 0);
}

/* The node id; a mount's kernel holds the file. */
static uint32_t send_all(struct pair *p, int i, const char *path, uint32_t reader)
{
	struct inode *f = tree_get(p->d[i], path);
	struct page_dup_limiter_note n;
	uint32_t id, generation;

	inode_grant(p->d[i]->t, f, &id, &generation);
	assert_true(page_dup_limiter_describe(f, p->d[i]->t, 0, BIG, &n));
	n.first.mount = p->number[i];
	n.first.reader = reader;
	page_dup_limiter_sent(&n);
	return id;
}

/* The kernel of a mount is told to drop pages. */
struct drop {
	struct fuse_out_header head;
	struct fuse_notify_inval_inode_out what;
};

static int next_drop(struct pair *p, struct drop *ret, int wait_ms)
{
	struct pollfd fds[2] = { { .fd = p->kernel[0], .events = POLLIN },
				 { .fd = p->kernel[1], .events = POLLIN } };

	if (poll(fds, 2, wait_ms) < 1)
		return -1;
	for (int i = 0; i < 2; i++)
		if (fds[i].revents & POLLIN) {
			assert_int_equal(recv(p->kernel[i], ret, sizeof(*ret), 0), sizeof(*ret));
			assert_int_equal(ret->head.error, FUSE_NOTIFY_INVAL_INODE);
			return i;
		}
	return -1;
}

static void test_page_dup_limiter__second_copy_of_an_extent_is_dropped(void **state)
{
	struct page_dup_limiter_usage u;
	struct pair *p = *state;
	uint32_t node[2];
	struct drop drop;
	unsigned n = 0;

	enter(p, 0);
	enter(p, 1);
	node[0] = send_all(p, 0, "big", NO_READER);
	node[1] = send_all(p, 1, "big", NO_READER);
	/* Of three extents one copy each. */
	while (n < 3) {
		const int i = next_drop(p, &drop, WAIT_MS);

		assert_true(i >= 0);
		assert_int_equal(drop.what.ino, node[i]);
		assert_int_equal(drop.what.off % CHUNK_BYTES, 0);
		assert_int_equal(drop.what.len, CHUNK_BYTES);
		n++;
	}
	page_dup_limiter_leave(p->number[0]);
	page_dup_limiter_leave(p->number[1]);
	p->number[0] = p->number[1] = 0;
	/* None was dropped twice. */
	assert_int_equal(next_drop(p, &drop, 0), -1);
	page_dup_limiter_usage(&u);
	assert_int_equal(u.lost, 0);
}

/* Of a file that was changed only the lower blocks are shared. */
static void test_page_dup_limiter__own_blocks_stay(void **state)
{
	struct pair *p = *state;
	struct drop drop;
	struct inode *f;
	unsigned n = 0;

	f = tree_get(p->d[0], "big");
	assert_int_equal(cow_write(p->d[0]->t, f, "x", 1, BLK_BYTES), 0);
	tree_forget(p->d[0], f);
	f = tree_get(p->d[1], "big");
	assert_int_equal(cow_write(p->d[1]->t, f, "x", 1, BLK_BYTES), 0);
	tree_forget(p->d[1], f);
	enter(p, 0);
	enter(p, 1);
	send_all(p, 0, "big", NO_READER);
	send_all(p, 1, "big", NO_READER);
	/* The first extent in two parts around the own block, and the two others. */
	while (n < 4) {
		assert_true(next_drop(p, &drop, WAIT_MS) >= 0);
		assert_true(drop.what.off > (int64_t)BLK_BYTES ||
			    drop.what.off + drop.what.len <= (int64_t)BLK_BYTES);
		n++;
	}
}

static void test_page_dup_limiter__library_of_a_process_that_lives_stays(void **state)
{
	struct pair *p = *state;
	struct drop drop;
	uint32_t big[2];

	enter(p, 0);
	enter(p, 1);
	send_all(p, 0, "lib.so", (uint32_t)getpid());
	send_all(p, 1, "lib.so", (uint32_t)getpid());
	big[0] = send_all(p, 0, "big", (uint32_t)getpid());
	big[1] = send_all(p, 1, "big", (uint32_t)getpid());
	/* What follows it in the same slices is dropped. */
	for (unsigned n = 0; n < 3; n++) {
		const int i = next_drop(p, &drop, WAIT_MS);

		assert_true(i >= 0);
		assert_int_equal(drop.what.ino, big[i]);
	}
}

static void test_page_dup_limiter__mount_that_left_is_told_nothing(void **state)
{
	struct pair *p = *state;
	struct drop drop;

	page_dup_limiter_leave(0);
	enter(p, 0);
	enter(p, 1);
	send_all(p, 0, "big", NO_READER);
	send_all(p, 1, "big", NO_READER);
	page_dup_limiter_leave(p->number[0]);
	page_dup_limiter_leave(p->number[1]);
	page_dup_limiter_leave(p->number[1]);
	p->number[0] = p->number[1] = 0;
	while (next_drop(p, &drop, 0) >= 0)
		;
	/* Numbers are never used twice. */
	enter(p, 0);
	assert_true(p->number[0] > 2);
	assert_int_equal(next_drop(p, &drop, 0), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_page_dup_limiter__pages_are_described_by_parts_of_the_lower_file,
			tree_setup, tree_teardown),
		cmocka_unit_test_setup_teardown(
			test_page_dup_limiter__what_shares_no_bytes_is_not_noted, tree_setup,
			tree_teardown),
		cmocka_unit_test_setup_teardown(
			test_page_dup_limiter__second_copy_of_an_extent_is_dropped, setup,
			teardown),
		cmocka_unit_test_setup_teardown(test_page_dup_limiter__own_blocks_stay, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			test_page_dup_limiter__library_of_a_process_that_lives_stays, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			test_page_dup_limiter__mount_that_left_is_told_nothing, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
