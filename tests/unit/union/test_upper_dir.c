// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/union/upper_dir.h"

#include <limits.h>

#include <dirent.h>

#define NAMES 40

static struct upper_dir_entry plain(uint64_t ino)
{
	return (struct upper_dir_entry){ .ino = ino, .type = DT_REG };
}

static void test_upper_dir__group_is_not_noted_if_it_was_forgotten_meanwhile(void **state)
{
	struct upper_dir *d = upper_dir_new();
	uint64_t seen;
	gid_t gid;

	(void)state;
	assert_false(upper_dir_group(d, &gid, &seen));
	upper_dir_note_group(d, seen, (gid_t)-1);
	assert_true(upper_dir_group(d, &gid, &seen));
	assert_int_equal(gid, (gid_t)-1);
	upper_dir_forget_group(d);
	upper_dir_note_group(d, seen, 7);
	assert_false(upper_dir_group(d, &gid, &seen));
	upper_dir_note_group(d, seen, 5);
	assert_true(upper_dir_group(d, &gid, &seen));
	assert_int_equal(gid, 5);
	upper_dir_forget_group(d);
	assert_false(upper_dir_group(d, &gid, &seen));
	upper_dir_free(d);
}

static void test_upper_dir__entry_is_found_as_it_was_set(void **state)
{
	struct upper_dir *d = upper_dir_new();
	struct upper_dir_entry e = { .ino = 7,
				     .type = DT_LNK,
				     .is_ino_known = true,
				     .is_below = true },
			       got;

	(void)state;
	assert_false(upper_dir_find(d, "a", &got));
	assert_int_equal(upper_dir_set(d, "a", &e), 0);
	assert_true(upper_dir_find(d, "a", &got));
	assert_int_equal(got.ino, 7);
	assert_int_equal(got.type, DT_LNK);
	assert_true(got.is_ino_known && got.is_below && !got.is_whiteout);
	assert_int_equal(upper_dir_count(d), 1);
	upper_dir_free(d);
}

static void test_upper_dir__replacing_keeps_the_position(void **state)
{
	struct upper_dir *d = upper_dir_new();
	struct upper_dir_entry e = plain(1), a, b;

	(void)state;
	upper_dir_set(d, "a", &e);
	upper_dir_set(d, "b", &e);
	upper_dir_find(d, "a", &a);
	e.ino = 2;
	e.seq = 99;
	upper_dir_set(d, "a", &e);
	upper_dir_find(d, "a", &b);
	assert_int_equal(b.ino, 2);
	assert_int_equal(a.seq, b.seq);
	upper_dir_free(d);
}

static void test_upper_dir__reserved_name_is_hidden_until_it_is_set(void **state)
{
	struct upper_dir *d = upper_dir_new();
	struct upper_dir_entry e = plain(3), got;
	bool is_new = false;
	char name[8];
	uint64_t seq = 0;

	(void)state;
	assert_int_equal(upper_dir_reserve(d, "a", true, &is_new), 0);
	assert_true(is_new);
	assert_true(upper_dir_find(d, "a", &got));
	assert_true(got.is_whiteout && got.is_below);
	assert_false(upper_dir_next(d, &seq, name, &got));
	upper_dir_set(d, "a", &e);
	assert_int_equal(upper_dir_reserve(d, "a", false, &is_new), 0);
	assert_false(is_new);
	assert_true(upper_dir_find(d, "a", &got));
	assert_int_equal(got.ino, 3);
	upper_dir_free(d);
}

static void test_upper_dir__next_skips_whiteouts_and_what_is_below(void **state)
{
	struct upper_dir *d = upper_dir_new();
	struct upper_dir_entry whiteout = { .is_whiteout = true },
			       below = { .type = DT_REG, .is_below = true }, e = plain(5), got;
	char name[NAME_MAX + 1];
	uint64_t seq = 0;

	(void)state;
	upper_dir_set(d, "w", &whiteout);
	upper_dir_set(d, "b", &below);
	upper_dir_set(d, "e", &e);
	assert_true(upper_dir_next(d, &seq, name, &got));
	assert_string_equal(name, "e");
	seq++;
	assert_false(upper_dir_next(d, &seq, name, &got));
	upper_dir_free(d);
}

