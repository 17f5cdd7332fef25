// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/updir.h"

#include <limits.h>

#include <dirent.h>

#define NAMES 40

static struct upent plain(uint64_t ino)
{
	return (struct upent){ .ino = ino, .type = DT_REG };
}

static void test_updir__entry_is_found_as_it_was_set(void **state)
{
	struct updir *d = updir_new();
	struct upent e = { .ino = 7, .type = DT_LNK, .is_ino_known = true, .is_below = true }, got;

	(void)state;
	assert_false(updir_find(d, "a", &got));
	assert_int_equal(updir_set(d, "a", &e), 0);
	assert_true(updir_find(d, "a", &got));
	assert_int_equal(got.ino, 7);
	assert_int_equal(got.type, DT_LNK);
	assert_true(got.is_ino_known && got.is_below && !got.is_whiteout);
	assert_int_equal(updir_count(d), 1);
	updir_free(d);
}

static void test_updir__replacing_keeps_the_position(void **state)
{
	struct updir *d = updir_new();
	struct upent e = plain(1), a, b;

	(void)state;
	updir_set(d, "a", &e);
	updir_set(d, "b", &e);
	updir_find(d, "a", &a);
	e.ino = 2;
	e.seq = 99;
	updir_set(d, "a", &e);
	updir_find(d, "a", &b);
	assert_int_equal(b.ino, 2);
	assert_int_equal(a.seq, b.seq);
	updir_free(d);
}

static void test_updir__reserved_name_is_hidden_until_it_is_set(void **state)
{
	struct updir *d = updir_new();
	struct upent e = plain(3), got;
	bool is_new = false;
	char name[8];
	uint64_t seq = 0;

	(void)state;
	assert_int_equal(updir_reserve(d, "a", true, &is_new), 0);
	assert_true(is_new);
	assert_true(updir_find(d, "a", &got));
	assert_true(got.is_whiteout && got.is_below);
	assert_false(updir_next(d, &seq, name, &got));
	updir_set(d, "a", &e);
	assert_int_equal(updir_reserve(d, "a", false, &is_new), 0);
	assert_false(is_new);
	assert_true(updir_find(d, "a", &got));
	assert_int_equal(got.ino, 3);
	updir_free(d);
}

static void test_updir__next_skips_whiteouts_and_what_is_below(void **state)
{
	struct updir *d = updir_new();
	struct upent whiteout = { .is_whiteout = true },
		     below = { .type = DT_REG, .is_below = true }, e = plain(5), got;
	char name[NAME_MAX + 1];
	uint64_t seq = 0;

	(void)state;
	updir_set(d, "w", &whiteout);
	updir_set(d, "b", &below);
	updir_set(d, "e", &e);
	assert_true(updir_next(d, &seq, name, &got));
	assert_string_equal(name, "e");
	seq++;
	assert_false(updir_next(d, &seq, name, &got));
	updir_free(d);
}

static bool is_lower_dir(void *arg, const char *name)
{
	unsigned *asked = arg;

	++*asked;
	return name[0] == 'l';
}

/* Names with an l are directories of the lower, which has two. */
static void test_updir__subdirs_are_counted_by_what_changed(void **state)
{
	const struct upent dir = { .type = DT_DIR }, over = { .type = DT_DIR, .is_below = true };
	const struct upent hidden = { .is_whiteout = true, .is_below = true }, file = { .type = DT_REG, .is_below = true };
	struct updir *d = updir_new();
	unsigned asked = 0;

	(void)state;
	assert_int_equal(updir_subdirs(d, is_lower_dir, &asked), 0);
	updir_set(d, "new", &dir);
	updir_set(d, "l1", &over);
	assert_int_equal(updir_subdirs(d, is_lower_dir, &asked), 1);
	updir_set(d, "l1", &hidden);
	updir_set(d, "l2", &file);
	assert_int_equal(updir_subdirs(d, is_lower_dir, &asked), -1);
	updir_set(d, "file", &file);
	updir_remove(d, "new");
	assert_int_equal(updir_subdirs(d, is_lower_dir, &asked), -2);
	updir_remove(d, "l1");
	updir_set(d, "l2", &over);
	asked = 0;
	assert_int_equal(updir_subdirs(d, is_lower_dir, &asked), 0);
	assert_int_equal(asked, 1);
	updir_free(d);
}

static void test_updir__version_changes_with_every_change(void **state)
{
	struct updir *d = updir_new();
	struct upent e = plain(1);
	uint64_t v = updir_version(d);

	(void)state;
	updir_set(d, "a", &e);
	assert_int_not_equal(updir_version(d), v);
	v = updir_version(d);
	updir_set(d, "a", &e);
	assert_int_not_equal(updir_version(d), v);
	v = updir_version(d);
	updir_remove(d, "a");
	assert_int_not_equal(updir_version(d), v);
	updir_free(d);
}

static int stop_at_second(void *arg, const char *name, const struct upent *e)
{
	unsigned *n = arg;

	(void)name;
	(void)e;
	return ++*n == 2 ? -EINTR : 0;
}

static void test_updir__each_stops_when_it_is_told(void **state)
{
	struct updir *d = updir_new();
	struct upent e = plain(1);
	unsigned n = 0;

	(void)state;
	updir_set(d, "a", &e);
	updir_set(d, "b", &e);
	updir_set(d, "c", &e);
	assert_int_equal(updir_each(d, stop_at_second, &n), -EINTR);
	assert_int_equal(n, 2);
	updir_free(d);
}

