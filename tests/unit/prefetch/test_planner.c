// SPDX-License-Identifier: Apache-2.0
#include "veneer/prefetch/planner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MANY 64

static struct profile_image image;
static struct plan plan;
static struct planner_limits limits;

static int setup(void **state)
{
	(void)state;
	memset(&image, 0, sizeof(image));
	image.files = calloc(MANY, sizeof(*image.files));
	image.items = calloc(MANY, sizeof(*image.items));
	image.starts = 2;
	limits = (struct planner_limits){ .files = MANY,
					  .bytes = (uint64_t)MANY * PLANNER_EXTENT_BYTES };
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	planner_release(&plan);
	profile_image_release(&image);
	return 0;
}

static uint32_t add_file(const char *path)
{
	image.files[image.nfiles].path = strdup(path);
	return (uint32_t)image.nfiles++;
}

static void add(uint32_t file, uint32_t extent, enum profile_kind kind, uint64_t seen, uint32_t ms)
{
	image.items[image.nitems++] = (struct profile_item){
		.file = file,
		.extent = extent,
		.kind = kind,
		.history = { .seen = seen, .count = 1, .first_ms = ms },
	};
}

static void test_planner__orders_files_by_first_use_and_extents_by_place(void **state)
{
	uint32_t late, early;

	(void)state;
	late = add_file("late");
	early = add_file("early");
	add(late, 1, PROFILE_READ, 3, 20);
	add(late, 0, PROFILE_READ, 3, 30);
	add(early, 7, PROFILE_READ, 3, 10);
	add(early, 2, PROFILE_READ, 3, 40);
	add(early, 0, PROFILE_WRITTEN, 3, 1);
	assert_int_equal(planner_make(&limits, &image, &plan), 0);
	assert_int_equal(plan.n, 5);
	assert_int_equal(planner_extents(&plan), 4);
	assert_int_equal(plan.pieces[0].extent, 2);
	assert_int_equal(plan.pieces[1].extent, 7);
	assert_string_equal(plan.files[plan.pieces[2].file].path, "late");
	assert_int_equal(plan.pieces[2].extent, 0);
	assert_int_equal(plan.pieces[3].extent, 1);
	assert_int_equal(plan.pieces[4].kind, PROFILE_WRITTEN);
	assert_true(plan.is_trusted);
}

static void test_planner__keeps_the_likeliest_within_its_limits(void **state)
{
	uint32_t always, once;

	(void)state;
	image.starts = 4;
	once = add_file("twice");
	always = add_file("always");
	add(once, 0, PROFILE_READ, 3, 1);
	add(always, 0, PROFILE_READ, 15, 5);
	add(always, 1, PROFILE_READ, 15, 5);
	limits.bytes = 2 * PLANNER_EXTENT_BYTES;
	assert_int_equal(planner_make(&limits, &image, &plan), 0);
	assert_int_equal(plan.n, 2);
	assert_int_equal(plan.pieces[0].file, always);
	assert_int_equal(plan.pieces[1].file, always);
}

static void test_planner__minds_the_number_of_files(void **state)
{
	char name[8];

	(void)state;
	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		add(add_file(name), 0, PROFILE_READ, 3, (uint32_t)i);
	}
	limits.files = 5;
	assert_int_equal(planner_make(&limits, &image, &plan), 0);
	assert_int_equal(plan.n, 5);
	assert_int_equal(plan.pieces[4].first_ms, 4);
}

static void test_planner__of_nothing_is_nothing(void **state)
{
	(void)state;
	image.starts = 0;
	assert_int_equal(planner_make(&limits, &image, &plan), 0);
	assert_int_equal(plan.n, 0);
}

