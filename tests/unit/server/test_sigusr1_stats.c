// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "server/sigusr1_stats.h"
#include "veneer/base/log.h"

#include <sys/mman.h>

/* What is printed, to standard error or the log. */
static char *printed(const struct sigusr1_stats *c, bool is_shared, bool to_log)
{
	int fd = memfd_create("printed", MFD_CLOEXEC), saved = dup(STDERR_FILENO);
	char *text = calloc(1, 65536);

	assert_true(fd >= 0 && saved >= 0 && text);
	fflush(stderr);
	dup2(fd, STDERR_FILENO);
	sigusr1_stats_print(c, is_shared, to_log);
	fflush(stderr);
	dup2(saved, STDERR_FILENO);
	close(saved);
	assert_true(pread(fd, text, 65535, 0) >= 0);
	close(fd);
	return text;
}

static void test_sigusr1_stats__lines_are_those_that_readers_know(void **state)
{
	struct sigusr1_stats c = { .mounts = 3 };
	struct tree_dirs *d = *state;
	char *text, line[64];

	tree_put_text(d, "lower/file", "text");
	tree_mount(d, "volatile");
	tree_get(d, "file");
	sigusr1_stats_add(&c, &d->m);
	assert_true(c.nodes >= 1);
	assert_true(c.has_upper);
	assert_false(c.has_backing);
	text = printed(&c, false, false);
	snprintf(line, sizeof(line), "# INODES: %llu\n", (unsigned long long)c.nodes);
	assert_non_null(strstr(text, line));
	assert_non_null(strstr(text, "# MAP FILES: 0\n"));
	assert_null(strstr(text, "# MOUNTS:"));
	assert_null(strstr(text, "# BACKING FILES:"));
	assert_null(strstr(text, "# IMAGES:"));
	/* Each is a line of this form. */
	for (const char *at = text; *at; at = strchr(at, '\n') + 1) {
		assert_int_equal(strncmp(at, "# ", 2), 0);
		assert_non_null(strchr(at, '\n'));
	}
	free(text);
}

static void test_sigusr1_stats__mounts_add_up(void **state)
{
	struct sigusr1_stats one = { .mounts = 1 }, two = { .mounts = 2 };
	struct tree_dirs *d = *state;
	char *text;

	tree_put_text(d, "lower/file", "text");
	tree_mount(d, "volatile");
	tree_get(d, "file");
	sigusr1_stats_add(&one, &d->m);
	sigusr1_stats_add(&two, &d->m);
	sigusr1_stats_add(&two, &d->m);
	assert_int_equal(two.nodes, 2 * one.nodes);
	two.has_backing = true;
	text = printed(&two, true, false);
	assert_non_null(strstr(text, "# MOUNTS: 2\n"));
	assert_non_null(strstr(text, "# BACKING FILES: 0\n"));
	assert_non_null(strstr(text, "# IMAGES: "));
	free(text);
}

static void test_sigusr1_stats__server_without_a_standard_error_logs_them(void **state)
{
	struct sigusr1_stats c = { .mounts = 1 };
	char *text;

	(void)state;
	log_set_level(LOG_LVL_INFO);
	text = printed(&c, true, true);
	log_set_level(LOG_LVL_ERROR);
	assert_non_null(strstr(text, "# MOUNTS: 1"));
	assert_int_not_equal(text[0], '#');
	free(text);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_sigusr1_stats__lines_are_those_that_readers_know),
		row(test_sigusr1_stats__mounts_add_up),
		row(test_sigusr1_stats__server_without_a_standard_error_logs_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
