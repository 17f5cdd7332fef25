// SPDX-License-Identifier: Apache-2.0
#include "support/branches.h"
#include "veneer/map/mapfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_branch_dir__all_entries_move_into_the_snapshot(void **state)
{
	struct branches *p = *state;
	struct branch_chain c;
	struct stat before, root, snap;
	int fd;

	branches_put(p, "a");
	assert_int_equal(mkdirat(p->s.fd, "d", 0755), 0);
	branches_put(p, "d/b");
	assert_int_equal(fchmod(p->s.fd, 0751), 0);
	assert_int_equal(fstat(p->s.fd, &before), 0);
	assert_int_equal(branch_dir_load(p->s.fd, &c), -ENOENT);
	branches_take(p, 1, "one");
	assert_true(branches_is_there(p, BRANCHES_AT("1") "/a") &&
		    branches_is_there(p, BRANCHES_AT("1") "/d/b"));
	assert_false(branches_is_there(p, "a") || branches_is_there(p, "d"));
	assert_int_equal(fstat(p->s.fd, &root), 0);
	assert_int_equal(root.st_mtim.tv_sec, before.st_mtim.tv_sec);
	assert_int_equal(root.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
	fd = branch_dir_open(p->s.fd, 1);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &snap), 0);
	assert_int_equal(snap.st_mode, before.st_mode);
	assert_int_equal(snap.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
	close(fd);
	branches_put(p, "a");
	branches_take(p, 2, "two");
	assert_true(branches_is_there(p, BRANCHES_AT("1") "/a") &&
		    branches_is_there(p, BRANCHES_AT("2") "/a"));
	assert_int_equal(branch_dir_load(p->s.fd, &c), 0);
	assert_int_equal(c.head, 2);
	assert_int_equal(branch_chain_below(&c, c.head, NULL), 2);
	branch_chain_release(&c);
	assert_int_equal(branch_dir_open(p->s.fd, 3), -ENOENT);
}

#define CHAIN_NEW BRANCH_DIR_NAME "/chain.new"

static void test_branch_dir__a_forged_new_chain_is_not_written(void **state)
{
	struct branches *p = *state;
	struct stat st;

	branches_take(p, 1, "one");
	branches_put(p, "other");
	assert_int_equal(linkat(p->s.fd, "other", p->s.fd, CHAIN_NEW, 0), 0);
	branches_take(p, 2, "two");
	assert_int_equal(fstatat(p->s.fd, BRANCHES_AT("2") "/other", &st, 0), 0);
	assert_true(st.st_nlink == 1 && st.st_size == (off_t)strlen("other"));
	/* Whoever opens it for writing waits for a reader. */
	assert_int_equal(mkfifoat(p->s.fd, CHAIN_NEW, 0600), 0);
	branches_take(p, 3, "three");
	assert_false(branches_is_there(p, CHAIN_NEW));
}

static void test_branch_dir__one_that_cannot_be_dissolved_stays(void **state)
{
	struct branches *p = *state;

	branches_put(p, "a");
	branches_take(p, 1, "one");
	assert_int_equal(mkdirat(p->s.fd, CHAIN_NEW, 0700), 0);
	assert_true(branch_dir_dissolve(p->s.fd) < 0);
	assert_true(branches_is_there(p, BRANCHES_AT("1") "/a"));
	assert_int_equal(unlinkat(p->s.fd, CHAIN_NEW, AT_REMOVEDIR), 0);
	assert_int_equal(branch_dir_dissolve(p->s.fd), 0);
	assert_true(branches_is_there(p, "a"));
}

static void test_branch_dir__crash_before_the_chain_takes_it_back(void **state)
{
	struct branches *p = *state;

	branches_put(p, "old");
	branches_take(p, 1, "one");
	branches_put(p, "moved");
	branches_put(p, "left");
	assert_int_equal(mkdirat(p->s.fd, BRANCHES_AT("2") ".new", 0700), 0);
	assert_int_equal(renameat(p->s.fd, "moved", p->s.fd, BRANCHES_AT("2") ".new/moved"), 0);
	assert_int_equal(branch_dir_recover(p->s.fd), 0);
	assert_true(branches_is_there(p, "moved") && branches_is_there(p, "left"));
	assert_false(branches_is_there(p, BRANCHES_AT("2") ".new"));
	assert_true(branches_is_there(p, BRANCHES_AT("1") "/old"));
	assert_int_equal(branch_dir_recover(p->s.fd), 0);
}

static void test_branch_dir__crash_after_the_chain_finishes_it(void **state)
{
	struct branches *p = *state;
	int fd;

	branches_put(p, "a");
	branches_take(p, 1, "one");
	assert_int_equal(renameat(p->s.fd, BRANCHES_AT("1"), p->s.fd, BRANCHES_AT("1") ".new"), 0);
	fd = branch_dir_open(p->s.fd, 1);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(branch_dir_recover(p->s.fd), 0);
	assert_true(branches_is_there(p, BRANCHES_AT("1") "/a"));
}

