// SPDX-License-Identifier: Apache-2.0
#include "support/sharing.h"

#include "veneer/layer/image.h"
#include "veneer/layer/layer_registry.h"

#define OPTIONS "volatile,io=cached"

static struct image_entry *twin_of(struct sharing *s, unsigned i, const char *path)
{
	struct inode *own = tree_get(s->d[i], path);
	struct image_entry *e = sb_twin_file(s->c[i], own);

	tree_forget(s->d[i], own);
	return e;
}

static void test_sb_twin__unchanged_files_alone_have_one(void **state)
{
	struct sharing *s = *state;
	struct image_entry *e;
	uint64_t node;

	assert_int_equal(linkat(s->common->s.fd, "lower/other", s->common->s.fd, "lower/again", 0),
			 0);
	sharing_start(s, OPTIONS);
	e = twin_of(s, 0, "file");
	assert_non_null(e);
	assert_string_equal(e->name, "file");
	assert_ptr_equal(twin_of(s, 1, "file"), e);
	assert_non_null(twin_of(s, 0, "dir/inside"));
	assert_null(twin_of(s, 0, "dir"));
	/* One that has several names. */
	assert_null(twin_of(s, 0, "other"));
	node = fuse_kernel_make(&s->k, sharing_root(s, 0), "made", 0644);
	assert_true(node > 0);
	assert_null(twin_of(s, 0, "made"));
}

/* Without a registry each mount has an image of its own, of the same directories. */
static void test_sb_twin__is_found_in_another_image_of_the_same_layers(void **state)
{
	struct sharing *s = *state;
	struct image_entry *e;

	layer_registry_stop();
	sharing_start(s, OPTIONS);
	assert_ptr_not_equal(s->d[0]->t->image, s->common->t->image);
	assert_int_equal(s->c[0]->n_above, 0);
	e = twin_of(s, 0, "dir/inside");
	assert_non_null(e);
	assert_string_equal(e->name, "inside");
	assert_ptr_equal(twin_of(s, 1, "dir/inside"), e);
	assert_null(twin_of(s, 0, "dir"));
}

static void test_sb_twin__other_layers_have_nothing_in_common(void **state)
{
	struct sharing *s = *state;

	layer_registry_stop();
	/* The second member has a directory of its own with the same names. */
	assert_int_equal(unlinkat(s->d[1]->s.fd, "lower", 0), 0);
	tree_put_text(s->d[1], "lower/file", "text");
	sharing_start(s, OPTIONS);
	assert_int_equal(s->c[1]->n_above, -1);
	assert_null(twin_of(s, 1, "file"));
	assert_non_null(twin_of(s, 0, "file"));
}

/* As after snapshots: layers of the member alone stand above the common ones. */
static void test_sb_twin__layers_above_hide_and_move(void **state)
{
	struct sharing *s = *state;

	tree_put_text(s->d[1], "above/file", "hides it");
	tree_put_text(s->d[1], "above/new", "text");
	tree_layers(s->d[1], "above:lower");
	sharing_start(s, OPTIONS);
	assert_int_equal(s->c[1]->n_above, 1);
	assert_null(twin_of(s, 1, "file"));
	assert_null(twin_of(s, 1, "new"));
	assert_ptr_equal(twin_of(s, 1, "other"), twin_of(s, 0, "other"));
	assert_non_null(twin_of(s, 1, "dir/inside"));
}

#define row(test) cmocka_unit_test_setup_teardown(test, sharing_setup, sharing_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_sb_twin__unchanged_files_alone_have_one),
		row(test_sb_twin__is_found_in_another_image_of_the_same_layers),
		row(test_sb_twin__other_layers_have_nothing_in_common),
		row(test_sb_twin__layers_above_hide_and_move),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
