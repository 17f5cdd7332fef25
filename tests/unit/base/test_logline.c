// SPDX-License-Identifier: Apache-2.0
#include "base/logline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <cmocka.h>

static const struct logline plain = {
	.priority = 4,
	.name = "veneer",
	.pid = 12,
	.message = "it \"works\"",
	.at = { .tv_sec = 1700000000, .tv_nsec = 1500000 },
};

static json_t *parsed(const struct logline *l)
{
	char text[LOGLINE_MAX];
	size_t len = logline_json(l, text);
	json_t *j;

	assert_in_range(len, 1, LOGLINE_MAX);
	/* The text is one line, with one end. */
	assert_ptr_equal(memchr(text, '\n', len), text + len - 1);
	j = json_loadb(text, len, 0, NULL);
	assert_non_null(j);
	return j;
}

static const char *value(const json_t *j, const char *key)
{
	return json_string_value(json_object_get(j, key));
}

static void test_logline__json_says_all(void **state)
{
	struct logline l = plain;
	json_t *j = parsed(&l);
	char text[LOGLINE_MAX];

	(void)state;
	assert_string_equal(value(j, "time"), "2023-11-14T22:13:20.001500Z");
	assert_string_equal(value(j, "level"), "warning");
	assert_int_equal(json_integer_value(json_object_get(j, "priority")), 4);
	assert_int_equal(json_integer_value(json_object_get(j, "pid")), 12);
	assert_string_equal(value(j, "message"), "it \"works\"");
	assert_null(json_object_get(j, "mount"));
	json_decref(j);
	l.mount = "/a\\b\n\xff\xc3\xa4";
	j = parsed(&l);
	assert_string_equal(value(j, "mount"), "/a\\b\n\\xff\xc3\xa4");
	json_decref(j);
	l.mount = "\xc2\x9b"
		  "2J\xe2\x80\xae";
	j = parsed(&l);
	assert_string_equal(value(j, "mount"), l.mount);
	json_decref(j);
	logline_json(&l, text);
	assert_non_null(strstr(text, "\\u009b2J\\u202e"));
}

static void test_logline__json_of_any_length_is_json(void **state)
{
	static const char *const pieces[] = { "a", "\"", "\xff", "\xf0\x9f\x90\xa7", "\n" };
	struct logline l = plain;

	(void)state;
	for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++)
		for (size_t n = 1; n < 9000; n += 97) {
			char *mount = malloc(n * 4 + 1);

			*mount = '\0';
			for (size_t k = 0; k < n; k++)
				strcpy(mount + k * strlen(pieces[i]), pieces[i]);
			l.mount = n % 2 ? mount : NULL;
			l.message = mount;
			json_decref(parsed(&l));
			free(mount);
		}
}

static void test_logline__journal_has_a_field_a_line(void **state)
{
	struct logline l = plain;
	char text[LOGLINE_MAX + 1];

	(void)state;
	l.mount = "/a\nPRIORITY=0";
	text[logline_journal(&l, text)] = '\0';
	assert_non_null(strstr(text, "PRIORITY=4\n"));
	assert_non_null(strstr(text, "SYSLOG_IDENTIFIER=veneer\n"));
	assert_non_null(strstr(text, "VENEER_MOUNT=/a?PRIORITY=0\n"));
	assert_non_null(strstr(text, "MESSAGE=it \"works\"\n"));
	l.mount = NULL;
	text[logline_journal(&l, text)] = '\0';
	assert_null(strstr(text, "VENEER_MOUNT"));
}

static void test_logline__journal_of_any_length(void **state)
{
	struct logline l = plain;
	char *text = malloc(20001), to[LOGLINE_MAX];

	(void)state;
	memset(text, 'x', 20000);
	text[20000] = '\0';
	l.mount = l.message = text;
	size_t len = logline_journal(&l, to);

	assert_in_range(len, 6000, LOGLINE_MAX);
	assert_int_equal(to[len - 1], '\n');
	assert_non_null(memmem(to, len, "\nMESSAGE=x", 10));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_logline__json_says_all),
		cmocka_unit_test(test_logline__json_of_any_length_is_json),
		cmocka_unit_test(test_logline__journal_has_a_field_a_line),
		cmocka_unit_test(test_logline__journal_of_any_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
