// SPDX-License-Identifier: Apache-2.0
#include "tools/text_table.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *print(const struct text_table *g)
{
	char *text;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(f);
	assert_int_equal(text_table_print(g, f), 0);
	assert_int_equal(fclose(f), 0);
	return text;
}

static void test_text_table__columns_are_as_wide_as_what_is_in_them(void **state)
{
	static const char *const heads[] = { "NAME", "N", "PLACE" };
	struct text_table g;
	char *text;

	(void)state;
	text_table_init(&g, "lrl", heads);
	for (int i = 0; i < 2; i++) {
		text_table_put(&g, i ? "gr\xc3\xbc\xc3\x9f" : "a");
		text_table_put(&g, i ? "12345" : "1");
		text_table_put(&g, i ? "/" : "/long/way");
	}
	text = print(&g);
	assert_string_equal(text, "NAME      N  PLACE\n"
				  "a         1  /long/way\n"
				  "gr\xc3\xbc\xc3\x9f  12345  /\n");
	free(text);
	text_table_release(&g);
}

static void test_text_table__a_terminal_is_told_nothing(void **state)
{
	static const char *const heads[] = { "NAME" };
	struct text_table g;
	char *text;

	(void)state;
	text_table_init(&g, "l", heads);
	text_table_put(&g, "a\033[2Jb\nc\x7f");
	text = print(&g);
	assert_string_equal(text, "NAME\na?[2Jb?c?\n");
	free(text);
	text_table_release(&g);
}

static void test_text_table__many_rows_and_a_lost_cell(void **state)
{
	static const char *const heads[] = { "A", "B" };
	struct text_table g;
	char *text;

	(void)state;
	text_table_init(&g, "rr", heads);
	for (int i = 0; i < 2000; i++)
		text_table_put(&g, "x");
	text = print(&g);
	assert_int_equal(strlen(text), 1001 * 5);
	free(text);
	g.has_failed = true;
	assert_int_equal(text_table_print(&g, stdout), -ENOMEM);
	text_table_release(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text_table__columns_are_as_wide_as_what_is_in_them),
		cmocka_unit_test(test_text_table__a_terminal_is_told_nothing),
		cmocka_unit_test(test_text_table__many_rows_and_a_lost_cell),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