static void test_planner__judges_by_path_and_extent(void **state)
{
	static char first[] = "b", second[] = "a";
	struct profile_file files[] = { { first, 0 }, { second, 0 } };
	struct profile_item read[] = { { .file = 1, .extent = 0 },
				       { .file = 0, .extent = 9 },
				       { .file = 1, .extent = 2 } };
	const struct profile_start start = {
		.files = files, .nfiles = 2, .items = read, .nitems = 3
	};
	struct plan_verdict v;
	uint32_t a, c;

	(void)state;
	a = add_file("a");
	c = add_file("c");
	add(a, 0, PROFILE_READ, 3, 1);
	add(a, 1, PROFILE_READ, 3, 1);
	add(a, 2, PROFILE_READ, 3, 1);
	add(a, 0, PROFILE_WRITTEN, 3, 1);
	add(c, 0, PROFILE_READ, 3, 1);
	assert_int_equal(planner_make(&limits, &image, &plan), 0);
	planner_judge(&plan, &start, &v);
	assert_int_equal(v.predicted, 4);
	assert_int_equal(v.hits, 2);
}

/* Is the start that so many others came before left alone? */
static bool checks_at(const struct profile_score *s, unsigned starts)
{
	struct profile_image img = { .starts = starts, .score = *s };
	struct plan p;
	bool is_check;

	assert_int_equal(planner_make(&limits, &img, &p), 0);
	is_check = p.is_check;
	planner_release(&p);
	return is_check;
}

static void test_planner__checks_when_verdicts_stay_behind_starts(void **state)
{
	struct profile_score s = { 0 };
	unsigned checks = 0;

	(void)state;
	for (unsigned starts = 0; starts < PLANNER_CHECK_FIRST + 2 * PLANNER_CHECK_EVERY;
	     starts++) {
		if (!checks_at(&s, starts))
			continue;
		assert_int_equal(starts, PLANNER_CHECK_FIRST + checks * PLANNER_CHECK_EVERY);
		planner_score(&s, 1, starts);
		checks++;
	}
	assert_int_equal(checks, 2);
	/* No start is left alone where each but the first is judged. */
	s = (struct profile_score){ 0 };
	for (unsigned starts = 1; starts < 3 * PLANNER_CHECK_EVERY; starts++) {
		assert_false(checks_at(&s, starts));
		planner_score(&s, 1, starts);
	}
}

static void test_planner__one_verdict_makes_up_for_many_starts_without(void **state)
{
	struct profile_score s = { 0 };
	unsigned starts = 1000, checks = 0;

	(void)state;
	assert_true(checks_at(&s, starts));
	planner_score(&s, 1, starts);
	for (unsigned k = 1; k <= 4 * PLANNER_CHECK_EVERY; k++) {
		if (!checks_at(&s, starts + k))
			continue;
		planner_score(&s, 1, starts + k);
		checks++;
	}
	assert_int_equal(checks, 4);
}

static void test_planner__does_not_check_by_what_is_borrowed(void **state)
{
	(void)state;
	image.starts = PLANNER_CHECK_FIRST;
	assert_int_equal(planner_make(&limits, &image, &plan), 0);
	assert_true(plan.is_check);
	planner_release(&plan);
	image.is_borrowed = true;
	assert_int_equal(planner_make(&limits, &image, &plan), 0);
	assert_false(plan.is_check);
}

static void test_planner__trust_is_lost_and_won_again(void **state)
{
	struct profile_score s = { 0 };

	(void)state;
	assert_true(planner_trusts(&s));
	planner_score(&s, 0, 1);
	planner_score(&s, 0.1, 2);
	assert_false(planner_trusts(&s));
	for (int i = 0; i < 2; i++)
		planner_score(&s, 1, 3);
	assert_true(planner_trusts(&s));
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_planner__##name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(orders_files_by_first_use_and_extents_by_place),
		TEST(keeps_the_likeliest_within_its_limits),
		TEST(minds_the_number_of_files),
		TEST(of_nothing_is_nothing),
		TEST(judges_by_path_and_extent),
		TEST(checks_when_verdicts_stay_behind_starts),
		TEST(one_verdict_makes_up_for_many_starts_without),
		TEST(does_not_check_by_what_is_borrowed),
		TEST(trust_is_lost_and_won_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
