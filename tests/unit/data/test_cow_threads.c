// SPDX-License-Identifier: Apache-2.0
/* Several threads at one file. What they find out is asserted by the test's own thread. */
#include "support/model.h"

#include "veneer/data/attr.h"
#include "veneer/data/copyup.h"
#include "veneer/data/cow.h"
#include "veneer/data/cow_fsync.h"
#include "veneer/data/read.h"
#include "veneer/data/remove.h"
#include "veneer/data/rename.h"
#include "veneer/union/lookup.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define NTHREADS 4
#define NBLK	 400u

struct team {
	struct tree_dirs *d;
	struct inode *i, *dir;
	const char *lower; /* what the file was */
	unsigned rounds;
	_Atomic bool is_over;
	_Atomic int ready;
};

struct member {
	struct team *team;
	unsigned nr;
	int result;
	pthread_t thread;
};

static void start_together(struct team *team)
{
	team->ready++;
	while (team->ready < NTHREADS)
		sched_yield();
}

static void fill_own(char *p, blk_t blk, unsigned nr)
{
	tree_pattern(p, BLK_BYTES, 1000 + blk * NTHREADS + nr);
}

/* Every NTHREADS-th block is this thread's. */
static void *write_own_blocks(void *arg)
{
	struct member *me = arg;
	char p[BLK_BYTES];

	start_together(me->team);
	for (blk_t blk = me->nr; blk < NBLK && me->result == 0; blk += NTHREADS) {
		fill_own(p, blk, me->nr);
		me->result = cow_write(me->team->d->t, me->team->i, p, sizeof(p),
				       (off_t)(blk << BLK_SHIFT));
	}
	return NULL;
}

static void *copy_up(void *arg)
{
	struct member *me = arg;

	start_together(me->team);
	me->result = copyup_inode(me->team->d->t, me->team->i, NULL);
	return NULL;
}

/* A block is the lower file's or its writer's, never a mix. */
static int check_block(const struct team *team, const char *p, blk_t blk)
{
	char own[BLK_BYTES];

	if (!memcmp(p, team->lower + (blk << BLK_SHIFT), BLK_BYTES))
		return 0;
	fill_own(own, blk, blk % NTHREADS);
	return memcmp(p, own, BLK_BYTES) ? -EBADMSG : 0;
}

static void *read_and_stat(void *arg)
{
	struct member *me = arg;
	struct team *team = me->team;
	char *p = malloc(8 * BLK_BYTES);
	uint64_t state = me->nr + 1;

	while (!team->is_over && me->result == 0) {
		blk_t blk = tree_random(&state) % (NBLK - 8);
		ssize_t n =
			read_file(team->d->t, team->i, p, 8 * BLK_BYTES, (off_t)(blk << BLK_SHIFT));
		struct stat st;

		if (n != 8 * BLK_BYTES)
			me->result = n < 0 ? (int)n : -EIO;
		for (unsigned k = 0; k < 8 && me->result == 0; k++)
			me->result = check_block(team, p + k * BLK_BYTES, blk + k);
		if (me->result == 0)
			me->result = lookup_stat(team->d->t, team->i, &st);
		if (me->result == 0 && st.st_size != NBLK * BLK_BYTES)
			me->result = -ESTALE;
	}
	free(p);
	return NULL;
}

static void *look_and_forget(void *arg)
{
	struct member *me = arg;
	struct union_fs *t = me->team->d->t;

	while (!me->team->is_over && me->result == 0) {
		struct inode *i;
		struct stat st;

		me->result = lookup_name(t, me->team->dir, "big", &i, &st);
		if (me->result == 0)
			inode_unref(t, i);
	}
	return NULL;
}

static void *sync_often(void *arg)
{
	struct member *me = arg;

	while (!me->team->is_over && me->result == 0)
		me->result = cow_fsync(me->team->d->t, me->team->i, true);
	return NULL;
}

static void *rename_to_and_fro(void *arg)
{
	struct member *me = arg;
	struct team *team = me->team;

	for (unsigned k = 0; k < team->rounds && me->result == 0; k++)
		me->result = rename_entry(team->d->t, team->dir, k % 2 ? "moved" : "big", team->dir,
					  k % 2 ? "big" : "moved", 0);
	return NULL;
}

static void start(struct team *team, struct member *m, unsigned nr, void *(*fn)(void *))
{
	*m = (struct member){ .team = team, .nr = nr };
	assert_int_equal(pthread_create(&m->thread, NULL, fn, m), 0);
}

static void finish(struct member *m)
{
	pthread_join(m->thread, NULL);
	assert_int_equal(m->result, 0);
}

static void open_team(struct team *team, struct tree_dirs *d)
{
	*team = (struct team){ .d = d, .rounds = 60 };
	team->lower = tree_put_pattern(d, "lower/dir/big", NBLK * BLK_BYTES, 9);
	tree_mount(d, "volatile");
	team->dir = tree_get(d, "dir");
	team->i = tree_get(d, "dir/big");
}

static char *all_written(void)
{
	char *data = malloc(NBLK * BLK_BYTES);

	assert_non_null(data);
	for (blk_t blk = 0; blk < NBLK; blk++)
		fill_own(data + (blk << BLK_SHIFT), blk, blk % NTHREADS);
	return data;
}

