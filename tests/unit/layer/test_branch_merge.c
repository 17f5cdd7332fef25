// SPDX-License-Identifier: Apache-2.0
#include "support/branches.h"
#include "veneer/base/cleanup.h"
#include "veneer/layer/branch_merge.h"
#include "veneer/layer/snapshot_number.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORK BRANCH_DIR_NAME "/squash"

/* Three of a file each; a directory is in the first. */
static void take_three(struct branches *p)
{
	assert_int_equal(mkdirat(p->s.fd, "dir", 0755), 0);
	branches_put(p, "a");
	branches_take(p, 1, "one");
	branches_put(p, "b");
	branches_take(p, 2, "two");
	branches_put(p, "c");
	branches_take(p, 3, "three");
}

static const uint64_t upper_two[] = { 3, 2 };

/* What a merge would put into the new one: the directory has the number of another inode. */
static void fill(struct branches *p, const char *root, ino_t number)
{
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "%s/merged", root);
	branches_put(p, name);
	snprintf(name, sizeof(name), "%s/dir", root);
	assert_int_equal(mkdirat(p->s.fd, name, 0755), 0);
	fd = openat(p->s.fd, name, O_RDONLY | O_DIRECTORY);
	assert_int_equal(snapshot_number_write(fd, number), 0);
	close(fd);
}

static void begin(struct branches *p, ino_t number)
{
	int to = branch_merge_begin(p->s.fd, upper_two, 2);

	assert_true(to >= 0);
	fill(p, WORK, number);
	close(to);
}

static void publish(struct branches *p, const uint64_t ids[2])
{
	int fresh = branch_merge_publish(p->s.fd, ids, 2, true);

	assert_true(fresh >= 0);
	assert_int_equal(branch_merge_tidy(p->s.fd, ids[0]), 0);
	close(fresh);
}

static void check_merged(struct branches *p)
{
	struct branch_chain c;

	assert_false(branches_is_there(p, WORK));
	assert_false(branches_is_there(p, BRANCHES_AT("2")));
	assert_true(branches_is_there(p, BRANCHES_AT("3") "/merged"));
	assert_false(branches_is_there(p, BRANCHES_AT("3") "/" BRANCH_DIR_NAME "/new"));
	assert_false(branches_is_there(p, BRANCHES_AT("3") "/" BRANCHES_AT("2") "/b"));
	assert_false(branches_is_there(p, BRANCHES_AT("3") "/" BRANCHES_AT("3") "/c"));
	assert_int_equal(branch_dir_load(p->s.fd, &c), 0);
	assert_int_equal(c.n, 2);
	assert_int_equal(c.head, 3);
	assert_int_equal(branch_chain_by_id(&c, 3)->parent, 1);
	assert_string_equal(branch_chain_by_id(&c, 3)->name, "three");
	branch_chain_release(&c);
}

static void check_not_merged(struct branches *p)
{
	struct branch_chain c;

	assert_true(branches_is_there(p, BRANCHES_AT("2") "/b") &&
		    branches_is_there(p, BRANCHES_AT("3") "/c"));
	assert_int_equal(branch_dir_load(p->s.fd, &c), 0);
	assert_int_equal(c.n, 3);
	branch_chain_release(&c);
}

