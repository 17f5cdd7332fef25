// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "tools/check_refill.h"
#include "veneer/data/cow.h"
#include "veneer/layer/image.h"

#define BIG ((size_t)16 * BLK_BYTES + 100)

struct refilling {
	struct tree_dirs *d;
	char *bytes; /* that the file is to have */
	struct layer *lower;
	struct image *img;
	struct source *low;
	int fd; /* of the partial file */
};

static int setup(void **state)
{
	struct refilling *f = calloc(1, sizeof(*f));
	const struct timespec times[2] = { { 1000, 0 }, { 2000, 0 } };
	struct image_entry *e;
	char path[PATH_MAX + 16];
	struct inode *i;

	if (!f || tree_setup((void **)&f->d) < 0)
		return -1;
	f->bytes = tree_put_pattern(f->d, "lower/big", BIG, 1);
	tree_mount(f->d, "volatile");
	i = tree_get(f->d, "big");
	assert_int_equal(cow_write(f->d->t, i, "changed", 7, 5 * BLK_BYTES), 0);
	tree_forget(f->d, i);
	tree_unmount(f->d);
	memcpy(f->bytes + 5 * BLK_BYTES, "changed", 7);
	assert_true(tree_is_partial(f->d, "upper/big"));
	snprintf(path, sizeof(path), "%s/lower", f->d->s.path);
	assert_int_equal(layer_open(path, &f->lower), 0);
	assert_int_equal(image_new(&f->lower, 1, &f->img), 0);
	assert_int_equal(image_lookup_path(f->img, "big", &e), 0);
	assert_int_equal(image_source(f->img, e, &f->low), 0);
	f->fd = openat(f->d->s.fd, "upper/big", O_RDWR | O_CLOEXEC);
	*state = f;
	return futimens(f->fd, times);
}

static int teardown(void **state)
{
	struct refilling *f = *state;

	close(f->fd);
	image_unref(f->img);
	layer_unref(f->lower);
	tree_teardown((void **)&f->d);
	free(f->bytes);
	free(f);
	return 0;
}

static void expect(struct refilling *f, size_t len)
{
	char *got = malloc(len + 1);

	assert_int_equal(pread(f->fd, got, len + 1, 0), len);
	assert_memory_equal(got, f->bytes, len);
	free(got);
}

static void test_check_refill__holes_get_the_lower_bytes_and_the_mark_goes(void **state)
{
	struct refilling *f = *state;
	uint64_t bytes = 0;
	struct stat st;

	assert_int_equal(check_refill_from_lower(f->fd, f->low, BIG, &bytes), 0);
	assert_int_equal(bytes, BIG - BLK_BYTES);
	expect(f, BIG);
	assert_false(tree_is_partial(f->d, "upper/big"));
	assert_int_equal(fstat(f->fd, &st), 0);
	assert_int_equal(st.st_mtim.tv_sec, 2000);
}

/* The lower file was shorter than the file has become, or longer. */
static void test_check_refill__nothing_is_brought_in_beyond_either_end(void **state)
{
	struct refilling *f = *state;
	uint64_t bytes = 0;

	assert_int_equal(check_refill_from_lower(f->fd, f->low, 7 * BLK_BYTES, &bytes), 0);
	assert_int_equal(bytes, 6 * BLK_BYTES);
	memset(f->bytes + 7 * BLK_BYTES, 0, BIG - 7 * BLK_BYTES);
	expect(f, BIG);
}

static void test_check_refill__file_that_was_cut_is_filled_to_its_own_end(void **state)
{
	struct refilling *f = *state;
	uint64_t bytes = 0;

	assert_int_equal(ftruncate(f->fd, 3 * BLK_BYTES + 5), 0);
	assert_int_equal(check_refill_from_lower(f->fd, f->low, BIG, &bytes), 0);
	assert_int_equal(bytes, 3 * BLK_BYTES + 5);
	expect(f, 3 * BLK_BYTES + 5);
}

static void test_check_refill__descriptor_that_cannot_be_written_leaves_the_mark(void **state)
{
	struct refilling *f = *state;
	int fd = openat(f->d->s.fd, "upper/big", O_RDONLY | O_CLOEXEC);
	uint64_t bytes = 0;

	assert_int_equal(check_refill_from_lower(fd, f->low, BIG, &bytes), -EBADF);
	close(fd);
	assert_true(tree_is_partial(f->d, "upper/big"));
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_check_refill__holes_get_the_lower_bytes_and_the_mark_goes),
		row(test_check_refill__nothing_is_brought_in_beyond_either_end),
		row(test_check_refill__file_that_was_cut_is_filled_to_its_own_end),
		row(test_check_refill__descriptor_that_cannot_be_written_leaves_the_mark),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