/* Whoever lists while names come and go sees each that stayed exactly once. */
static void test_updir__listing_goes_on_while_names_come_and_go(void **state)
{
	struct updir *d = updir_new();
	struct upent e = plain(1), got;
	unsigned seen[100] = { 0 };
	char name[NAME_MAX + 1];
	uint64_t seq = 0;

	(void)state;
	for (unsigned k = 0; k < 100; k++) {
		snprintf(name, sizeof(name), "%u", k);
		updir_set(d, name, &e);
	}
	for (unsigned step = 0; updir_next(d, &seq, name, &got); step++) {
		if (*name != 'x')
			seen[atoi(name)]++;
		seq++;
		/* Odd ones go, many others come and go, so that the array is squeezed. */
		snprintf(name, sizeof(name), "%u", step * 2 + 1);
		if (step < 50)
			updir_remove(d, name);
		for (unsigned k = 0; k < 20; k++) {
			snprintf(name, sizeof(name), "x%u", k);
			updir_set(d, name, &e);
			updir_remove(d, name);
		}
	}
	for (unsigned k = 0; k < 100; k += 2)
		assert_int_equal(seen[k], 1);
	updir_free(d);
}

static void fill(struct updir *d, unsigned from, unsigned to, int by)
{
	struct upent e = plain(1);
	char name[NAME_MAX + 1];

	for (unsigned k = from; k != to; k += (unsigned)by) {
		snprintf(name, sizeof(name), "name%u", k);
		assert_int_equal(updir_set(d, name, &e), 0);
	}
}

/* Whoever was in the middle of one goes on in the other. */
static void test_updir__positions_do_not_depend_on_who_made_the_mirror(void **state)
{
	struct updir *a = updir_new(), *b = updir_new();
	uint64_t at_a = 0, at_b = 0, last = 0;
	char name_a[NAME_MAX + 1], name_b[NAME_MAX + 1];
	struct upent got;
	unsigned n = 0, nswapped = 0;

	(void)state;
	fill(a, 0, 1500, 1);
	fill(b, 2999, 1499, -1);
	assert_true(updir_next(b, &at_b, name_b, &got));
	at_b = 0;
	fill(a, 1500, 3000, 1);
	fill(b, 1499, UINT_MAX, -1);
	for (; updir_next(a, &at_a, name_a, &got); at_a++, at_b++, n++) {
		assert_true(updir_next(b, &at_b, name_b, &got));
		assert_int_equal(at_a, at_b);
		nswapped += strcmp(name_a, name_b) != 0;
		assert_true(n == 0 || at_a > last);
		assert_true(at_a < 1u << 30);
		last = at_a;
	}
	assert_int_equal(n, 3000);
	/* Two of one hash may change places; in one run of 250 there are two. */
	assert_true(nswapped <= 4);
	updir_free(a);
	updir_free(b);
}

static void test_updir__random_changes_match_a_plain_table(void **state)
{
	struct updir *d = updir_new();
	struct upent model[NAMES], got;
	bool is_there[NAMES] = { false };
	uint64_t seed = tree_seed("updir"), seq;
	char name[NAME_MAX + 1];
	size_t n = 0;

	(void)state;
	for (unsigned step = 0; step < 5000; step++) {
		unsigned k = tree_random(&seed) % NAMES;
		struct upent e = { .ino = step,
				   .type = DT_REG,
				   .is_whiteout = step % 5 == 0,
				   .is_below = step % 7 == 0 };

		snprintf(name, sizeof(name), "name%u", k);
		if (tree_random(&seed) % 3 == 0) {
			updir_remove(d, name);
			is_there[k] = false;
		} else {
			assert_int_equal(updir_set(d, name, &e), 0);
			is_there[k] = true;
			model[k] = e;
		}
	}
	seq = 0;
	for (unsigned k = 0; k < NAMES; k++) {
		snprintf(name, sizeof(name), "name%u", k);
		assert_int_equal(updir_find(d, name, &got), is_there[k]);
		if (is_there[k])
			assert_int_equal(got.ino, model[k].ino);
		n += is_there[k] && !model[k].is_whiteout && !model[k].is_below;
	}
	for (; updir_next(d, &seq, name, &got); seq++)
		n--;
	assert_int_equal(n, 0);
	updir_free(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_updir__entry_is_found_as_it_was_set),
		cmocka_unit_test(test_updir__replacing_keeps_the_position),
		cmocka_unit_test(test_updir__reserved_name_is_hidden_until_it_is_set),
		cmocka_unit_test(test_updir__next_skips_whiteouts_and_what_is_below),
		cmocka_unit_test(test_updir__subdirs_are_counted_by_what_changed),
		cmocka_unit_test(test_updir__version_changes_with_every_change),
		cmocka_unit_test(test_updir__each_stops_when_it_is_told),
		cmocka_unit_test(test_updir__listing_goes_on_while_names_come_and_go),
		cmocka_unit_test(test_updir__positions_do_not_depend_on_who_made_the_mirror),
		cmocka_unit_test(test_updir__random_changes_match_a_plain_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