static bool is_lower_dir(void *arg, const char *name)
{
	unsigned *asked = arg;

	++*asked;
	return name[0] == 'l';
}

/* Names with an l are directories of the lower, which has two. */
static void test_upper_dir__subdirs_are_counted_by_what_changed(void **state)
{
	const struct upper_dir_entry dir = { .type = DT_DIR },
				     over = { .type = DT_DIR, .is_below = true };
	const struct upper_dir_entry hidden = { .is_whiteout = true, .is_below = true },
				     file = { .type = DT_REG, .is_below = true };
	struct upper_dir *d = upper_dir_new();
	unsigned asked = 0;

	(void)state;
	assert_int_equal(upper_dir_subdirs(d, is_lower_dir, &asked), 0);
	upper_dir_set(d, "new", &dir);
	upper_dir_set(d, "l1", &over);
	assert_int_equal(upper_dir_subdirs(d, is_lower_dir, &asked), 1);
	upper_dir_set(d, "l1", &hidden);
	upper_dir_set(d, "l2", &file);
	assert_int_equal(upper_dir_subdirs(d, is_lower_dir, &asked), -1);
	upper_dir_set(d, "file", &file);
	upper_dir_remove(d, "new");
	assert_int_equal(upper_dir_subdirs(d, is_lower_dir, &asked), -2);
	upper_dir_remove(d, "l1");
	upper_dir_set(d, "l2", &over);
	asked = 0;
	assert_int_equal(upper_dir_subdirs(d, is_lower_dir, &asked), 0);
	assert_int_equal(asked, 1);
	upper_dir_free(d);
}

static void test_upper_dir__version_changes_with_every_change(void **state)
{
	struct upper_dir *d = upper_dir_new();
	struct upper_dir_entry e = plain(1);
	uint64_t v = upper_dir_version(d);

	(void)state;
	upper_dir_set(d, "a", &e);
	assert_int_not_equal(upper_dir_version(d), v);
	v = upper_dir_version(d);
	upper_dir_set(d, "a", &e);
	assert_int_not_equal(upper_dir_version(d), v);
	v = upper_dir_version(d);
	upper_dir_remove(d, "a");
	assert_int_not_equal(upper_dir_version(d), v);
	upper_dir_free(d);
}

static int stop_at_second(void *arg, const char *name, const struct upper_dir_entry *e)
{
	unsigned *n = arg;

	(void)name;
	(void)e;
	return ++*n == 2 ? -EINTR : 0;
}

static void test_upper_dir__each_stops_when_it_is_told(void **state)
{
	struct upper_dir *d = upper_dir_new();
	struct upper_dir_entry e = plain(1);
	unsigned n = 0;

	(void)state;
	upper_dir_set(d, "a", &e);
	upper_dir_set(d, "b", &e);
	upper_dir_set(d, "c", &e);
	assert_int_equal(upper_dir_each(d, stop_at_second, &n), -EINTR);
	assert_int_equal(n, 2);
	upper_dir_free(d);
}

/* A listing while names come and go sees each that stayed exactly once. */
static void test_upper_dir__listing_goes_on_while_names_come_and_go(void **state)
{
	struct upper_dir *d = upper_dir_new();
	struct upper_dir_entry e = plain(1), got;
	unsigned seen[100] = { 0 };
	char name[NAME_MAX + 1];
	uint64_t seq = 0;

	(void)state;
	for (unsigned k = 0; k < 100; k++) {
		snprintf(name, sizeof(name), "%u", k);
		upper_dir_set(d, name, &e);
	}
	for (unsigned step = 0; upper_dir_next(d, &seq, name, &got); step++) {
		if (*name != 'x')
			seen[atoi(name)]++;
		seq++;
		/* Odd ones go, many others come and go, so that the array is squeezed. */
		snprintf(name, sizeof(name), "%u", step * 2 + 1);
		if (step < 50)
			upper_dir_remove(d, name);
		for (unsigned k = 0; k < 20; k++) {
			snprintf(name, sizeof(name), "x%u", k);
			upper_dir_set(d, name, &e);
			upper_dir_remove(d, name);
		}
	}
	for (unsigned k = 0; k < 100; k += 2)
		assert_int_equal(seen[k], 1);
	upper_dir_free(d);
}

