// SPDX-License-Identifier: Apache-2.0
#include "support/reports.h"

#include "veneer/tools/prometheus.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *print(const struct report *r)
{
	char *text;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(f);
	assert_int_equal(prometheus_print(r, f), 0);
	assert_int_equal(fclose(f), 0);
	return text;
}

/* text has this line, once. */
static void assert_line(const char *text, const char *line)
{
	size_t len = strlen(line), n = 0;

	for (const char *p = text; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
		n += !strncmp(p, line, len) && p[len] == '\n';
	if (n != 1)
		fail_msg("%zu times: %s", n, line);
}

static void test_prometheus__figures_have_their_labels(void **state)
{
	struct report r = reports_make("/c2");
	char *text = print(&r);

	(void)state;
	assert_line(text, "veneer_build_info{version=\"1.2.3\"} 1");
	assert_line(text, "veneer_mounts 2");
	assert_line(text, "veneer_memory_bytes{purpose=\"inodes\"} 2097152");
	assert_line(text, "veneer_mount_info{mountpoint=\"/c1/"
			  "merged\",mode=\"passthrough\",image=\"0\",container=\"\"} 1");
	assert_line(text, "veneer_cow_writes_total{mountpoint=\"/c1/merged\"} 1006");
	assert_line(text, "veneer_cow_writes_total{mountpoint=\"/c2\"} 0");
	assert_line(text, "veneer_server_cow_writes_total 1006");
	assert_line(text, "# TYPE veneer_cow_writes_total counter");
	assert_line(text, "veneer_requests_total{mountpoint=\"/c1/merged\",op=\"read\"} 400");
	assert_line(text, "veneer_request_errors_total{mountpoint=\"/c1/merged\",op=\"read\"} 5");
	assert_line(text, "veneer_server_requests_total{op=\"lookup\"} 9");
	assert_null(strstr(text, "mountpoint=\"/c2\",op="));
	free(text);
	report_release(&r);
}

static void test_prometheus__buckets_add_up(void **state)
{
	struct report r = reports_make("/c2");
	char *text = print(&r);

	(void)state;
	assert_line(text, "# TYPE veneer_request_duration_seconds histogram");
	assert_line(text, "veneer_request_duration_seconds_bucket{mountpoint=\"/c1/"
			  "merged\",op=\"read\",le=\"0.000001\"} 1");
	assert_line(text, "veneer_request_duration_seconds_bucket{mountpoint=\"/c1/"
			  "merged\",op=\"read\",le=\"0.000002\"} 3");
	assert_line(text, "veneer_request_duration_seconds_bucket{mountpoint=\"/c1/"
			  "merged\",op=\"read\",le=\"16.777216\"} 325");
	assert_line(text, "veneer_request_duration_seconds_bucket{mountpoint=\"/c1/"
			  "merged\",op=\"read\",le=\"+Inf\"} 351");
	assert_line(
		text,
		"veneer_request_duration_seconds_count{mountpoint=\"/c1/merged\",op=\"read\"} 351");
	assert_line(text, "veneer_request_duration_seconds_sum{mountpoint=\"/c1/"
			  "merged\",op=\"read\"} 0.007000000");
	assert_line(text, "veneer_request_duration_seconds_bucket{mountpoint=\"/c1/"
			  "merged\",op=\"forget\",le=\"+Inf\"} 0");
	free(text);
	report_release(&r);
}

static void test_prometheus__labels_are_escaped_and_never_the_same(void **state)
{
	struct report r = reports_make("/a\\b\"c\nd");
	char *text = print(&r);

	(void)state;
	assert_line(text, "veneer_mount_inodes{mountpoint=\"/a\\\\b\\\"c\\nd\"} 617");
	free(text);
	report_release(&r);
	r = reports_make("/c1/merged");
	text = print(&r);
	assert_line(text, "veneer_mount_inodes{mountpoint=\"/c1/merged\"} 617");
	assert_line(text, "veneer_mount_inodes{mountpoint=\"/c1/merged#2\"} 617");
	free(text);
	report_release(&r);
}

/* HELP, TYPE and every line of a family stand together, and no family comes twice. */
static void test_prometheus__families_are_whole(void **state)
{
	struct report r = reports_make("/c2");
	char *text = print(&r), family[128] = "", seen[128][128];
	size_t nseen = 0;

	(void)state;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		if (!strncmp(line, "# HELP ", 7)) {
			assert_int_equal(sscanf(line, "# HELP %127s", family), 1);
			for (size_t i = 0; i < nseen; i++)
				assert_string_not_equal(seen[i], family);
			assert_true(nseen < 128);
			strcpy(seen[nseen++], family);
			assert_int_equal(line[strlen(line) - 1], '.');
		} else if (*line == '#') {
			assert_memory_equal(line, "# TYPE ", 7);
			assert_memory_equal(line + 7, family, strlen(family));
		} else {
			assert_memory_equal(line, family, strlen(family));
			assert_non_null(strchr("{ _", line[strlen(family)]));
		}
	}
	assert_true(nseen > 40);
	free(text);
	report_release(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_prometheus__figures_have_their_labels),
		cmocka_unit_test(test_prometheus__buckets_add_up),
		cmocka_unit_test(test_prometheus__labels_are_escaped_and_never_the_same),
		cmocka_unit_test(test_prometheus__families_are_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
