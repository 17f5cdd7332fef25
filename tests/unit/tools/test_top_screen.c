// SPDX-License-Identifier: Apache-2.0
#include "support/reports.h"

#include "veneer/tools/top_screen.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *text;

static void print(const struct top_screen *s, const struct report *a, const struct report *b)
{
	size_t len;
	FILE *f;

	free(text);
	f = open_memstream(&text, &len);
	assert_non_null(f);
	assert_int_equal(top_screen_print(s, a, b, 1, f), 0);
	fclose(f);
}

static void assert_has(const char *part, bool is_there)
{
	if (!strstr(text, part) == is_there)
		fail_msg("%s\"%s\" in:\n%s", is_there ? "no " : "", part, text);
}

/* So many mounts; the nth has n requests. */
static struct report many(size_t n, bool is_later)
{
	struct report r = reports_make("/second");
	char place[128];

	while (r.nmounts < n) {
		assert_int_equal(report_make_room(&r), 0);
		snprintf(place, sizeof(place), "/var/lib/containers/storage/overlay/%064zu/merged",
			 r.nmounts);
		r.mounts[r.nmounts].mountpoint = strdup(place);
		r.mounts[r.nmounts].mode = strdup("cached");
		r.mounts[r.nmounts].values.ops[1].requests = is_later ? r.nmounts : 0;
		r.nmounts++;
	}
	return r;
}

static void test_top_screen__fits_terminals_of_any_size(void **state)
{
	static const size_t mounts[] = { 2, 3, 9, 64 };

	(void)state;
	for (size_t k = 0; k < sizeof(mounts) / sizeof(*mounts); k++) {
		struct report a = many(mounts[k], false), b = many(mounts[k], true);

		b.totals.ops[1].requests += 1000;
		for (size_t rows = 6; rows < 90; rows++)
			for (size_t columns = 30; columns < 200; columns += 17) {
				size_t n = 1, left = mounts[k], shown = 0;

				print(&(struct top_screen){ .columns = columns, .rows = rows }, &a,
				      &b);
				for (char *line = text; line;
				     line = strchr(line, '\n'), line += line != NULL) {
					shown += !strncmp(line + strcspn(line, "\n") -
								  (strcspn(line, "\n") > 6 ? 6 : 0),
							  "merged", 6);
					n += line != text;
				}
				if (n > rows)
					fail_msg("%zu lines on %zu rows:\n%s", n, rows, text);
				/* The shown and the left out mounts are all there are. */
				if (sscanf(strstr(text, "\nand ") ?: "", " and %zu more", &left) !=
				    1)
					left = 0;
				assert_true(left < mounts[k] && shown + left <= mounts[k]);
				assert_has("q quit", true);
			}
		report_release(&a);
		report_release(&b);
	}
}

static void test_top_screen__the_end_of_a_name_is_what_tells_mounts_apart(void **state)
{
	struct report a = many(4, false), b = many(4, true);

	(void)state;
	print(&(struct top_screen){ .columns = 80, .rows = 24 }, &a, &b);
	assert_has("..", true);
	assert_has("0000003/merged\n", true);
	assert_has("/var/lib", false);
	print(&(struct top_screen){ .columns = 200, .rows = 24 }, &a, &b);
	assert_has("  /var/lib/containers/storage/overlay/0", true);
	assert_has("OWN/S", true);
	report_release(&a);
	report_release(&b);
}

static void test_top_screen__sorted_by_what_was_chosen(void **state)
{
	struct report a = reports_make("/c2"), b = reports_make("/c2");
	struct stats_values *first = &b.mounts[0].values, *second = &b.mounts[1].values;
	struct top_screen s = { .columns = 120, .rows = 24 };

	(void)state;
	first->ops[15].requests += 10;
	first->ops[15].buckets[3] += 10;
	first->counters[STATS_COW_BYTES] += 4096;
	second->ops[16] = (struct stats_op){ .requests = 5, .errors = 1, .max_ns = 500000 };
	second->ops[16].buckets[9] = 5;
	second->counters[STATS_WRITE_BYTES] = 5;
	for (const char *key = "rebwctm"; *key; key++) {
		const bool is_second_first = strchr("ewt", *key);

		assert_true(top_screen_key(*key, &s.order));
		print(&s, &a, &b);
		if ((strstr(text, "/c2\n") < strstr(text, "/c1/merged\n")) != is_second_first)
			fail_msg("by %c:\n%s", *key, text);
		assert_int_equal(strstr(text, "*") != NULL, 1);
	}
	assert_false(top_screen_key('x', &s.order));
	report_release(&a);
	report_release(&b);
}

static void test_top_screen__plain_where_no_style_is_wanted(void **state)
{
	struct report a = reports_make("/c2");
	struct top_screen s = { .columns = 80, .rows = 24, .has_style = true };

	(void)state;
	print(&s, &a, &a);
	assert_has("\033[", true);
	assert_has("\033[31m", false);
	a.mounts[1].has_quota = true;
	a.mounts[1].quota = (struct quota_usage){ .bytes = 95, .max_bytes = 100 };
	print(&s, &a, &a);
	assert_has("/c2\033[0m\n", true);
	assert_has("/c1/merged\n", true);
	s.has_style = false;
	print(&s, &a, &a);
	assert_has("\033", false);
	report_release(&a);
	a = (struct report){ .version = strdup("1") };
	print(&s, &a, &a);
	assert_has("no mounts\n", true);
	report_release(&a);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_top_screen__fits_terminals_of_any_size),
		cmocka_unit_test(test_top_screen__the_end_of_a_name_is_what_tells_mounts_apart),
		cmocka_unit_test(test_top_screen__sorted_by_what_was_chosen),
		cmocka_unit_test(test_top_screen__plain_where_no_style_is_wanted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
