// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "tools/check_report.h"

struct told {
	bool is_repair;
	char code[32], layer[32], path[32], text[64];
	unsigned n;
};

static void found(void *arg, const struct check_finding *f)
{
	struct told *t = arg;

	t->is_repair = f->is_repair;
	snprintf(t->code, sizeof(t->code), "%s", f->code);
	snprintf(t->layer, sizeof(t->layer), "%s", f->layer);
	snprintf(t->path, sizeof(t->path), "%s", f->path);
	snprintf(t->text, sizeof(t->text), "%s", f->text);
	t->n++;
}

static void test_check_report__finding_and_repair_are_told_and_counted_apart(void **state)
{
	struct told told = { .n = 0 };
	const struct check_hooks hooks = { .found = found, .arg = &told };
	struct check_result result = { .files = 3 };
	const struct check_report_place place = { &hooks, "/layer", &result };

	(void)state;
	check_report_say(&place, "code", "a/path", "%d of %s", 5, "them");
	assert_false(told.is_repair);
	assert_string_equal(told.code, "code");
	assert_string_equal(told.layer, "/layer");
	assert_string_equal(told.path, "a/path");
	assert_string_equal(told.text, "5 of them");
	assert_int_equal(result.found, 1);
	assert_int_equal(result.repaired, 0);
	check_report_repaired(&place, "code", "a/path", "%s", "put right");
	assert_true(told.is_repair);
	assert_string_equal(told.text, "put right");
	assert_int_equal(result.found, 1);
	assert_int_equal(result.repaired, 1);
	assert_int_equal(result.files, 3);
	assert_int_equal(told.n, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_check_report__finding_and_repair_are_told_and_counted_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
