// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "layer/dir_merge.h"

#include <dirent.h>

static void add(struct tree_dirs *d, struct dir_merge *m, const char *rel, uint16_t layer)
{
	int fd = openat(d->s.fd, rel, O_RDONLY | O_DIRECTORY);
	struct dir_listing l;

	assert_true(fd >= 0);
	assert_int_equal(dir_listing_read(fd, &l), 0);
	assert_int_equal(dir_merge_add(m, &l, layer), 0);
	dir_listing_release(&l);
	close(fd);
}

/* Compare what is seen of a name, as "dir 0 2" or "file 1", or "-". */
static void expect(const struct dir_merge *m, const char *name, const char *want)
{
	char got[64] = "-";

	for (const struct draft *i = m->first; i; i = i->next) {
		if (strcmp(i->name, name) || i->is_hidden)
			continue;
		strcpy(got, i->type == DT_DIR ? "dir" : "file");
		for (uint32_t k = 0; k < i->nlayers; k++)
			snprintf(got + strlen(got), sizeof(got) - strlen(got), " %u", i->layers[k]);
	}
	assert_string_equal(got, want);
}

static void test_dir_merge__nearest_layer_wins_and_directories_add_up(void **state)
{
	struct tree_dirs *d = *state;
	struct dir_merge m;

	tree_put_text(d, "a/f", "");
	tree_put_dir(d, "a/d");
	tree_put_text(d, "b/f", "");
	tree_put_dir(d, "b/d");
	tree_put_text(d, "b/g", "");
	tree_put_text(d, "c/d", "a file ends it");
	tree_put_dir(d, "e/d");
	dir_merge_init(&m);
	add(d, &m, "a", 0);
	add(d, &m, "b", 3);
	add(d, &m, "c", 7);
	add(d, &m, "e", 9);
	expect(&m, "f", "file 0 3");
	expect(&m, "d", "dir 0 3");
	expect(&m, "g", "file 3");
	expect(&m, "none", "-");
	dir_merge_release(&m);
}

static void test_dir_merge__whiteouts_hide_what_is_below_them(void **state)
{
	struct tree_dirs *d = *state;
	struct dir_merge m;

	tree_put_whiteout(d, "a/f");
	tree_put_text(d, "a/.wh.g", "");
	tree_put_text(d, "a/g", "beside its own whiteout");
	tree_put_dir(d, "a/d");
	tree_put_text(d, "b/f", "");
	tree_put_text(d, "b/g", "");
	tree_put_text(d, "b/.wh.d", "");
	tree_put_dir(d, "c/d");
	dir_merge_init(&m);
	add(d, &m, "a", 0);
	add(d, &m, "b", 1);
	add(d, &m, "c", 2);
	expect(&m, "f", "-");
	expect(&m, "g", "-");
	expect(&m, "d", "dir 0");
	dir_merge_release(&m);
}

static void test_dir_merge__files_go_on_below_until_something_else_comes(void **state)
{
	struct tree_dirs *d = *state;
	struct dir_merge m;

	for (const char *layer = "abce"; *layer; layer++)
		for (const char *name = "fghl"; *name; name++)
			tree_put_text(d, (char[]){ *layer, '/', *name, '\0' }, "");
	tree_put_whiteout(d, "x/f");
	tree_put_dir(d, "x/g");
	tree_put_text(d, "x/.wh.h", "");
	tree_put_text(d, "x/h", "beside its own whiteout");
	assert_int_equal(symlinkat("f", d->s.fd, "x/l"), 0);
	dir_merge_init(&m);
	add(d, &m, "a", 0);
	add(d, &m, "b", 2);
	add(d, &m, "x", 4);
	add(d, &m, "c", 5);
	expect(&m, "f", "file 0 2");
	expect(&m, "g", "file 0 2");
	expect(&m, "h", "file 0 2");
	expect(&m, "l", "file 0 2");
	dir_merge_release(&m);
}

static void test_dir_merge__empty_directories_merge_to_nothing(void **state)
{
	struct dir_merge m;
	struct dir_listing l = { 0 };

	(void)state;
	dir_merge_init(&m);
	assert_null(m.first);
	assert_int_equal(dir_merge_add(&m, &l, 0), 0);
	assert_null(m.first);
	dir_merge_release(&m);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_dir_merge__nearest_layer_wins_and_directories_add_up),
		row(test_dir_merge__whiteouts_hide_what_is_below_them),
		row(test_dir_merge__files_go_on_below_until_something_else_comes),
		row(test_dir_merge__empty_directories_merge_to_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
