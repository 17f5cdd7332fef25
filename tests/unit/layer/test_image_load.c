// SPDX-License-Identifier: Apache-2.0
/* Lower files and directories that others put in the place of known ones. */
#include "support/tree.h"

#include "veneer/layer/image.h"
#include "veneer/layer/source.h"

#include <sys/stat.h>

static struct image *open_two(struct tree_dirs *d)
{
	static const char *const names[] = { "top", "bottom" };
	struct layer *layers[2];
	struct image *img;

	for (size_t k = 0; k < 2; k++) {
		char path[PATH_MAX + 64];

		tree_put_dir(d, names[k]);
		snprintf(path, sizeof(path), "%s/%s", d->s.path, names[k]);
		assert_int_equal(layer_open(path, &layers[k]), 0);
	}
	assert_int_equal(image_new(layers, 2, &img), 0);
	for (size_t k = 0; k < 2; k++)
		layer_unref(layers[k]);
	return img;
}

static struct image_entry *find(struct image *img, const char *path)
{
	struct image_entry *e;

	assert_int_equal(image_lookup_path(img, path, &e), 0);
	return e;
}

static void put_mode(struct tree_dirs *d, const char *path, mode_t mode)
{
	tree_put_text(d, path, path);
	assert_int_equal(fchmodat(d->s.fd, path, mode, 0), 0);
}

static int pin_source(struct image *img, struct image_entry *e)
{
	struct source *src;
	int fd, r = image_source(img, e, &src);

	if (r < 0)
		return r;
	fd = source_pin(src);
	if (fd >= 0)
		fd_cache_unpin(&src->fd);
	return fd < 0 ? fd : 0;
}

/* As its layer's owner may move it there. */
static void put_over(struct tree_dirs *d, const char *from, const char *to)
{
	assert_int_equal(renameat(d->s.fd, from, d->s.fd, to), 0);
}

static void test_image_load__another_file_is_not_shown_by_the_attributes_of_the_first(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img = open_two(d);
	struct stat st;

	put_mode(d, "top/known", 0644);
	put_mode(d, "top/opened", 0644);
	put_mode(d, "top/equal", 0644);
	assert_int_equal(image_stat(img, find(img, "known"), &st), 0);
	assert_int_equal(image_stat(img, find(img, "opened"), &st), 0);
	assert_int_equal(pin_source(img, find(img, "opened")), 0);
	assert_int_equal(pin_source(img, find(img, "equal")), 0);
	put_mode(d, "aside/secret1", 0600);
	put_mode(d, "aside/secret2", 0600);
	put_mode(d, "aside/other", 0644);
	put_over(d, "aside/secret1", "top/known");
	put_over(d, "aside/secret2", "top/opened");
	put_over(d, "aside/other", "top/equal");
	image_close(img);
	/* The kernel goes by what it was told. */
	for (int k = 0; k < 2; k++) {
		assert_int_equal(pin_source(img, find(img, "known")), -ESTALE);
		assert_int_equal(pin_source(img, find(img, "opened")), -ESTALE);
		assert_int_equal(image_stat(img, find(img, "known"), &st), 0);
		assert_int_equal(st.st_mode & 07777, 0644);
		assert_int_equal(pin_source(img, find(img, "equal")), 0);
	}
	image_unref(img);
}

static void test_image_load__a_file_whose_mode_is_changed_is_shown(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img = open_two(d);
	struct stat st;

	put_mode(d, "top/known", 0644);
	tree_put_dir(d, "top/dir");
	put_mode(d, "top/dir/f", 0644);
	assert_int_equal(image_stat(img, find(img, "known"), &st), 0);
	assert_int_equal(image_stat(img, find(img, "dir"), &st), 0);
	assert_int_equal(fchmodat(d->s.fd, "top/known", 0600, 0), 0);
	assert_int_equal(fchmodat(d->s.fd, "top/dir", 0700, 0), 0);
	assert_int_equal(pin_source(img, find(img, "known")), 0);
	find(img, "dir/f");
	image_unref(img);
}

static void
test_image_load__another_directory_is_not_searched_by_the_attributes_of_the_first(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img = open_two(d);
	struct stat st;

	tree_put_dir(d, "top/dir");
	assert_int_equal(image_stat(img, find(img, "dir"), &st), 0);
	tree_put_dir(d, "private");
	tree_put_text(d, "private/f", "secret");
	assert_int_equal(fchmodat(d->s.fd, "private", 0700, 0), 0);
	put_over(d, "private", "top/dir");
	for (int k = 0; k < 2; k++)
		assert_int_equal(image_lookup_path(img, "dir/f", &(struct image_entry *){ NULL }),
				 -ESTALE);
	image_unref(img);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_image_load__another_file_is_not_shown_by_the_attributes_of_the_first),
		row(test_image_load__a_file_whose_mode_is_changed_is_shown),
		row(test_image_load__another_directory_is_not_searched_by_the_attributes_of_the_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