static void test_branch_merge__range_is_what_stands_on_one_another(void **state)
{
	struct branches *p = *state;
	uint64_t ids[8];
	size_t n;

	assert_int_equal(branch_merge_plan(&p->chain, NULL, NULL, ids, &n), -ENOENT);
	take_three(p);
	assert_int_equal(branch_merge_plan(&p->chain, NULL, NULL, ids, &n), 0);
	assert_int_equal(n, 3);
	assert_true(ids[0] == 3 && ids[1] == 2 && ids[2] == 1);
	assert_int_equal(branch_merge_plan(&p->chain, "one", "two", ids, &n), 0);
	assert_true(n == 2 && ids[0] == 2 && ids[1] == 1);
	assert_int_equal(branch_merge_plan(&p->chain, "three", "one", ids, &n), -ENOTDIR);
	assert_int_equal(branch_merge_plan(&p->chain, "two", "two", ids, &n), -EALREADY);
	assert_int_equal(branch_merge_plan(&p->chain, "none", "two", ids, &n), -ENOENT);
	/* Another one stands on the first. */
	p->chain.head = 1;
	branches_put(p, "d");
	branches_take(p, 4, "four");
	assert_int_equal(branch_merge_plan(&p->chain, NULL, "three", ids, &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(branch_merge_plan(&p->chain, "one", "three", ids, &n), -EBUSY);
	assert_int_equal(branch_merge_plan(&p->chain, NULL, NULL, ids, &n), -EALREADY);
}

static void test_branch_merge__new_one_takes_the_place_of_the_topmost(void **state)
{
	struct branches *p = *state;

	take_three(p);
	begin(p, 999999);
	check_not_merged(p);
	publish(p, upper_two);
	check_merged(p);
}

static void test_branch_merge__numbers_that_are_shown_stay_taken(void **state)
{
	struct branches *p = *state;
	struct stat dir, file, kept;

	take_three(p);
	assert_int_equal(mkdirat(p->s.fd, BRANCHES_AT("2") "/dir", 0755), 0);
	assert_int_equal(mkdirat(p->s.fd, BRANCHES_AT("2") "/other", 0755), 0);
	assert_int_equal(fstatat(p->s.fd, BRANCHES_AT("2") "/dir", &dir, 0), 0);
	assert_int_equal(fstatat(p->s.fd, BRANCHES_AT("3") "/c", &file, 0), 0);
	begin(p, dir.st_ino);
	{
		int fd = openat(p->s.fd, WORK "/merged", O_RDWR);

		assert_int_equal(snapshot_number_write(fd, file.st_ino), 0);
		close(fd);
	}
	publish(p, upper_two);
	assert_int_equal(fstatat(p->s.fd, BRANCHES_AT("3") "/" BRANCHES_AT("2") "/dir", &kept, 0),
			 0);
	assert_int_equal(kept.st_ino, dir.st_ino);
	assert_int_equal(fstatat(p->s.fd, BRANCHES_AT("3") "/" BRANCHES_AT("3") "/c", &kept, 0), 0);
	assert_int_equal(kept.st_ino, file.st_ino);
	assert_int_equal(kept.st_size, 0);
	assert_false(branches_is_there(p, BRANCHES_AT("3") "/" BRANCHES_AT("2") "/other"));
	assert_false(branches_is_there(p, BRANCHES_AT("3") "/" BRANCHES_AT("2") "/b"));
}

static void test_branch_merge__what_is_in_use_is_not_replaced(void **state)
{
	struct branches *p = *state;
	int held, to;

	take_three(p);
	held = branch_dir_open(p->s.fd, 2);
	assert_int_equal(branch_dir_hold(held), 0);
	begin(p, 1);
	assert_int_equal(branch_merge_publish(p->s.fd, upper_two, 2, true), -EUSERS);
	check_not_merged(p);
	branch_merge_cancel(p->s.fd);
	assert_false(branches_is_there(p, WORK));
	close(held);
	/* Nor is what is being filled. */
	to = branch_merge_begin(p->s.fd, upper_two, 2);
	assert_true(to >= 0);
	assert_int_equal(branch_dir_recover(p->s.fd), 0);
	assert_true(branches_is_there(p, WORK));
	assert_int_equal(branch_merge_begin(p->s.fd, upper_two, 2), -EEXIST);
	close(to);
	assert_int_equal(branch_dir_recover(p->s.fd), 0);
	assert_false(branches_is_there(p, WORK));
	/* Nor is another chain. */
	begin(p, 1);
	p->chain.head = 2;
	branches_put(p, "d");
	branches_take(p, 4, "four");
	assert_int_equal(branch_merge_publish(p->s.fd, upper_two, 2, true), -EBUSY);
	assert_true(branches_is_there(p, BRANCHES_AT("2") "/b") &&
		    branches_is_there(p, BRANCHES_AT("3") "/c"));
}

static void exchange(struct branches *p)
{
	assert_int_equal(renameat2(p->s.fd, WORK, p->s.fd, BRANCHES_AT("3"), RENAME_EXCHANGE), 0);
}

static void test_branch_merge__crash_before_the_exchange(void **state)
{
	struct branches *p = *state;

	take_three(p);
	begin(p, 1);
	check_not_merged(p);
	assert_int_equal(branch_dir_recover(p->s.fd), 0);
	check_not_merged(p);
	assert_false(branches_is_there(p, WORK));
}

static void test_branch_merge__crash_after_the_exchange(void **state)
{
	struct branches *p = *state;
	struct branch_chain c;

	take_three(p);
	begin(p, 1);
	exchange(p);
	/* A reader that writes nothing sees it. */
	assert_int_equal(branch_dir_load(p->s.fd, &c), 0);
	assert_int_equal(c.n, 2);
	assert_int_equal(branch_chain_by_id(&c, 3)->parent, 1);
	branch_chain_release(&c);
	assert_int_equal(branch_dir_recover(p->s.fd), 0);
	check_merged(p);
}

static void test_branch_merge__crash_while_the_old_ones_move(void **state)
{
	struct branches *p = *state;

	take_three(p);
	begin(p, 1);
	exchange(p);
	assert_int_equal(
		renameat(p->s.fd, BRANCHES_AT("2"), p->s.fd, BRANCHES_AT("3") "/" BRANCHES_AT("2")),
		0);
	assert_int_equal(branch_dir_recover(p->s.fd), 0);
	check_merged(p);
}

static void test_branch_merge__crash_before_the_old_ones_are_pruned(void **state)
{
	struct branches *p = *state;
	int fresh;

	take_three(p);
	begin(p, 1);
	fresh = branch_merge_publish(p->s.fd, upper_two, 2, true);
	assert_true(fresh >= 0);
	/* As long as somebody is about to do it nobody else does, and nothing else begins. */
	assert_int_equal(branch_dir_recover(p->s.fd), 0);
	assert_true(branches_is_there(p, BRANCHES_AT("3") "/" BRANCHES_AT("2") "/b"));
	assert_int_equal(branch_merge_begin(p->s.fd, upper_two, 1), -EEXIST);
	close(fresh);
	assert_int_equal(branch_dir_recover(p->s.fd), 0);
	check_merged(p);
}

static void test_branch_merge__chain_that_cannot_be_written_is_written_later(void **state)
{
	struct branches *p = *state;
	struct branch_chain c;
	int fresh;

	take_three(p);
	begin(p, 1);
	/* Nothing can have the name of the chain to be. */
	assert_int_equal(mkdirat(p->s.fd, BRANCH_DIR_NAME "/chain.new", 0755), 0);
	fresh = branch_merge_publish(p->s.fd, upper_two, 2, true);
	assert_true(fresh >= 0);
	assert_int_equal(branch_merge_tidy(p->s.fd, 3), -EBUSY);
	close(fresh);
	assert_int_equal(branch_dir_load(p->s.fd, &c), 0);
	assert_int_equal(c.n, 2);
	branch_chain_release(&c);
	/* A mount in use goes on with what was merged. */
	assert_true(branch_dir_recover(p->s.fd) < 0);
	assert_int_equal(branch_dir_recover_unmerged(p->s.fd), 0);
	assert_int_equal(branch_dir_load(p->s.fd, &c), 0);
	assert_int_equal(c.n, 2);
	branch_chain_release(&c);
	assert_int_equal(unlinkat(p->s.fd, BRANCH_DIR_NAME "/chain.new", AT_REMOVEDIR), 0);
	assert_int_equal(branch_dir_recover(p->s.fd), 0);
	check_merged(p);
}

static void test_branch_merge__one_without_its_name_is_the_merged_one_too(void **state)
{
	struct branches *p = *state;
	struct branch_chain c;

	take_three(p);
	begin(p, 1);
	assert_int_equal(mkdirat(p->s.fd, BRANCH_DIR_NAME "/chain.new", 0755), 0);
	close(branch_merge_publish(p->s.fd, upper_two, 2, true));
	assert_int_equal(renameat(p->s.fd, BRANCHES_AT("3"), p->s.fd, BRANCHES_AT("3") ".new"), 0);
	assert_int_equal(branch_dir_load(p->s.fd, &c), 0);
	assert_int_equal(c.n, 2);
	branch_chain_release(&c);
	assert_int_equal(unlinkat(p->s.fd, BRANCH_DIR_NAME "/chain.new", AT_REMOVEDIR), 0);
	assert_int_equal(branch_dir_recover(p->s.fd), 0);
	check_merged(p);
}

static void test_branch_merge__merged_one_is_merged_again(void **state)
{
	static const uint64_t all[] = { 3, 1 };
	struct branches *p = *state;
	struct stat dir, kept;
	int to;

	take_three(p);
	assert_int_equal(mkdirat(p->s.fd, BRANCHES_AT("2") "/dir", 0755), 0);
	assert_int_equal(fstatat(p->s.fd, BRANCHES_AT("2") "/dir", &dir, 0), 0);
	begin(p, dir.st_ino);
	publish(p, upper_two);
	to = branch_merge_begin(p->s.fd, all, 2);
	assert_true(to >= 0);
	fill(p, WORK, dir.st_ino);
	close(to);
	publish(p, all);
	assert_int_equal(fstatat(p->s.fd,
				 BRANCHES_AT("3") "/" BRANCHES_AT("3") "/" BRANCHES_AT("2") "/dir",
				 &kept, 0),
			 0);
	assert_int_equal(kept.st_ino, dir.st_ino);
	assert_false(branches_is_there(p, BRANCHES_AT("1")));
}

static void test_branch_merge__symlinks_lead_nowhere(void **state)
{
	struct branches *p = *state;

	take_three(p);
	branches_put(p, "away");
	assert_int_equal(symlinkat("..", p->s.fd, WORK), 0);
	check_not_merged(p);
	assert_int_equal(branch_dir_recover(p->s.fd), 0);
	assert_true(branches_is_there(p, "away"));
	assert_int_equal(branch_merge_begin(p->s.fd, upper_two, 2), -EEXIST);
	assert_int_equal(unlinkat(p->s.fd, WORK, 0), 0);
	assert_int_equal(mkdirat(p->s.fd, WORK, 0700), 0);
	assert_int_equal(symlinkat("../..", p->s.fd, BRANCHES_AT("3") "/" BRANCH_DIR_NAME), 0);
	check_not_merged(p);
	assert_int_equal(branch_dir_recover(p->s.fd), 0);
	assert_true(branches_is_there(p, "away"));
}

#define row(test) cmocka_unit_test_setup_teardown(test, branches_setup, branches_teardown)

/* The live part stands on n snapshots, the oldest of which is 1. */
static void chain_of(struct branch_chain *c, uint64_t n)
{
	for (uint64_t id = 1; id <= n; id++) {
		struct branch_chain_entry e = { .id = id, .parent = id - 1 };

		snprintf(e.name, sizeof(e.name), "s%u", (unsigned)id);
		assert_int_equal(branch_chain_add(c, &e), 0);
	}
	c->head = n;
}

static void test_branch_merge__oldest_are_chosen_when_there_are_twice_as_many(void **state)
{
	const struct branch_chain_entry above = { .id = 20, .parent = 2, .name = "above" },
					lower = { .id = 21, .parent = 1, .name = "lower" };
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	uint64_t ids[16];

	(void)state;
	assert_int_equal(branch_merge_choose_oldest(&c, 3, ids), 0);
	chain_of(&c, 6);
	assert_int_equal(branch_merge_choose_oldest(&c, 3, ids), 0);
	assert_int_equal(branch_merge_choose_oldest(&c, 0, ids), 0);
	assert_int_equal(branch_merge_choose_oldest(&c, 2, ids), 5);
	assert_true(ids[0] == 5 && ids[4] == 1);
	assert_int_equal(branch_merge_choose_oldest(&c, 1, ids), 6);
	assert_true(ids[0] == 6 && ids[5] == 1);
	assert_int_equal(branch_chain_add(&c, &above), 0);
	/* 2 may be the topmost of a row, and no other one of it. */
	assert_int_equal(branch_merge_choose_oldest(&c, 2, ids), 2);
	assert_true(ids[0] == 2 && ids[1] == 1);
	assert_int_equal(branch_chain_add(&c, &lower), 0);
	assert_int_equal(branch_merge_choose_oldest(&c, 2, ids), 3);
	assert_true(ids[0] == 5 && ids[2] == 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_branch_merge__oldest_are_chosen_when_there_are_twice_as_many),
		row(test_branch_merge__range_is_what_stands_on_one_another),
		row(test_branch_merge__new_one_takes_the_place_of_the_topmost),
		row(test_branch_merge__numbers_that_are_shown_stay_taken),
		row(test_branch_merge__what_is_in_use_is_not_replaced),
		row(test_branch_merge__crash_before_the_exchange),
		row(test_branch_merge__crash_after_the_exchange),
		row(test_branch_merge__crash_while_the_old_ones_move),
		row(test_branch_merge__crash_before_the_old_ones_are_pruned),
		row(test_branch_merge__chain_that_cannot_be_written_is_written_later),
		row(test_branch_merge__one_without_its_name_is_the_merged_one_too),
		row(test_branch_merge__merged_one_is_merged_again),
		row(test_branch_merge__symlinks_lead_nowhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
