// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"
#include "support/wait.h"

#include "veneer/jobs/readdir_ahead.h"

#define DIRS 40

static struct image *open_image(struct tree_dirs *d)
{
	struct layer *l;
	struct image *img;
	char path[PATH_MAX + 16];

	for (unsigned i = 0; i < DIRS; i++) {
		char name[32];

		snprintf(name, sizeof(name), "lower/%u/%u/f", i, i);
		tree_put_text(d, name, "x");
	}
	snprintf(path, sizeof(path), "%s/lower", d->s.path);
	assert_int_equal(layer_open(path, &l), 0);
	assert_int_equal(image_new(&l, 1, &img), 0);
	layer_unref(l);
	return img;
}

/* As who walks the tree: the root, then the first directory in it. */
static void begin_walk(struct readdir_ahead *w, struct image *img)
{
	assert_true(image_count(img, image_root(img)) == DIRS);
	readdir_ahead_listed(w, image_root(img), true);
	assert_true(image_count(img, image_child(image_root(img), 0)) >= 0);
	readdir_ahead_listed(w, image_child(image_root(img), 0), true);
}

static unsigned nloaded(struct image *img)
{
	unsigned n = 0;

	for (unsigned i = 0; i < DIRS; i++)
		n += atomic_load(&image_child(image_root(img), i)->dir) != NULL;
	return n;
}

static void test_readdir_ahead__siblings_are_read_before_they_are_asked_for(void **state)
{
	struct image *img = open_image(*state);
	struct readdir_ahead *w;

	assert_int_equal(readdir_ahead_start(img, &w), 0);
	begin_walk(w, img);
	wait_until(nloaded(img) >= 33);
	assert_int_equal(nloaded(img), 33);
	readdir_ahead_stop(w);
	image_unref(img);
}

static void test_readdir_ahead__image_can_go_as_soon_as_its_mount_stops(void **state)
{
	struct readdir_ahead *other;
	struct image *held = open_image(*state);

	/* Another mount keeps the thread. */
	assert_int_equal(readdir_ahead_start(held, &other), 0);
	for (unsigned round = 0; round < 50; round++) {
		struct image *img = open_image(*state);
		struct readdir_ahead *w;

		assert_int_equal(readdir_ahead_start(img, &w), 0);
		begin_walk(w, img);
		readdir_ahead_stop(w);
		image_unref(img);
	}
	begin_walk(other, held);
	wait_until(nloaded(held) >= 33);
	assert_int_equal(nloaded(held), 33);
	readdir_ahead_stop(other);
	image_unref(held);
}

static void test_readdir_ahead__nobody_to_walk_for_is_fine(void **state)
{
	struct image *img = open_image(*state);

	readdir_ahead_listed(NULL, image_root(img), true);
	readdir_ahead_stop(NULL);
	image_unref(img);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_readdir_ahead__siblings_are_read_before_they_are_asked_for),
		row(test_readdir_ahead__image_can_go_as_soon_as_its_mount_stops),
		row(test_readdir_ahead__nobody_to_walk_for_is_fine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
