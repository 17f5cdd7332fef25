// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/cow.h"
#include "veneer/jobs/checkpoint.h"

#include <pthread.h>
#include <time.h>

static void test_checkpoint__stops_without_waiting_for_its_interval(void **state)
{
	struct tree_dirs *d = *state;
	struct timespec before, after;
	struct worker *c;

	tree_mount(d, "volatile");
	assert_int_equal(checkpoint_start(d->t, &c), 0);
	clock_gettime(CLOCK_MONOTONIC, &before);
	worker_stop(c);
	clock_gettime(CLOCK_MONOTONIC, &after);
	assert_true(after.tv_sec - before.tv_sec < 3);
	worker_stop(NULL);
}

static void test_checkpoint__mount_without_upper_has_none(void **state)
{
	struct tree_dirs *d = *state;

	tree_mount(d, "ro");
	assert_null(d->m.checkpoint);
}

static void test_checkpoint__log_that_was_made_short_shows_the_same_bytes(void **state)
{
	struct tree_dirs *d = *state;
	const size_t len = 400 * BLK_BYTES;
	char *data = tree_put_pattern(d, "lower/f", len, 1);
	struct inode *i;

	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	for (unsigned k = 0; k < 400; k += 3) {
		data[k * BLK_BYTES] = 'x';
		assert_int_equal(cow_write(d->t, i, "x", 1, k * BLK_BYTES), 0);
		if (k % 60 == 0)
			assert_int_equal(mapfile_checkpoint(d->t->map, true), 0);
	}
	tree_expect_inode(d, i, data, len);
	tree_unmount(d);
	tree_mount(d, "volatile");
	tree_expect(d, "f", data, len);
	free(data);
}

struct writer {
	struct tree_dirs *d;
	struct inode *i;
	int result;
};

static void *write_on(void *arg)
{
	struct writer *w = arg;

	for (unsigned k = 0; k < 400 && w->result == 0; k++)
		w->result = cow_write(w->d->t, w->i, "x", 1, k * BLK_BYTES);
	return NULL;
}

static void test_checkpoint__writes_go_on_meanwhile_and_are_kept(void **state)
{
	struct tree_dirs *d = *state;
	const size_t len = 400 * BLK_BYTES;
	char *data = tree_put_pattern(d, "lower/f", len, 1);
	struct writer w = { .d = d };
	pthread_t thread;

	tree_mount(d, "volatile");
	w.i = tree_get(d, "f");
	assert_int_equal(pthread_create(&thread, NULL, write_on, &w), 0);
	for (unsigned k = 0; k < 30; k++)
		assert_int_equal(mapfile_checkpoint(d->t->map, true), 0);
	pthread_join(thread, NULL);
	assert_int_equal(w.result, 0);
	for (unsigned k = 0; k < 400; k++)
		data[k * BLK_BYTES] = 'x';
	tree_expect_inode(d, w.i, data, len);
	tree_unmount(d);
	tree_mount(d, "volatile");
	tree_expect(d, "f", data, len);
	free(data);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_checkpoint__stops_without_waiting_for_its_interval),
		row(test_checkpoint__mount_without_upper_has_none),
		row(test_checkpoint__log_that_was_made_short_shows_the_same_bytes),
		row(test_checkpoint__writes_go_on_meanwhile_and_are_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
