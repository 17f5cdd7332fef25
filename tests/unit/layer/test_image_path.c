// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "layer/image-internal.h"
#include "veneer/data/rename.h"
#include "veneer/layer/image.h"

static struct image_entry *entry(struct tree_dirs *d, const char *path)
{
	struct image_entry *e;

	assert_int_equal(image_lookup_path(d->t->image, path, &e), 0);
	return e;
}

static void expect(char *path, const char *wanted)
{
	assert_string_equal(path, wanted);
	free(path);
}

static void test_image_path__path_is_that_of_its_names(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/a/bb/ccc", "x");
	tree_put_text(d, "lower/file", "x");
	tree_mount(d, "volatile");
	expect(image_path(image_root(d->t->image)), "");
	expect(image_path(entry(d, "file")), "file");
	expect(image_path(entry(d, "a/bb/ccc")), "a/bb/ccc");
	assert_string_equal(image_top_name(entry(d, "a/bb/ccc")), "a");
	assert_string_equal(image_top_name(entry(d, "file")), "file");
	expect(image_layer_path(entry(d, "a/bb/ccc")), "a/bb/ccc");
	expect(image_layer_path(image_root(d->t->image)), "");
}

/* A directory that was renamed in a layer shows what the layers below it have at its old path. */
static void test_image_path__each_layer_has_its_own_path_behind_a_redirect(void **state)
{
	struct tree_dirs *d = *state;
	struct image_entry *e;
	struct inode *root;

	tree_put_text(d, "lower/old/in/file", "x");
	tree_mount(d, "volatile");
	root = d->t->root;
	tree_forget(d, tree_get(d, "old"));
	if (rename_entry(d->t, root, "old", root, "new", 0) == -EXDEV)
		skip();
	tree_unmount(d);
	tree_freeze(d);
	tree_mount(d, "volatile");
	e = entry(d, "new/in/file");
	expect(image_path(e), "new/in/file");
	assert_int_equal(e->layer, 1);
	expect(image_path_in_layer(e, 0), "new/in/file");
	expect(image_path_in_layer(e, 1), "old/in/file");
	expect(image_layer_path(e), "old/in/file");
	/* Once more, on top of that. */
	root = d->t->root;
	tree_forget(d, tree_get(d, "new"));
	if (rename_entry(d->t, root, "new", root, "newest", 0) == -EXDEV)
		skip();
	tree_unmount(d);
	tree_freeze(d);
	tree_mount(d, "volatile");
	e = entry(d, "newest/in/file");
	expect(image_path_in_layer(e, 0), "newest/in/file");
	expect(image_path_in_layer(e, 1), "new/in/file");
	expect(image_path_in_layer(e, 2), "old/in/file");
	tree_expect_text(d, "newest/in/file", "x");
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_image_path__path_is_that_of_its_names),
		row(test_image_path__each_layer_has_its_own_path_behind_a_redirect),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