static ino_t number_of(struct branches *p, const char *name)
{
	struct stat st;

	return fstatat(p->s.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_ino : 0;
}

static void test_branch_dir__map_is_where_its_files_are(void **state)
{
	struct branches *p = *state;
	ino_t map, next;

	branches_put(p, "a");
	branches_put(p, MAPFILE_NAME);
	map = number_of(p, MAPFILE_NAME);
	branches_take(p, 1, "one");
	assert_int_equal(number_of(p, BRANCHES_AT("1") "/" MAPFILE_NAME), map);
	assert_false(branches_is_there(p, MAPFILE_NAME));
	/* A crash while entries move: it has both names. */
	branches_put(p, "b");
	branches_put(p, "c");
	branches_put(p, MAPFILE_NAME);
	next = number_of(p, MAPFILE_NAME);
	assert_int_equal(mkdirat(p->s.fd, BRANCHES_AT("2") ".new", 0700), 0);
	assert_int_equal(
		linkat(p->s.fd, MAPFILE_NAME, p->s.fd, BRANCHES_AT("2") ".new/" MAPFILE_NAME, 0),
		0);
	assert_int_equal(renameat(p->s.fd, "b", p->s.fd, BRANCHES_AT("2") ".new/b"), 0);
	assert_int_equal(branch_dir_recover(p->s.fd), 0);
	assert_true(branches_is_there(p, "b") && branches_is_there(p, "c"));
	assert_int_equal(number_of(p, MAPFILE_NAME), next);
	assert_false(branches_is_there(p, BRANCHES_AT("2") ".new"));
	/* One that had moved is another's now. */
	assert_int_equal(unlinkat(p->s.fd, MAPFILE_NAME, 0), 0);
	assert_int_equal(
		linkat(p->s.fd, BRANCHES_AT("1") "/" MAPFILE_NAME, p->s.fd, MAPFILE_NAME, 0), 0);
	assert_int_equal(branch_dir_is_interrupted(p->s.fd, &p->chain), 1);
	assert_int_equal(branch_dir_recover(p->s.fd), 0);
	assert_int_equal(branch_dir_is_interrupted(p->s.fd, &p->chain), 0);
	assert_false(branches_is_there(p, MAPFILE_NAME));
	assert_int_equal(number_of(p, BRANCHES_AT("1") "/" MAPFILE_NAME), map);
	/* Also of one that the live part does not stand on, after going back. */
	branches_put(p, "d");
	branches_put(p, MAPFILE_NAME);
	map = number_of(p, MAPFILE_NAME);
	branches_add(p, 3, "three");
	p->chain.head = 1;
	assert_int_equal(branch_dir_take(p->s.fd, 3, &p->chain, true), 0);
	assert_int_equal(
		linkat(p->s.fd, BRANCHES_AT("3") "/" MAPFILE_NAME, p->s.fd, MAPFILE_NAME, 0), 0);
	assert_int_equal(branch_dir_recover(p->s.fd), 0);
	assert_false(branches_is_there(p, MAPFILE_NAME));
	assert_int_equal(number_of(p, BRANCHES_AT("3") "/" MAPFILE_NAME), map);
	/* And one that is the live part's own stays. */
	branches_put(p, MAPFILE_NAME);
	assert_int_equal(branch_dir_recover(p->s.fd), 0);
	assert_true(branches_is_there(p, MAPFILE_NAME));
}

static void test_branch_dir__readers_learn_of_what_a_crash_left(void **state)
{
	struct branches *p = *state;
	uint64_t id = 99;

	assert_int_equal(branch_dir_pending(p->s.fd, &p->chain, &id), 0);
	assert_int_equal(id, 0);
	branches_take(p, 1, "one");
	assert_int_equal(renameat(p->s.fd, BRANCHES_AT("1"), p->s.fd, BRANCHES_AT("1") ".new"), 0);
	assert_int_equal(branch_dir_pending(p->s.fd, &p->chain, &id), 0);
	assert_int_equal(id, 0);
	assert_int_equal(mkdirat(p->s.fd, BRANCHES_AT("2") ".new", 0700), 0);
	assert_int_equal(branch_dir_pending(p->s.fd, &p->chain, &id), 0);
	assert_int_equal(id, 2);
	assert_int_equal(mkdirat(p->s.fd, BRANCHES_AT("3") ".new", 0700), 0);
	assert_int_equal(branch_dir_pending(p->s.fd, &p->chain, &id), -EUCLEAN);
}

static void test_branch_dir__failure_leaves_everything_where_it_was(void **state)
{
	struct branches *p = *state;
	struct branch_chain c;

	branches_put(p, "a");
	branches_take(p, 1, "one");
	branches_put(p, "b");
	/* The chain cannot be replaced by a file. */
	assert_int_equal(unlinkat(p->s.fd, BRANCH_DIR_NAME "/chain", 0), 0);
	assert_int_equal(mkdirat(p->s.fd, BRANCH_DIR_NAME "/chain", 0700), 0);
	assert_int_equal(mkdirat(p->s.fd, BRANCH_DIR_NAME "/chain/full", 0700), 0);
	branches_add(p, 2, "two");
	assert_true(branch_dir_take(p->s.fd, 2, &p->chain, true) < 0);
	assert_true(branches_is_there(p, "b"));
	assert_false(branches_is_there(p, BRANCHES_AT("2")) ||
		     branches_is_there(p, BRANCHES_AT("2") ".new"));
	assert_int_equal(branch_dir_load(p->s.fd, &c), -EUCLEAN);
}

static void test_branch_dir__symlinks_lead_nowhere(void **state)
{
	struct branches *p = *state;
	struct branch_chain c;

	branches_put(p, "a");
	branches_take(p, 1, "one");
	assert_int_equal(symlinkat("/", p->s.fd, BRANCHES_AT("5")), 0);
	assert_true(branch_dir_open(p->s.fd, 5) < 0);
	assert_int_equal(unlinkat(p->s.fd, BRANCH_DIR_NAME "/chain", 0), 0);
	assert_int_equal(symlinkat("/etc/passwd", p->s.fd, BRANCH_DIR_NAME "/chain"), 0);
	assert_int_equal(branch_dir_load(p->s.fd, &c), -EUCLEAN);
	assert_int_equal(renameat(p->s.fd, BRANCH_DIR_NAME, p->s.fd, "away"), 0);
	assert_int_equal(symlinkat("away", p->s.fd, BRANCH_DIR_NAME), 0);
	assert_int_equal(branch_dir_load(p->s.fd, &c), -EUCLEAN);
	assert_true(branch_dir_open(p->s.fd, 1) < 0);
	assert_true(branch_dir_recover(p->s.fd) < 0);
	assert_true(branch_dir_take(p->s.fd, 2, &p->chain, true) < 0);
	assert_true(branches_is_there(p, "away"));
}

/* Two, of which the live part stands on the first. */
static void take_two_and_go_back(struct branches *p)
{
	branches_put(p, "a");
	branches_take(p, 1, "one");
	branches_put(p, "b");
	branches_add(p, 2, "two");
	p->chain.head = 1;
	assert_int_equal(branch_dir_take(p->s.fd, 2, &p->chain, true), 0);
}

static void test_branch_dir__one_that_nothing_stands_on_can_go(void **state)
{
	struct branches *p = *state;
	struct branch_chain c;
	int lock, fd;

	assert_int_equal(branch_dir_lock(p->s.fd), -ENOENT);
	take_two_and_go_back(p);
	lock = branch_dir_lock(p->s.fd);
	assert_true(lock >= 0);
	assert_int_equal(branch_dir_lock(p->s.fd), -EBUSY);
	assert_int_equal(branch_dir_delete(p->s.fd, "none"), -ENOENT);
	assert_int_equal(branch_dir_delete(p->s.fd, "one"), -EBUSY);
	fd = branch_dir_open(p->s.fd, 2);
	assert_int_equal(branch_dir_hold(fd), 0);
	assert_int_equal(branch_dir_delete(p->s.fd, "two"), -EUSERS);
	assert_true(branches_is_there(p, BRANCHES_AT("2") "/b"));
	close(fd);
	assert_int_equal(branch_dir_delete(p->s.fd, "two"), 0);
	close(lock);
	assert_false(branches_is_there(p, BRANCHES_AT("2")) ||
		     branches_is_there(p, BRANCHES_AT("2") ".old"));
	assert_int_equal(branch_dir_load(p->s.fd, &c), 0);
	assert_int_equal(c.n, 1);
	branch_chain_release(&c);
}

static void test_branch_dir__crash_while_one_goes(void **state)
{
	struct branches *p = *state;

	take_two_and_go_back(p);
	assert_int_equal(renameat(p->s.fd, BRANCHES_AT("2"), p->s.fd, BRANCHES_AT("2") ".old"), 0);
	assert_int_equal(mkdirat(p->s.fd, BRANCHES_AT("3") ".old", 0700), 0);
	assert_int_equal(branch_dir_recover(p->s.fd), 0);
	assert_true(branches_is_there(p, BRANCHES_AT("2") "/b"));
	assert_false(branches_is_there(p, BRANCHES_AT("3") ".old"));
}

#define row(test) cmocka_unit_test_setup_teardown(test, branches_setup, branches_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_branch_dir__all_entries_move_into_the_snapshot),
		row(test_branch_dir__a_forged_new_chain_is_not_written),
		row(test_branch_dir__one_that_cannot_be_dissolved_stays),
		row(test_branch_dir__crash_before_the_chain_takes_it_back),
		row(test_branch_dir__crash_after_the_chain_finishes_it),
		row(test_branch_dir__map_is_where_its_files_are),
		row(test_branch_dir__readers_learn_of_what_a_crash_left),
		row(test_branch_dir__failure_leaves_everything_where_it_was),
		row(test_branch_dir__symlinks_lead_nowhere),
		row(test_branch_dir__one_that_nothing_stands_on_can_go),
		row(test_branch_dir__crash_while_one_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