/* Nothing half made is left in the work directory, but for a map that is made ahead. */
static void expect_work_empty(struct tree_dirs *d)
{
	int fd = openat(d->t->workfd, ".", O_RDONLY | O_DIRECTORY);
	DIR *dir = fdopendir(fd);
	struct dirent *de;

	assert_non_null(dir);
	while ((de = readdir(dir)))
		if (strcmp(de->d_name, ".") && strcmp(de->d_name, "..") &&
		    strcmp(de->d_name, "#whiteout") &&
		    strncmp(de->d_name, "veneer-map-", strlen("veneer-map-")))
			fail_msg("%s is left", de->d_name);
	closedir(dir);
}

static void write_all(struct team *team, void *(*other)(void *), unsigned nothers)
{
	struct member writers[NTHREADS], others[2];

	for (unsigned k = 0; k < nothers; k++)
		start(team, &others[k], k, other);
	for (unsigned k = 0; k < NTHREADS; k++)
		start(team, &writers[k], k, write_own_blocks);
	for (unsigned k = 0; k < NTHREADS; k++)
		finish(&writers[k]);
	team->is_over = true;
	for (unsigned k = 0; k < nothers; k++)
		finish(&others[k]);
}

static void expect_all_written(struct team *team, const char *path)
{
	char *data = all_written();

	tree_expect_inode(team->d, team->i, data, NBLK * BLK_BYTES);
	tree_unmount(team->d);
	tree_mount(team->d, "volatile");
	if (path)
		tree_expect(team->d, path, data, NBLK * BLK_BYTES);
	free(data);
	free((char *)team->lower);
}

static void test_cow__first_writes_of_several_threads_are_all_kept(void **state)
{
	struct team team;

	open_team(&team, *state);
	write_all(&team, NULL, 0);
	expect_work_empty(*state);
	assert_int_equal(mapfile_count(team.d->t->map), 1);
	expect_all_written(&team, "dir/big");
}

static void test_cow__readers_see_whole_blocks_while_it_is_written(void **state)
{
	struct team team;

	open_team(&team, *state);
	write_all(&team, read_and_stat, 2);
	expect_all_written(&team, "dir/big");
}

static void test_cow__lookups_go_on_while_it_is_written(void **state)
{
	struct team team;

	open_team(&team, *state);
	write_all(&team, look_and_forget, 2);
	expect_all_written(&team, "dir/big");
}

static void test_cow__syncs_go_on_while_it_is_written(void **state)
{
	struct team team;

	open_team(&team, *state);
	write_all(&team, sync_often, 1);
	expect_all_written(&team, "dir/big");
}

static void test_cow_threads__several_threads_make_one_file(void **state)
{
	struct team team;
	struct member members[NTHREADS];

	open_team(&team, *state);
	for (unsigned k = 0; k < NTHREADS; k++)
		start(&team, &members[k], k, copy_up);
	for (unsigned k = 0; k < NTHREADS; k++)
		finish(&members[k]);
	expect_work_empty(*state);
	assert_int_equal(mapfile_count(team.d->t->map), 1);
	tree_expect(team.d, "dir/big", team.lower, NBLK * BLK_BYTES);
	free((char *)team.lower);
}

static void test_cow__writes_follow_the_file_through_renames(void **state)
{
	struct team team;
	struct member mover;

	open_team(&team, *state);
	start(&team, &mover, 0, rename_to_and_fro);
	write_all(&team, read_and_stat, 1);
	finish(&mover);
	expect_all_written(&team, "dir/big");
	tree_expect_names(*state, "dir", "big");
}

static void test_cow__writes_go_on_after_the_unlink_and_leave_no_name(void **state)
{
	struct tree_dirs *d = *state;

	for (unsigned round = 0; round < 6; round++) {
		struct member writers[NTHREADS];
		struct team team;
		char *data = all_written();

		open_team(&team, d);
		for (unsigned k = 0; k < NTHREADS; k++)
			start(&team, &writers[k], k, write_own_blocks);
		usleep(round * 300);
		assert_int_equal(remove_file(d->t, team.dir, "big"), 0);
		for (unsigned k = 0; k < NTHREADS; k++)
			finish(&writers[k]);
		tree_expect_inode(d, team.i, data, NBLK * BLK_BYTES);
		assert_null(tree_look(d, "dir/big"));
		tree_forget(d, team.i);
		assert_int_equal(mapfile_count(d->t->map), 0);
		expect_work_empty(d);
		tree_unmount(d);
		tree_mount(d, "volatile");
		assert_null(tree_look(d, "dir/big"));
		tree_unmount(d);
		/* The next round begins with the lower file alone. */
		tree_freeze(d);
		tree_layers(d, "lower");
		free((char *)team.lower);
		free(data);
	}
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_cow_threads__several_threads_make_one_file),
		row(test_cow__first_writes_of_several_threads_are_all_kept),
		row(test_cow__readers_see_whole_blocks_while_it_is_written),
		row(test_cow__lookups_go_on_while_it_is_written),
		row(test_cow__syncs_go_on_while_it_is_written),
		row(test_cow__writes_follow_the_file_through_renames),
		row(test_cow__writes_go_on_after_the_unlink_and_leave_no_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
