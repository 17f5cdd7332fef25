// SPDX-License-Identifier: Apache-2.0
#include "prefetch/profile_merge.h"

#include "prefetch/profile_format.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char path_a[] = "a", path_b[] = "b";

/* An image of 20 starts and two files, with the items given. */
static struct profile_image image_of(struct profile_item *items, size_t n)
{
	static struct profile_file files[] = { { path_b, 1 }, { path_a, 1 } };

	return (struct profile_image){
		.files = files, .nfiles = 2, .items = items, .nitems = n, .starts = 20
	};
}

static struct profile_item item_of(uint32_t file, uint32_t extent, uint64_t seen, uint32_t count)
{
	return (struct profile_item){ .file = file,
				      .extent = extent,
				      .history = { .seen = seen, .count = count } };
}

static void test_profile_merge__adds_a_start(void **state)
{
	struct profile_item known[] = { item_of(0, 1, 5, 2), item_of(1, 1, 1, 7) };
	const struct profile_image img = image_of(known, 2);
	const struct profile_file now[] = { { path_a, 2 } };
	const struct profile_item seen[] = { { .extent = 1, .history = { .first_ms = 9 } },
					     { .extent = 1 },
					     { .extent = 4 } };
	const struct profile_start start = {
		.files = now, .nfiles = 1, .items = seen, .nitems = 3, .at = 50
	};
	struct profile_image got;

	(void)state;
	assert_int_equal(profile_merge(&img, &start, &got), 0);
	assert_int_equal(got.starts, 21);
	assert_int_equal(got.nfiles, 2);
	assert_string_equal(got.files[0].path, "a");
	assert_int_equal(got.files[0].layer, 2);
	assert_int_equal(got.files[1].layer, 1);
	assert_int_equal(got.nitems, 3);
	assert_int_equal(got.items[0].history.seen, 3);
	assert_int_equal(got.items[0].history.count, 8);
	assert_int_equal(got.items[0].last_seen, 50);
	assert_int_equal(got.items[1].extent, 4);
	assert_int_equal(got.items[1].history.count, 1);
	assert_int_equal(got.items[2].history.seen, 10);
	assert_int_equal(got.items[2].history.count, 2);
	profile_merge_release(&got);
}

static void test_profile_merge__drops_what_cannot_matter(void **state)
{
	struct profile_item known[] = {
		item_of(0, 1, 1 << 16, 1), /* once, and recent enough */
		item_of(0, 2, 1 << 17, 1), /* once, too long ago */
		item_of(0, 3, 1 << 17, 2), /* more often */
		item_of(0, 4, 1ull << 20, 2), /* before the first start */
		item_of(0, 5, 0, 2), /* never */
		item_of(9, 6, 1, 2), /* in no file */
		item_of(0, 3, 1, 2), /* twice in the image */
	};
	const struct profile_image img = image_of(known, 7);
	struct profile_image got;

	(void)state;
	assert_int_equal(profile_merge(&img, NULL, &got), 0);
	assert_int_equal(got.starts, 20);
	assert_int_equal(got.nfiles, 1);
	assert_int_equal(got.nitems, 2);
	assert_int_equal(got.items[0].extent, 1);
	assert_int_equal(got.items[1].extent, 3);
	profile_merge_release(&got);
}

/* 6,000 long paths are more than a file holds: the longest unseen go. */
static void test_profile_merge__stays_within_the_bytes_of_a_file(void **state)
{
	enum { PATHS = 6000, PATH_BYTES = 4000 };
	char *paths = calloc(PATHS, PATH_BYTES + 1);
	struct profile_file *files = calloc(PATHS, sizeof(*files));
	struct profile_item *items = calloc(PATHS, sizeof(*items));
	struct profile_image img = { .files = files,
				     .nfiles = PATHS,
				     .items = items,
				     .nitems = PATHS,
				     .starts = 20,
				     .label = path_a },
			     got;
	struct buf bytes = { 0 };

	(void)state;
	assert_true(paths && files && items);
	for (size_t i = 0; i < PATHS; i++) {
		files[i].path = paths + i * (PATH_BYTES + 1);
		memset(files[i].path, 'n', PATH_BYTES);
		snprintf(files[i].path, 8, "%07zu", i);
		files[i].path[7] = 'n';
		items[i] = item_of((uint32_t)i, 0, i < PATHS / 2 ? 2 : 1, 2);
	}
	assert_int_equal(profile_merge(&img, NULL, &got), 0);
	assert_true(got.nitems > PATHS / 2 && got.nitems < PATHS);
	for (size_t i = 0, latest = 0; i < got.nitems; i++) {
		latest += got.items[i].history.seen == 1;
		if (i == got.nitems - 1)
			assert_int_equal(latest, PATHS / 2);
	}
	assert_int_equal(profile_format_encode(&got, &bytes), 0);
	assert_true(bytes.len <= PROFILE_BYTES_OF_FILE);
	assert_true(bytes.len > PROFILE_FORMAT_BODY_MAX - 2 * PATH_BYTES);
	buf_release(&bytes);
	profile_merge_release(&got);
	free(paths);
	free(files);
	free(items);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_profile_merge__adds_a_start),
		cmocka_unit_test(test_profile_merge__drops_what_cannot_matter),
		cmocka_unit_test(test_profile_merge__stays_within_the_bytes_of_a_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
