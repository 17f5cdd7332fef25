// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "tools/first_names.h"
#include "veneer/layer/image.h"

static const char *ask(struct first_names *f, uint16_t layer, dev_t dev, ino_t ino, char *path)
{
	struct image_entry e = { .layer = layer };
	const struct diff_entry d = { .path = path, .image_entry = &e };
	const struct stat st = { .st_dev = dev, .st_ino = ino };

	return first_names_of(f, &d, &st);
}

static void test_first_names__further_names_are_of_the_first(void **state)
{
	char a[] = "a", b[] = "b", c[] = "c", other[] = "other";
	struct first_names f = { 0 };

	(void)state;
	assert_null(ask(&f, 0, 1, 7, a));
	assert_null(ask(&f, 0, 1, 8, other));
	assert_string_equal(ask(&f, 0, 1, 7, b), "a");
	assert_string_equal(ask(&f, 0, 1, 7, c), "a");
	assert_string_equal(ask(&f, 0, 1, 8, c), "other");
	first_names_release(&f);
	/* Empty again. */
	assert_null(ask(&f, 0, 1, 7, b));
	first_names_release(&f);
	first_names_release(&f);
}

/* Layers, and file systems in one, have the same numbers for other files. */
static void test_first_names__same_number_elsewhere_is_another_file(void **state)
{
	char a[] = "a", b[] = "b", c[] = "c", d[] = "d";
	struct first_names f = { 0 };

	(void)state;
	assert_null(ask(&f, 0, 1, 7, a));
	assert_null(ask(&f, 1, 1, 7, b));
	assert_null(ask(&f, 0, 2, 7, c));
	assert_string_equal(ask(&f, 0, 1, 7, d), "a");
	assert_string_equal(ask(&f, 1, 1, 7, d), "b");
	assert_string_equal(ask(&f, 0, 2, 7, d), "c");
	first_names_release(&f);
}

static void test_first_names__many(void **state)
{
	static char paths[2000][8];
	struct first_names f = { 0 };

	(void)state;
	for (unsigned i = 0; i < 2000; i++) {
		snprintf(paths[i], sizeof(paths[i]), "%u", i);
		assert_null(ask(&f, 0, 1, i, paths[i]));
	}
	for (unsigned i = 0; i < 2000; i++)
		assert_ptr_equal(ask(&f, 0, 1, i, paths[0]), paths[i]);
	first_names_release(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first_names__further_names_are_of_the_first),
		cmocka_unit_test(test_first_names__same_number_elsewhere_is_another_file),
		cmocka_unit_test(test_first_names__many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
