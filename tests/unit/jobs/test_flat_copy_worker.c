// SPDX-License-Identifier: Apache-2.0
#include "support/clock_ahead.h"
#include "support/pressure_of_test.h"
#include "support/tree.h"
#include "support/wait.h"

#include "veneer/data/cow.h"
#include "veneer/data/read.h"
#include "veneer/jobs/flat_copy_worker.h"
#include "veneer/layer/source_flat.h"

#define BYTES	((size_t)100 * BLK_BYTES)
#define PRESSED 10000 /* above each limit */
#define READS	13 /* of 4 KiB, before a copy pays */

/* Of each file of a lower layer one block is the layer's own. The files are old enough for copies.
 */
static void partial_files(struct tree_dirs *d)
{
	static const char *const names[] = { "a", "b", "small", "half" };
	static const size_t sizes[] = { BYTES, BYTES, 4 * BLK_BYTES, BYTES / 2 };

	for (unsigned k = 0; k < 4; k++) {
		char rel[32];

		snprintf(rel, sizeof(rel), "lower/%s", names[k]);
		free(tree_put_pattern(d, rel, sizes[k], k));
	}
	tree_mount(d, "volatile");
	for (unsigned k = 0; k < 4; k++) {
		struct inode *i = tree_get(d, names[k]);

		assert_int_equal(cow_write(d->t, i, "x", 1, 2 * BLK_BYTES), 0);
		tree_forget(d, i);
	}
	tree_unmount(d);
	tree_freeze(d);
	clock_ahead_s = 3;
	tree_mount(d, "volatile");
}

static struct source *read_often(struct tree_dirs *d, struct flat_copy_worker *w, const char *name)
{
	struct inode *i = tree_get(d, name);
	struct source *s;

	assert_int_equal(read_top(d->t, i, &s), 0);
	for (unsigned k = 0; k < READS; k++)
		flat_copy_worker_read(w, i, BLK_BYTES);
	tree_forget(d, i);
	return s;
}

static bool gets_copy(struct source *s)
{
	wait_until(source_flat_fd(s) >= 0);
	return source_flat_fd(s) >= 0;
}

static void test_flat_copy_worker__large_files_that_are_read_get_copies(void **state)
{
	struct tree_dirs *d = *state;
	struct flat_copy_worker *w;
	struct source *small;

	partial_files(d);
	assert_int_equal(flat_copy_worker_start(d->t, BYTES * 2, true, &w), 0);
	small = read_often(d, w, "small");
	assert_true(gets_copy(read_often(d, w, "a")));
	assert_true(gets_copy(read_often(d, w, "b")));
	assert_int_equal(source_flat_fd(small), -ENOENT);
	flat_copy_worker_stop(w);
}

static void test_flat_copy_worker__copies_no_more_than_it_may(void **state)
{
	struct tree_dirs *d = *state;
	struct flat_copy_worker *w;
	struct source *b;

	partial_files(d);
	assert_int_equal(flat_copy_worker_start(d->t, BYTES * 2 - 1, true, &w), 0);
	assert_true(gets_copy(read_often(d, w, "a")));
	b = read_often(d, w, "b");
	/* The queue has an order: b has been refused when the next file has its copy. */
	assert_true(gets_copy(read_often(d, w, "half")));
	assert_int_equal(source_flat_fd(b), -ENOENT);
	flat_copy_worker_stop(w);
}

static void test_flat_copy_worker__waits_while_the_disk_is_pressed(void **state)
{
	struct tree_dirs *d = *state;
	struct flat_copy_worker *w;
	struct source *a;
	unsigned asked;

	partial_files(d);
	pressure_of_test = PRESSED;
	assert_int_equal(flat_copy_worker_start(d->t, BYTES * 2, true, &w), 0);
	asked = pressure_questions;
	a = read_often(d, w, "a");
	/* Two questions at a time, and again after a wait. */
	wait_until(pressure_questions >= asked + 6);
	assert_true(pressure_questions >= asked + 6);
	assert_int_equal(source_flat_fd(a), -ENOENT);
	pressure_of_test = 0;
	assert_true(gets_copy(a));
	flat_copy_worker_stop(w);
}

static void test_flat_copy_worker__mount_that_stops_waits_for_nothing(void **state)
{
	struct tree_dirs *d = *state;
	struct flat_copy_worker *w, *other;

	partial_files(d);
	assert_int_equal(flat_copy_worker_start(d->t, BYTES, true, &other), 0);
	for (unsigned k = 0; k < 50; k++) {
		struct source *s;

		assert_int_equal(flat_copy_worker_start(d->t, BYTES, true, &w), 0);
		s = read_often(d, w, "a");
		flat_copy_worker_stop(w);
		source_close(s);
	}
	/* What one mount gave up another one gets. */
	assert_true(gets_copy(read_often(d, other, "a")));
	flat_copy_worker_stop(other);
	flat_copy_worker_stop(NULL);
	flat_copy_worker_read(NULL, NULL, 1);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* First, as the worker keeps an answer for a while. */
		row(test_flat_copy_worker__waits_while_the_disk_is_pressed),
		row(test_flat_copy_worker__large_files_that_are_read_get_copies),
		row(test_flat_copy_worker__copies_no_more_than_it_may),
		row(test_flat_copy_worker__mount_that_stops_waits_for_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
