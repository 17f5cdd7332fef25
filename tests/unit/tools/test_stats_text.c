// SPDX-License-Identifier: Apache-2.0
#include "support/reports.h"

#include "veneer/tools/stats_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *text;

static FILE *begin(void)
{
	static size_t len;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(f);
	return f;
}

static void assert_has(const char *part)
{
	if (!strstr(text, part))
		fail_msg("no \"%s\" in:\n%s", part, text);
}

static void test_stats_text__all_mounts_have_a_line_and_requests_are_sorted(void **state)
{
	struct report r = reports_make("/c2");
	FILE *f = begin();

	(void)state;
	assert_int_equal(stats_text_print(&r, true, f), 0);
	fclose(f);
	assert_has("veneer 1.2.3, server 4242, up 3 h 12 min: 2 mounts of 1 image, 2 kept, 57 open "
		   "files of layers\n");
	assert_has("memory 12 MiB: images 1.0 MiB, inodes 2.0 MiB,");
	assert_has("copies in 64 mounts: 250 of 100 extents, limit 32, 75 MiB beyond the first; ");
	assert_has("passthrough     3+1     617       403");
	assert_has("/c1/merged\n");
	assert_has("cached            3     617         0");
	assert_true(strstr(text, "\nread ") < strstr(text, "\nlookup "));
	assert_true(strstr(text, "\nlookup ") < strstr(text, "\nforget "));
	assert_has("20 s\n");
	free(text);
	report_release(&r);
}

static void test_stats_text__a_mount_that_may_hardly_take_more_is_red(void **state)
{
	static const struct quota_usage full[] = { { .bytes = 90, .max_bytes = 100 },
						   { .bytes = 1, .inodes = 10, .max_inodes = 10 } };
	static const struct quota_usage roomy[] = { { .bytes = 89, .max_bytes = 100 },
						    { .bytes = 1000, .inodes = 1000 } };
	struct report r = reports_make("/c2");

	(void)state;
	r.mounts[0].has_quota = true;
	for (size_t i = 0; i < 4; i++) {
		FILE *f = begin();

		r.mounts[0].quota = i < 2 ? full[i] : roomy[i - 2];
		assert_int_equal(stats_text_print(&r, true, f), 0);
		fclose(f);
		assert_int_equal(strstr(text, "\n\033[31mpassthrough ") != NULL, i < 2);
		assert_int_equal(strstr(text, "/c1/merged\033[0m\ncached ") != NULL, i < 2);
		free(text);
	}
	r.mounts[0].quota = full[0];
	FILE *f = begin();

	assert_int_equal(stats_text_print(&r, false, f), 0);
	fclose(f);
	assert_null(strchr(text, '\033'));
	free(text);
	report_release(&r);
}

static void test_stats_text__one_mount_in_full(void **state)
{
	struct report r = reports_make("/c\033[2J");
	FILE *f = begin();

	(void)state;
	assert_int_equal(stats_text_print_mount(&r.mounts[0], f), 0);
	assert_int_equal(stats_text_print_mount(&r.mounts[1], f), 0);
	fclose(f);
	assert_has(
		"/c1/merged: passthrough, 3 lower layers (image 0), upper /c1/upper, 617 inodes\n"
		"  ignored        sizze=5M, --foo\n");
	assert_has("/c?[2J: cached, 3 lower layers (image 0), 617 inodes\n");
	assert_has("64 MiB not copied\n");
	assert_has("no requests yet\n");
	free(text);
	report_release(&r);
}

static void test_stats_text__rates_are_of_the_time_between_and_the_busiest_is_first(void **state)
{
	struct report a = reports_make("/c2"), b = reports_make("/c2");
	struct stats_values *first = &b.mounts[0].values, *second = &b.mounts[1].values;
	FILE *f = begin();

	(void)state;
	first->ops[15].requests += 10;
	second->ops[16].requests = 500;
	second->counters[STATS_WRITE_BYTES] = 500 * 4096;
	b.totals.ops[16].requests += 500;
	b.totals.ops[15].requests += 10;
	assert_int_equal(stats_text_print_rates(&a, &b, 2, f), 0);
	fclose(f);
	assert_true(strstr(text, "/c2\n") < strstr(text, "/c1/merged\n"));
	assert_has("  250  1000 KiB ");
	assert_has("\nwrite      250 ");
	assert_has("\nread       5.0 ");
	assert_null(strstr(text, "\nlookup"));
	free(text);

	/* another server, without mounts; no time at all */
	b.pid++;
	f = begin();
	assert_int_equal(stats_text_print_rates(&a, &b, 0, f), 0);
	fclose(f);
	assert_has("\nlookup");
	free(text);
	report_release(&a);
	report_release(&b);
	a = (struct report){ .version = strdup("1") };
	f = begin();
	assert_int_equal(stats_text_print_rates(&a, &a, 1, f), 0);
	fclose(f);
	assert_has("no mounts\n");
	free(text);
	report_release(&a);
}

static void test_stats_text__rates_as_json_are_a_report_of_what_was_gained(void **state)
{
	struct report a = reports_make("/c2"), b = reports_make("/c2"), back;
	FILE *f = begin();

	(void)state;
	b.mounts[1].values.ops[16].requests = 500;
	b.totals.ops[16].requests += 500;
	b.mounts[0].values.counters[STATS_READ_BYTES] += 4096;
	assert_int_equal(stats_text_print_json(&a, &b, 2.5, f), 0);
	fclose(f);
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
	assert_int_equal(strncmp(text, "{\"seconds\":2.500000,", 20), 0);
	assert_int_equal(report_parse(text, &back), 0);
	assert_int_equal(back.nmounts, 2);
	assert_string_equal(back.mounts[0].mountpoint, "/c2");
	assert_int_equal(back.mounts[0].values.ops[16].requests, 500);
	assert_int_equal(back.mounts[1].values.ops[15].requests, 0);
	assert_int_equal(back.mounts[1].values.counters[STATS_READ_BYTES], 4096);
	assert_int_equal(back.mounts[1].values.counters[STATS_WRITE_BYTES], 0);
	assert_int_equal(back.totals.ops[16].requests, 500);
	assert_int_equal(back.inodes_served, b.inodes_served);
	free(text);
	report_release(&back);
	report_release(&a);
	report_release(&b);
}

/* A mount that came in place of another one has counted less. */
static void test_stats_text__a_mount_that_is_new_counts_from_nothing(void **state)
{
	struct report a = reports_make("/c2"), b = reports_make("/c3");
	FILE *f = begin();

	(void)state;
	b.mounts[1].values.ops[1].requests = 70;
	b.mounts[0].values.ops[15].requests = 1;
	assert_int_equal(stats_text_print_rates(&a, &b, 1, f), 0);
	fclose(f);
	assert_has("cached          70 ");
	assert_has("passthrough      0 ");
	free(text);
	report_release(&a);
	report_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stats_text__all_mounts_have_a_line_and_requests_are_sorted),
		cmocka_unit_test(test_stats_text__a_mount_that_may_hardly_take_more_is_red),
		cmocka_unit_test(test_stats_text__one_mount_in_full),
		cmocka_unit_test(
			test_stats_text__rates_are_of_the_time_between_and_the_busiest_is_first),
		cmocka_unit_test(test_stats_text__rates_as_json_are_a_report_of_what_was_gained),
		cmocka_unit_test(test_stats_text__a_mount_that_is_new_counts_from_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
