// SPDX-License-Identifier: Apache-2.0
#include "support/stack.h"

#include "veneer/cleanup.h"
#include "veneer/cow.h"
#include "veneer/format.h"
#include "veneer/mark.h"
#include "veneer/read.h"
#include "veneer/source.h"

#define BIG (10 * BLK_BYTES)

static void open_layers(struct tree_dirs *d, const char *const *names, size_t n, struct layer **ret)
{
	for (size_t k = 0; k < n; k++) {
		char path[PATH_MAX + 64];

		snprintf(path, sizeof(path), "%s/%s", d->s.path, names[k]);
		assert_int_equal(layer_open(path, &ret[k]), 0);
	}
}

static void close_layers(struct layer **layers, size_t n)
{
	for (size_t k = 0; k < n; k++)
		layer_unref(layers[k]);
}

/* A partial file "f" in a frozen upper over "lower", of which block 1 is own. Layers as
 * source_new wants them. */
static void make_partial(struct tree_dirs *d, struct layer *layers[2])
{
	static const char *const names[] = { "frozen1", "lower" };
	struct inode *i;

	free(tree_put_pattern(d, "lower/f", BIG, 1));
	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(cow_write(d->t, i, "own", 3, BLK_BYTES), 0);
	tree_unmount(d);
	tree_freeze(d);
	open_layers(d, names, 2, layers);
}

static void test_source__find_gives_the_layer_that_the_rule_says(void **state)
{
	struct tree_dirs *d = *state;
	uint64_t seed = tree_seed("source_find");

	for (unsigned round = 0; round < 25; round++) {
		char buf[STACK_LAYERS][32];
		const char *names[STACK_LAYERS];
		struct layer *layers[STACK_LAYERS];
		struct stack s;

		for (unsigned k = 0; k < STACK_LAYERS; k++) {
			snprintf(buf[k], sizeof(buf[k]), "r%u-%u", round, k);
			names[k] = buf[k];
		}
		stack_make(&s, d, names, &seed);
		open_layers(d, names, STACK_LAYERS, layers);
		for (unsigned node = 1; node < STACK_NODES; node++) {
			const struct stack_view *v = &s.seen[node];
			ssize_t found = source_find(layers, STACK_LAYERS, 0, stack_path(node));

			if (found != (v->kind == STACK_FILE ? (ssize_t)v->layers[0] : -ENOENT))
				fail_msg("round %u: %s found in %zd", round, stack_path(node),
					 found);
		}
		close_layers(layers, STACK_LAYERS);
	}
}

static void test_source__find_starts_below_the_layer_given(void **state)
{
	static const char *const names[] = { "a", "b", "c" };
	struct tree_dirs *d = *state;
	struct layer *layers[3];

	tree_put_text(d, "a/d/f", "");
	tree_put_dir(d, "b/d");
	tree_put_text(d, "c/d/f", "");
	open_layers(d, names, 3, layers);
	assert_int_equal(source_find(layers, 3, 0, "d/f"), 0);
	assert_int_equal(source_find(layers, 3, 1, "d/f"), 2);
	assert_int_equal(source_find(layers, 3, 3, "d/f"), -ENOENT);
	assert_int_equal(source_find(layers, 3, 0, "../d/f"), -ENOENT);
	close_layers(layers, 3);
}

static void test_source__find_follows_no_symbolic_link(void **state)
{
	static const char *const names[] = { "a", "b" };
	struct tree_dirs *d = *state;
	struct layer *layers[2];

	tree_put_dir(d, "a");
	tree_put_text(d, "b/real/f", "");
	assert_int_equal(symlinkat("real", d->s.fd, "b/link"), 0);
	assert_int_equal(symlinkat("../b/real", d->s.fd, "a/real"), 0);
	open_layers(d, names, 2, layers);
	assert_int_equal(source_find(layers, 2, 0, "link/f"), -ENOENT);
	assert_int_equal(source_find(layers, 2, 0, "real/f"), -ENOENT);
	close_layers(layers, 2);
}

static void test_source__plain_file_has_nothing_below(void **state)
{
	static const char *const names[] = { "lower" };
	struct tree_dirs *d = *state;
	struct layer *layers[1];
	struct source *src;
	struct stat st;

	tree_put_text(d, "lower/f", "text");
	open_layers(d, names, 1, layers);
	assert_int_equal(source_new(layers, 1, 0, "f", &src, &st), 0);
	assert_int_equal(src->id, 0);
	assert_null(src->below);
	assert_int_equal(st.st_size, 4);
	assert_true(src->is_bare);
	source_free(src);
	close_layers(layers, 1);
}

static void test_source__what_is_no_regular_file_is_refused(void **state)
{
	static const char *const names[] = { "lower" };
	struct tree_dirs *d = *state;
	struct layer *layers[1];
	struct source *src;

	tree_put_dir(d, "lower/d");
	assert_int_equal(symlinkat("d", d->s.fd, "lower/l"), 0);
	open_layers(d, names, 1, layers);
	assert_true(source_new(layers, 1, 0, "d", &src, NULL) < 0);
	assert_true(source_new(layers, 1, 0, "l", &src, NULL) < 0);
	assert_int_equal(source_new(layers, 1, 0, "none", &src, NULL), -ENOENT);
	close_layers(layers, 1);
}

