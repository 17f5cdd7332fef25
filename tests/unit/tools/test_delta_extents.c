// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "tools/delta_extents.h"
#include "veneer/data/cow.h"

#define BLKS 64u
#define BIG  ((size_t)BLKS * BLK_BYTES)

struct found {
	struct diff diff;
	struct delta_extents x;
	uint64_t size;
};

static void find(struct tree_dirs *d, const char *path, struct found *f)
{
	char upper[PATH_MAX + 16], lower[PATH_MAX + 16], *lowers[] = { lower };
	struct image_entry *e;
	struct source *src;
	struct stat st;

	snprintf(upper, sizeof(upper), "%s/upper", d->s.path);
	snprintf(lower, sizeof(lower), "%s/lower", d->s.path);
	assert_int_equal(diff_read(upper, lowers, 1, false, NULL, &f->diff), 0);
	assert_int_equal(image_lookup_path(f->diff.full, path, &e), 0);
	assert_int_equal(image_stat(f->diff.full, e, &st), 0);
	assert_int_equal(image_source(f->diff.full, e, &src), 0);
	f->size = (uint64_t)st.st_size;
	assert_int_equal(delta_extents_find(&f->diff, src, path, f->size, &f->x), 0);
}

/* They ascend without gaps, and the sum of the data is right. */
static void check(const struct found *f)
{
	uint64_t at = 0, data = 0;

	for (size_t k = 0; k < f->x.n; k++) {
		const struct delta_extent *e = &f->x.v[k];

		assert_int_equal(e->off, at);
		assert_true(e->len > 0);
		if (k)
			assert_int_not_equal(e->kind, f->x.v[k - 1].kind);
		if (e->kind == DELTA_EXTENT_BASE) {
			assert_int_equal(e->off % BLK_BYTES, 0);
			assert_true(e->len % BLK_BYTES == 0 || at + e->len == f->size ||
				    at + e->len == f->x.base_size);
		}
		data += e->kind == DELTA_EXTENT_DATA ? e->len : 0;
		at += e->len;
	}
	assert_int_equal(at, f->size);
	assert_int_equal(f->x.data, data);
}

static void release(struct found *f)
{
	delta_extents_release(&f->x);
	diff_release(&f->diff);
}

static void change(struct tree_dirs *d, const char *path, uint64_t off, size_t len)
{
	struct inode *i = tree_get(d, path);
	char *bytes = malloc(len);

	tree_pattern(bytes, len, off + 7);
	assert_int_equal(cow_write(d->t, i, bytes, len, (off_t)off), 0);
	tree_forget(d, i);
	free(bytes);
}

static void test_delta_extents__changed_blocks_are_data_and_the_rest_is_the_base(void **state)
{
	struct tree_dirs *d = *state;
	struct found f;

	free(tree_put_pattern(d, "lower/dir/big", BIG, 1));
	tree_mount(d, "volatile");
	change(d, "dir/big", 0, 1);
	change(d, "dir/big", 10 * BLK_BYTES + 5, 2 * BLK_BYTES);
	tree_unmount(d);
	find(d, "dir/big", &f);
	check(&f);
	assert_string_equal(f.x.base, "dir/big");
	assert_int_equal(f.x.base_size, BIG);
	assert_false(f.x.is_copy);
	assert_int_equal(f.x.data, 4 * BLK_BYTES);
	assert_int_equal(f.x.n, 4);
	release(&f);
}

static void test_delta_extents__new_file_has_no_base_and_its_holes_are_zeros(void **state)
{
	struct tree_dirs *d = *state;
	struct found f;
	int fd;

	tree_put_text(d, "upper/new", "text");
	fd = openat(d->s.fd, "upper/new", O_WRONLY | O_CLOEXEC);
	assert_int_equal(ftruncate(fd, (off_t)BIG), 0);
	close(fd);
	find(d, "new", &f);
	check(&f);
	assert_null(f.x.base);
	assert_int_equal(f.x.v[0].kind, DELTA_EXTENT_DATA);
	assert_true(f.x.data <= 2 * BLK_BYTES);
	release(&f);
}

static void test_delta_extents__file_that_grew_beyond_its_base(void **state)
{
	struct tree_dirs *d = *state;
	struct found f;

	/* The base ends within a block. */
	free(tree_put_pattern(d, "lower/big", BIG + 100, 1));
	tree_mount(d, "volatile");
	change(d, "big", 2 * BIG, 10);
	tree_unmount(d);
	find(d, "big", &f);
	check(&f);
	assert_int_equal(f.size, 2 * BIG + 10);
	assert_string_equal(f.x.base, "big");
	assert_int_equal(f.x.base_size, BIG + 100);
	assert_true(f.x.data <= 3 * BLK_BYTES);
	release(&f);
}

static void test_delta_extents__gain_that_is_too_small_is_no_base(void **state)
{
	struct tree_dirs *d = *state;
	struct found f;

	free(tree_put_pattern(d, "lower/big", BIG, 1));
	tree_mount(d, "volatile");
	change(d, "big", 0, BIG - 2 * BLK_BYTES);
	tree_unmount(d);
	assert_true(tree_is_partial(d, "upper/big"));
	find(d, "big", &f);
	check(&f);
	assert_null(f.x.base);
	assert_int_equal(f.x.data, BIG);
	release(&f);
}

static void test_delta_extents__random_changes(void **state)
{
	struct tree_dirs *d = *state;
	uint64_t seed = tree_seed("extents");
	struct found f;

	free(tree_put_pattern(d, "lower/big", BIG, 1));
	tree_mount(d, "volatile");
	for (int i = 0; i < 12; i++) {
		uint64_t off = tree_random(&seed) % (BIG + 20000);

		change(d, "big", off, 1 + tree_random(&seed) % 9000);
	}
	tree_unmount(d);
	find(d, "big", &f);
	check(&f);
	release(&f);
	/* Nothing is left. */
	assert_null(f.x.v);
	delta_extents_release(&f.x);
}

static void test_delta_extents__empty_file(void **state)
{
	struct found f;

	tree_put_text(*state, "upper/empty", "");
	find(*state, "empty", &f);
	check(&f);
	assert_int_equal(f.x.n, 0);
	release(&f);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_delta_extents__changed_blocks_are_data_and_the_rest_is_the_base),
		row(test_delta_extents__new_file_has_no_base_and_its_holes_are_zeros),
		row(test_delta_extents__file_that_grew_beyond_its_base),
		row(test_delta_extents__gain_that_is_too_small_is_no_base),
		row(test_delta_extents__random_changes),
		row(test_delta_extents__empty_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
