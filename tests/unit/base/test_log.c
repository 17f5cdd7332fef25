// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int real_stderr = -1;
static int pipe_fds[2];

static void capture(void)
{
	fflush(stderr);
	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK), 0);
	real_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	assert_int_equal(dup2(pipe_fds[1], STDERR_FILENO), STDERR_FILENO);
	close(pipe_fds[1]);
}

/* Everything written since capture(), as text. */
static void captured(char *text, size_t size)
{
	dup2(real_stderr, STDERR_FILENO);
	close(real_stderr);

	ssize_t n = read(pipe_fds[0], text, size - 1);

	text[n > 0 ? n : 0] = '\0';
	close(pipe_fds[0]);
}

static void test_log__one_line_with_the_name_before_it(void **state)
{
	char text[256];

	(void)state;
	capture();
	log_error("file %d of %s", 3, "four");
	captured(text, sizeof(text));
	assert_string_equal(text, "veneer: file 3 of four\n");
}

static void test_log__name_is_copied(void **state)
{
	char name[] = "other", text[256];

	(void)state;
	log_set_name(name);
	name[0] = 'X';
	capture();
	log_warn("hello");
	captured(text, sizeof(text));
	log_set_name("veneer");
	assert_string_equal(text, "other: hello\n");
}

static void test_log__lines_above_the_level_are_dropped(void **state)
{
	char text[256];

	(void)state;
	capture();
	log_info("shown");
	log_debug("not shown");
	log_set_level(LOG_LVL_ERROR);
	log_warn("not shown");
	log_error("error");
	log_set_level(LOG_LVL_DEBUG);
	log_debug("debug");
	log_set_level(LOG_LVL_INFO);
	captured(text, sizeof(text));
	assert_string_equal(text, "veneer: shown\nveneer: error\nveneer: debug\n");
}

static void test_log__keeps_errno_and_knows_percent_m(void **state)
{
	char text[256];

	(void)state;
	capture();
	errno = ENOENT;
	log_error("open: %m");
	assert_int_equal(errno, ENOENT);
	captured(text, sizeof(text));
	assert_string_equal(text, "veneer: open: No such file or directory\n");
}

static void test_log__hostile_names_make_no_second_line(void **state)
{
	char text[256];

	(void)state;
	capture();
	log_error("%s", "a\nveneer: forged\r\x1b[2J\tb");
	captured(text, sizeof(text));
	assert_string_equal(text, "veneer: a?veneer: forged??[2J?b\n");
	/* controls of eight bits, as characters and as bytes, and what turns text around */
	capture();
	log_error("%s", "\xc3\xa4 \xc2\x9b"
			"2J \x9b"
			"2J \xe2\x80\xae"
			"x \xe2\x82\xac");
	captured(text, sizeof(text));
	assert_string_equal(text, "veneer: \xc3\xa4 ??2J ?2J ???x \xe2\x82\xac\n");
}

static void test_log__long_lines_are_cut_but_ended(void **state)
{
	char *text = malloc(20000), *name = malloc(10001);

	(void)state;
	memset(name, 'n', 10000);
	name[10000] = '\0';
	capture();
	log_error("%s", name);
	captured(text, 20000);
	assert_in_range(strlen(text), 1000, 4095);
	assert_int_equal(strchr(text, '\n') - text, strlen(text) - 1);
	free(text);
	free(name);
}

static void *many_lines(void *arg)
{
	(void)arg;
	for (int i = 0; i < 100; i++) {
		log_info("0123456789012345678901234567890123456789");
		log_set_name("veneer");
	}
	return NULL;
}

static void test_log__threads_write_whole_lines(void **state)
{
	static const char line[] = "veneer: 0123456789012345678901234567890123456789\n";
	pthread_t threads[4];
	char text[60000];

	(void)state;
	capture();
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, many_lines, NULL), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	captured(text, sizeof(text));
	assert_int_equal(strlen(text), 400 * (sizeof(line) - 1));
	for (int i = 0; i < 400; i++)
		assert_memory_equal(text + i * (sizeof(line) - 1), line, sizeof(line) - 1);
}

static void test_log__closed_standard_error_is_harmless(void **state)
{
	int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);

	(void)state;
	close(STDERR_FILENO);
	errno = 0;
	log_error("to nobody");
	assert_int_equal(errno, 0);
	dup2(saved, STDERR_FILENO);
	close(saved);
}

static void test_log__a_line_that_others_repeat_is_left_out_and_counted(void **state)
{
	struct log_limit l = { .lock = PTHREAD_MUTEX_INITIALIZER };
	unsigned n_left_out;

	(void)state;
	for (unsigned k = 0; k < LOG_LIMIT_LINES; k++) {
		assert_true(log_allows(&l, 1000 + k, &n_left_out));
		assert_int_equal(n_left_out, 0);
	}
	for (unsigned k = 0; k < 5; k++)
		assert_false(log_allows(&l, 1000 + LOG_LIMIT_MS - 1, &n_left_out));
	assert_true(log_allows(&l, 1000 + LOG_LIMIT_MS, &n_left_out));
	assert_int_equal(n_left_out, 5);
	assert_true(log_allows(&l, 1000 + LOG_LIMIT_MS, &n_left_out));
	assert_int_equal(n_left_out, 0);
}

/* Last: there is no way back. */
static void test_log__syslog_leaves_standard_error_alone(void **state)
{
	char text[256];

	(void)state;
	capture();
	log_to_syslog();
	log_to_syslog();
	errno = EPERM;
	log_info("test of the log module");
	assert_int_equal(errno, EPERM);
	captured(text, sizeof(text));
	assert_string_equal(text, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_log__one_line_with_the_name_before_it),
		cmocka_unit_test(test_log__name_is_copied),
		cmocka_unit_test(test_log__lines_above_the_level_are_dropped),
		cmocka_unit_test(test_log__keeps_errno_and_knows_percent_m),
		cmocka_unit_test(test_log__hostile_names_make_no_second_line),
		cmocka_unit_test(test_log__long_lines_are_cut_but_ended),
		cmocka_unit_test(test_log__threads_write_whole_lines),
		cmocka_unit_test(test_log__closed_standard_error_is_harmless),
		cmocka_unit_test(test_log__a_line_that_others_repeat_is_left_out_and_counted),
		cmocka_unit_test(test_log__syslog_leaves_standard_error_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
