// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/attr.h"
#include "veneer/layer/layer.h"

static struct layer *open_layer(struct tree_dirs *d, const char *rel)
{
	char path[PATH_MAX + 64];
	struct layer *l = NULL;

	snprintf(path, sizeof(path), "%s/%s", d->s.path, rel);
	assert_int_equal(layer_open(path, &l), 0);
	return l;
}

static void test_layer__is_a_directory_reached_also_through_a_link(void **state)
{
	struct tree_dirs *d = *state;
	char path[PATH_MAX + 64];
	struct layer *l, *again;
	struct stat st;

	assert_int_equal(symlinkat("lower", d->s.fd, "link"), 0);
	l = open_layer(d, "lower");
	again = open_layer(d, "link");
	assert_int_equal(fstatat(d->s.fd, "lower", &st, 0), 0);
	assert_int_equal(l->ino, st.st_ino);
	assert_int_equal(again->ino, st.st_ino);
	assert_int_equal(again->dev, st.st_dev);
	assert_false(l->is_upper);
	layer_unref(l);
	layer_unref(again);
	tree_put_text(d, "lower/f", "x");
	snprintf(path, sizeof(path), "%s/lower/f", d->s.path);
	assert_int_equal(layer_open(path, &l), -ENOTDIR);
	snprintf(path, sizeof(path), "%s/missing", d->s.path);
	assert_int_equal(layer_open(path, &l), -ENOENT);
}

static void test_layer__lives_until_the_last_reference(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *l = open_layer(d, "lower");
	int fd = l->rootfd;

	assert_ptr_equal(layer_ref(l), l);
	layer_unref(l);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	layer_unref(l);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	layer_unref(NULL);
}

static void test_layer__without_a_map_is_asked_again_later(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *l = open_layer(d, "upper");
	struct mapfile *map;

	assert_int_equal(layer_map(l, &map), -ENOENT);
	/* Meanwhile it is somebody's upper, and gets its first partial file. */
	free(tree_put_pattern(d, "lower/f", 100000, 1));
	tree_mount(d, "volatile");
	assert_int_equal(attr_chmod(d->t, tree_get(d, "f"), 0600), 0);
	assert_int_equal(layer_map(l, &map), 0);
	assert_int_equal(mapfile_count(map), 1);
	assert_int_equal(mapfile_uuid(map), mapfile_uuid(d->t->map));
	layer_unref(l);
}

static void test_layer__damaged_map_stays_damaged(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *l;
	struct mapfile *map;

	tree_put_text(d, "lower/" MAPFILE_NAME,
		      "this is no map file at all, however long it may be");
	l = open_layer(d, "lower");
	assert_int_equal(layer_map(l, &map), -EUCLEAN);
	assert_int_equal(unlinkat(d->s.fd, "lower/" MAPFILE_NAME, 0), 0);
	assert_int_equal(layer_map(l, &map), -EUCLEAN);
	layer_unref(l);
}

static void test_layer__what_stands_in_the_maps_place_is_not_opened(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *l;
	struct mapfile *map;

	/* A fifo would block, a link lead outside. */
	assert_int_equal(mkfifoat(d->s.fd, "lower/" MAPFILE_NAME, 0600), 0);
	l = open_layer(d, "lower");
	assert_true(layer_map(l, &map) < 0);
	layer_unref(l);
	assert_int_equal(unlinkat(d->s.fd, "lower/" MAPFILE_NAME, 0), 0);
	assert_int_equal(symlinkat("/etc/passwd", d->s.fd, "lower/" MAPFILE_NAME), 0);
	l = open_layer(d, "lower");
	assert_true(layer_map(l, &map) < 0);
	layer_unref(l);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_layer__is_a_directory_reached_also_through_a_link),
		row(test_layer__lives_until_the_last_reference),
		row(test_layer__without_a_map_is_asked_again_later),
		row(test_layer__damaged_map_stays_damaged),
		row(test_layer__what_stands_in_the_maps_place_is_not_opened),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
