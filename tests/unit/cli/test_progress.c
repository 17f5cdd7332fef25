// SPDX-License-Identifier: Apache-2.0
#include "../../src/cli/progress.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Standard error is a pipe meanwhile: no terminal. */
struct heard {
	int fd, saved;
	char text[512];
};

static void listen_to(struct heard *h)
{
	int fds[2];

	assert_int_equal(pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0);
	h->saved = dup(STDERR_FILENO);
	assert_true(dup2(fds[1], STDERR_FILENO) >= 0);
	close(fds[1]);
	h->fd = fds[0];
}

static const char *hear(struct heard *h)
{
	ssize_t n = read(h->fd, h->text, sizeof(h->text) - 1);

	h->text[n > 0 ? n : 0] = '\0';
	return h->text;
}

static void stop_listening(struct heard *h)
{
	dup2(h->saved, STDERR_FILENO);
	close(h->saved);
	close(h->fd);
}

/* As if it had begun so much earlier. */
static void begin(struct progress *p, bool is_quiet, unsigned ago_s)
{
	progress_start(p, is_quiet);
	p->start_ms -= ago_s * 1000;
}

static void test_progress__plain_line_each_ten_seconds(void **state)
{
	struct heard h;
	struct progress p;
	struct step step;

	(void)state;
	listen_to(&h);
	begin(&p, false, 9);
	step = progress_walk(&p);
	step_take(&step, 3000, 2);
	assert_string_equal(hear(&h), "");
	begin(&p, false, 100);
	step = progress_walk(&p);
	step_take(&step, 300000, 2);
	assert_non_null(strstr(hear(&h), "300,000 entries, 2,"));
	assert_non_null(strstr(h.text, "/s, 2 directories left\n"));
	assert_null(strpbrk(h.text, "\r\033"));
	step_take(&step, 300001, 2);
	assert_string_equal(hear(&h), "");
	p.drawn_ms -= 11000;
	step_take(&step, 300002, 0);
	assert_non_null(strstr(hear(&h), "300,002 entries, "));
	assert_null(strstr(h.text, "left"));
	progress_clear(&p);
	assert_string_equal(hear(&h), "");
	stop_listening(&h);
}

static void test_progress__time_left_follows_the_rate(void **state)
{
	struct heard h;
	struct progress p;
	unsigned left_s = 0;

	(void)state;
	listen_to(&h);
	begin(&p, false, 20);
	assert_true(progress_is_due(&p));
	assert_false(progress_is_due(&p));
	progress_show(&p, "file", &(struct progress_point){ 1, 4, 20 << 20, 80 << 20 }, ", more");
	assert_non_null(strstr(hear(&h), "1 of 4 files, 20 MiB of 80 MiB, "));
	assert_int_equal(sscanf(strrchr(h.text, '/'), "/s, %u s left", &left_s), 1);
	assert_true(left_s > 60 && left_s < 120);
	assert_non_null(strstr(h.text, " s left, more\n"));
	progress_show(&p, "file", &(struct progress_point){ 1, 4, 20 << 20, 0 }, "");
	assert_null(strstr(hear(&h), "left"));
	stop_listening(&h);
}

static void test_progress__quiet_says_nothing(void **state)
{
	struct heard h;
	struct progress p;
	struct step step;

	(void)state;
	listen_to(&h);
	begin(&p, true, 100);
	step = progress_walk(&p);
	step_take(&step, 300000, 2);
	assert_false(progress_is_due(&p));
	assert_string_equal(hear(&h), "");
	stop_listening(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_progress__plain_line_each_ten_seconds),
		cmocka_unit_test(test_progress__time_left_follows_the_rate),
		cmocka_unit_test(test_progress__quiet_says_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