static void fill(struct upper_dir *d, unsigned from, unsigned to, int by)
{
	struct upper_dir_entry e = plain(1);
	char name[NAME_MAX + 1];

	for (unsigned k = from; k != to; k += (unsigned)by) {
		snprintf(name, sizeof(name), "name%u", k);
		assert_int_equal(upper_dir_set(d, name, &e), 0);
	}
}

/* A listing that began with one mirror goes on in the other. */
static void test_upper_dir__positions_do_not_depend_on_who_made_the_mirror(void **state)
{
	struct upper_dir *a = upper_dir_new(), *b = upper_dir_new();
	uint64_t at_a = 0, at_b = 0, last = 0;
	char name_a[NAME_MAX + 1], name_b[NAME_MAX + 1];
	struct upper_dir_entry got;
	unsigned n = 0, nswapped = 0;

	(void)state;
	fill(a, 0, 1500, 1);
	fill(b, 2999, 1499, -1);
	assert_true(upper_dir_next(b, &at_b, name_b, &got));
	at_b = 0;
	fill(a, 1500, 3000, 1);
	fill(b, 1499, UINT_MAX, -1);
	for (; upper_dir_next(a, &at_a, name_a, &got); at_a++, at_b++, n++) {
		assert_true(upper_dir_next(b, &at_b, name_b, &got));
		assert_int_equal(at_a, at_b);
		nswapped += strcmp(name_a, name_b) != 0;
		assert_true(n == 0 || at_a > last);
		assert_true(at_a < 1u << 30);
		last = at_a;
	}
	assert_int_equal(n, 3000);
	/* Two of one hash may change places; in one run of 250 there are two. */
	assert_true(nswapped <= 4);
	upper_dir_free(a);
	upper_dir_free(b);
}

static void test_upper_dir__random_changes_match_a_plain_table(void **state)
{
	struct upper_dir *d = upper_dir_new();
	struct upper_dir_entry model[NAMES], got;
	bool is_there[NAMES] = { false };
	uint64_t seed = tree_seed("updir"), seq;
	char name[NAME_MAX + 1];
	size_t n = 0;

	(void)state;
	for (unsigned step = 0; step < 5000; step++) {
		unsigned k = tree_random(&seed) % NAMES;
		struct upper_dir_entry e = { .ino = step,
					     .type = DT_REG,
					     .is_whiteout = step % 5 == 0,
					     .is_below = step % 7 == 0 };

		snprintf(name, sizeof(name), "name%u", k);
		if (tree_random(&seed) % 3 == 0) {
			upper_dir_remove(d, name);
			is_there[k] = false;
		} else {
			assert_int_equal(upper_dir_set(d, name, &e), 0);
			is_there[k] = true;
			model[k] = e;
		}
	}
	seq = 0;
	for (unsigned k = 0; k < NAMES; k++) {
		snprintf(name, sizeof(name), "name%u", k);
		assert_int_equal(upper_dir_find(d, name, &got), is_there[k]);
		if (is_there[k])
			assert_int_equal(got.ino, model[k].ino);
		n += is_there[k] && !model[k].is_whiteout && !model[k].is_below;
	}
	for (; upper_dir_next(d, &seq, name, &got); seq++)
		n--;
	assert_int_equal(n, 0);
	upper_dir_free(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_upper_dir__group_is_not_noted_if_it_was_forgotten_meanwhile),
		cmocka_unit_test(test_upper_dir__entry_is_found_as_it_was_set),
		cmocka_unit_test(test_upper_dir__replacing_keeps_the_position),
		cmocka_unit_test(test_upper_dir__reserved_name_is_hidden_until_it_is_set),
		cmocka_unit_test(test_upper_dir__next_skips_whiteouts_and_what_is_below),
		cmocka_unit_test(test_upper_dir__subdirs_are_counted_by_what_changed),
		cmocka_unit_test(test_upper_dir__version_changes_with_every_change),
		cmocka_unit_test(test_upper_dir__each_stops_when_it_is_told),
		cmocka_unit_test(test_upper_dir__listing_goes_on_while_names_come_and_go),
		cmocka_unit_test(test_upper_dir__positions_do_not_depend_on_who_made_the_mirror),
		cmocka_unit_test(test_upper_dir__random_changes_match_a_plain_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