static void test_source__partial_file_shows_own_and_lower_blocks(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *layers[2];
	char want[BIG], got[BIG + 100];
	struct source *src;
	struct stat st;

	make_partial(d, layers);
	tree_pattern(want, BIG, 1);
	memcpy(want + BLK_BYTES, "own", 3);
	assert_int_equal(source_new(layers, 2, 0, "f", &src, &st), 0);
	assert_int_not_equal(src->id, 0);
	assert_int_equal(st.st_size, BIG);
	assert_ptr_equal(src->below->layer, layers[1]);
	assert_int_equal(read_source(src, got, BIG, 0), 0);
	assert_memory_equal(got, want, BIG);
	/* Past the end there is nothing, and zeros would be an invention. */
	assert_int_equal(read_source(src, got, sizeof(got), 0), -EIO);
	source_free(src);
	close_layers(layers, 2);
}

static void expect_damage(struct tree_dirs *d, struct layer *layers[2])
{
	struct source *src;

	(void)d;
	assert_int_equal(source_new(layers, 2, 0, "f", &src, NULL), -EUCLEAN);
	close_layers(layers, 2);
}

static void test_source__lower_file_that_changed_is_damage(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *layers[2];

	make_partial(d, layers);
	assert_int_equal(utimensat(d->s.fd, "lower/f", NULL, 0), 0);
	expect_damage(d, layers);
}

static void test_source__lower_file_that_is_gone_is_damage(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *layers[2];

	make_partial(d, layers);
	assert_int_equal(unlinkat(d->s.fd, "lower/f", 0), 0);
	expect_damage(d, layers);
}

static void test_source__layer_without_its_map_is_damage(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *layers[2];

	make_partial(d, layers);
	assert_int_equal(unlinkat(d->s.fd, "frozen1/" MAPFILE_NAME, 0), 0);
	expect_damage(d, layers);
}

static void test_source__mark_of_another_layer_is_damage(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *layers[2];
	_cleanup_(buf_release) struct buf value = { 0 };
	char path[PATH_MAX + 64];
	struct mark m;

	make_partial(d, layers);
	snprintf(path, sizeof(path), "%s/frozen1/f", d->s.path);
	assert_int_equal(source_read_mark(AT_FDCWD, path, &m, NULL), 1);
	m.uuid_low++;
	assert_int_equal(mark_encode(&m, &value), 0);
	assert_int_equal(setxattr(path, FORMAT_PARTIAL_ATTR, value.data, value.len, 0), 0);
	expect_damage(d, layers);
}

static void test_source__damaged_mark_is_damage(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *layers[2];
	char path[PATH_MAX + 64];

	make_partial(d, layers);
	snprintf(path, sizeof(path), "%s/frozen1/f", d->s.path);
	assert_int_equal(setxattr(path, FORMAT_PARTIAL_ATTR, "nonsense", 8, 0), 0);
	expect_damage(d, layers);
}

static void test_source__metacopy_of_another_union_is_damage(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *layers[2];
	char path[PATH_MAX + 64];

	make_partial(d, layers);
	snprintf(path, sizeof(path), "%s/frozen1/f", d->s.path);
	assert_int_equal(setxattr(path, "user.overlay.metacopy", "", 0, 0), 0);
	expect_damage(d, layers);
}

static void test_source__mark_that_names_its_own_path_below_itself_ends(void **state)
{
	static const char *const names[] = { "frozen1" };
	struct tree_dirs *d = *state;
	struct layer *layers[2], *alone[1];
	struct source *src;

	make_partial(d, layers);
	close_layers(layers, 2);
	open_layers(d, names, 1, alone);
	assert_int_equal(source_new(alone, 1, 0, "f", &src, NULL), -EUCLEAN);
	close_layers(alone, 1);
}

static void test_source__mark_that_names_a_directory_is_damage(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *layers[2];

	make_partial(d, layers);
	assert_int_equal(unlinkat(d->s.fd, "lower/f", 0), 0);
	tree_put_dir(d, "lower/f");
	expect_damage(d, layers);
}

static void test_source__file_that_carries_attributes_is_not_bare(void **state)
{
	struct tree_dirs *d = *state;
	char path[PATH_MAX + 64];
	bool is_bare = true;
	struct mark m;

	tree_put_text(d, "lower/f", "");
	snprintf(path, sizeof(path), "%s/lower/f", d->s.path);
	assert_int_equal(source_read_mark(AT_FDCWD, path, &m, &is_bare), 0);
	assert_true(is_bare);
	assert_int_equal(setxattr(path, "user.other", "", 0, 0), 0);
	assert_int_equal(source_read_mark(AT_FDCWD, path, &m, &is_bare), 0);
	assert_false(is_bare);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_source__find_gives_the_layer_that_the_rule_says),
		row(test_source__find_starts_below_the_layer_given),
		row(test_source__find_follows_no_symbolic_link),
		row(test_source__plain_file_has_nothing_below),
		row(test_source__what_is_no_regular_file_is_refused),
		row(test_source__partial_file_shows_own_and_lower_blocks),
		row(test_source__lower_file_that_changed_is_damage),
		row(test_source__lower_file_that_is_gone_is_damage),
		row(test_source__layer_without_its_map_is_damage),
		row(test_source__mark_of_another_layer_is_damage),
		row(test_source__damaged_mark_is_damage),
		row(test_source__metacopy_of_another_union_is_damage),
		row(test_source__mark_that_names_its_own_path_below_itself_ends),
		row(test_source__mark_that_names_a_directory_is_damage),
		row(test_source__file_that_carries_attributes_is_not_bare),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
