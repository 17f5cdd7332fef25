// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/broken.h"
#include "veneer/base/hash.h"
#include "veneer/layer/branch_chain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add(struct branch_chain *c, uint64_t id, uint64_t parent, const char *name)
{
	struct branch_chain_entry e = { .id = id, .parent = parent, .time_ns = (int64_t)id * 1000 };

	snprintf(e.name, sizeof(e.name), "%s", name);
	return branch_chain_add(c, &e);
}

/* 1 - 2 - 4, and 3 beside 2; the live part stands on 4. */
static struct branch_chain some(void)
{
	struct branch_chain c = { 0 };

	assert_int_equal(add(&c, 1, 0, "first"), 0);
	assert_int_equal(add(&c, 2, 1, "second"), 0);
	assert_int_equal(add(&c, 3, 1, "beside"), 0);
	assert_int_equal(add(&c, UINT64_MAX, 2, "last.one-more_1"), 0);
	c.head = UINT64_MAX;
	return c;
}

static void expect_same(const struct branch_chain *a, const struct branch_chain *b)
{
	assert_int_equal(a->head, b->head);
	assert_int_equal(a->n, b->n);
	for (size_t k = 0; k < a->n; k++) {
		assert_int_equal(a->entries[k].id, b->entries[k].id);
		assert_int_equal(a->entries[k].parent, b->entries[k].parent);
		assert_int_equal(a->entries[k].time_ns, b->entries[k].time_ns);
		assert_string_equal(a->entries[k].name, b->entries[k].name);
	}
}

static void test_branch_chain__text_gives_back_what_it_was_made_of(void **state)
{
	struct branch_chain c = some(), again, none = { 0 };
	size_t len;
	char *text;

	(void)state;
	assert_int_equal(branch_chain_format(&c, &text, &len), 0);
	assert_int_equal(strlen(text), len);
	assert_int_equal(branch_chain_parse(text, len, &again), 0);
	expect_same(&c, &again);
	branch_chain_release(&again);
	free(text);
	assert_int_equal(branch_chain_format(&none, &text, &len), 0);
	assert_int_equal(branch_chain_parse(text, len, &again), 0);
	expect_same(&none, &again);
	free(text);
	branch_chain_release(&c);
}

static void test_branch_chain__one_byte_less_or_another_is_damage(void **state)
{
	struct branch_chain c = some(), again;
	size_t len;
	char *text;

	(void)state;
	assert_int_equal(branch_chain_format(&c, &text, &len), 0);
	for (size_t k = 0; k < len; k++) {
		text[k] ^= 1;
		assert_int_equal(branch_chain_parse(text, len, &again), -EUCLEAN);
		text[k] ^= 1;
		assert_int_equal(branch_chain_parse(text, k, &again), -EUCLEAN);
	}
	free(text);
	branch_chain_release(&c);
}

static int parse_line(const char *line)
{
	struct branch_chain c;
	char text[1024];
	int len = snprintf(text, sizeof(text), "%s\n", line);

	len += snprintf(text + len, sizeof(text) - (size_t)len, "%016llx\n",
			(unsigned long long)hash_checksum(text, (size_t)len));
	len = branch_chain_parse(text, (size_t)len, &c);
	if (len == 0)
		branch_chain_release(&c);
	return len;
}

#define ENTRY(id, name, parent) \
	"{\"id\":\"" id "\",\"name\":\"" name "\",\"parent\":" parent ",\"time\":1}"
#define ONE		     "0000000000000001"
#define TWO		     "0000000000000002"
#define CHAIN(head, entries) "{\"veneer_branches\":1,\"head\":" head ",\"snapshots\":[" entries "]}"

static void test_branch_chain__what_a_forger_may_write_is_refused(void **state)
{
	static const char *const bad[] = {
		"",
		"[]",
		"{}",
		CHAIN("\"" ONE "\"", ""),
		CHAIN("null", ENTRY(ONE, "../x", "null")),
		CHAIN("null", ENTRY(ONE, ".hidden", "null")),
		CHAIN("null", ENTRY(ONE, "a/b", "null")),
		CHAIN("null", ENTRY(ONE, "a\\u0000b", "null")),
		CHAIN("null", ENTRY(ONE, "", "null")),
		CHAIN("null", ENTRY("0000000000000000", "a", "null")),
		CHAIN("null", ENTRY("../../../../../x", "a", "null")),
		CHAIN("null", ENTRY("1", "a", "null")),
		CHAIN("null", ENTRY("000000000000000A", "a", "null")),
		CHAIN("null", ENTRY(ONE, "a", "\"" ONE "\"")),
		CHAIN("null", ENTRY(ONE, "a", "\"" TWO "\"") "," ENTRY(TWO, "b", "null")),
		CHAIN("null", ENTRY(ONE, "a", "null") "," ENTRY(ONE, "b", "null")),
		CHAIN("null", ENTRY(ONE, "a", "null") "," ENTRY(TWO, "a", "null")),
		CHAIN("null", "7"),
		"{\"veneer_branches\":0,\"head\":null,\"snapshots\":[]}",
		"{\"veneer_branches\":1,\"head\":null,\"snapshots\":[],\"more\":1}",
		"{\"veneer_branches\":1,\"head\":null,\"head\":null,\"snapshots\":[]}",
	};

	(void)state;
	assert_int_equal(parse_line(CHAIN("\"" ONE "\"", ENTRY(ONE, "a", "null"))), 0);
	assert_int_equal(parse_line("{\"veneer_branches\":2}"), -EPROTO);
	for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++)
		assert_int_equal(parse_line(bad[k]), -EUCLEAN);
}

static void test_branch_chain__names_are_plain(void **state)
{
	char longest[BRANCH_CHAIN_NAME_MAX + 2];

	(void)state;
	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	assert_false(branch_chain_is_name(longest));
	longest[sizeof(longest) - 2] = '\0';
	assert_true(branch_chain_is_name(longest));
	assert_true(branch_chain_is_name("2026-11-27_before.upgrade"));
	assert_false(branch_chain_is_name("-rf"));
	assert_false(branch_chain_is_name("\xc3\xa4"));
	assert_false(branch_chain_is_name("a b"));
}

static void test_branch_chain__what_stands_below_is_found(void **state)
{
	struct branch_chain c = some();
	uint64_t ids[4];

	(void)state;
	assert_int_equal(branch_chain_below(&c, c.head, ids), 3);
	assert_int_equal(ids[0], UINT64_MAX);
	assert_int_equal(ids[1], 2);
	assert_int_equal(ids[2], 1);
	assert_int_equal(branch_chain_below(&c, 0, NULL), 0);
	assert_int_equal(branch_chain_below(&c, 3, ids), 2);
	assert_int_equal(branch_chain_by_name(&c, "beside")->id, 3);
	assert_null(branch_chain_by_name(&c, "besid"));
	branch_chain_release(&c);
}

static void test_branch_chain__names_and_numbers_are_given_once(void **state)
{
	struct branch_chain c = some();

	(void)state;
	assert_int_equal(add(&c, 3, 0, "new"), -EEXIST);
	assert_int_equal(add(&c, 9, 0, "first"), -EEXIST);
	assert_int_equal(add(&c, 9, 8, "new"), -EINVAL);
	assert_int_equal(add(&c, 0, 0, "new"), -EINVAL);
	assert_int_equal(add(&c, 9, 0, ""), -EINVAL);
	for (uint64_t id = 100; c.n < BRANCH_CHAIN_MAX; id++) {
		char name[32];

		snprintf(name, sizeof(name), "n%llu", (unsigned long long)id);
		assert_int_equal(add(&c, id, 0, name), 0);
	}
	assert_int_equal(add(&c, 9, 0, "new"), -E2BIG);
	branch_chain_release(&c);
}

static void test_branch_chain__what_something_stands_on_stays(void **state)
{
	struct branch_chain c = some();

	(void)state;
	assert_int_equal(branch_chain_remove(&c, 7), -ENOENT);
	assert_int_equal(branch_chain_remove(&c, 1), -EBUSY);
	assert_int_equal(branch_chain_remove(&c, UINT64_MAX), -EBUSY);
	assert_int_equal(branch_chain_remove(&c, 3), 0);
	assert_int_equal(c.n, 3);
	assert_null(branch_chain_by_id(&c, 3));
	assert_string_equal(branch_chain_by_id(&c, UINT64_MAX)->name, "last.one-more_1");
	c.head = 1;
	assert_int_equal(branch_chain_remove(&c, 2), -EBUSY);
	assert_int_equal(branch_chain_remove(&c, UINT64_MAX), 0);
	assert_int_equal(branch_chain_remove(&c, 2), 0);
	c.head = 0;
	assert_int_equal(branch_chain_remove(&c, 1), 0);
	assert_int_equal(c.n, 0);
	branch_chain_release(&c);
}

static void test_branch_chain__one_takes_in_those_below(void **state)
{
	struct branch_chain c = { .head = 4 };
	const uint64_t ids[] = { 4, 3, 2 }, wrong[] = { 1 };

	(void)state;
	for (uint64_t id = 1; id <= 4; id++) {
		struct branch_chain_entry e = { .id = id, .parent = id - 1 };

		snprintf(e.name, sizeof(e.name), "s%u", (unsigned)id);
		assert_int_equal(branch_chain_add(&c, &e), 0);
	}
	/* Not right below it. */
	assert_int_equal(branch_chain_absorb(&c, 4, wrong, 1), 0);
	assert_int_equal(c.n, 4);
	assert_int_equal(branch_chain_absorb(&c, 4, ids, 3), 0);
	assert_int_equal(c.n, 2);
	assert_int_equal(branch_chain_by_id(&c, 4)->parent, 1);
	assert_int_equal(branch_chain_absorb(&c, 4, ids, 3), 0);
	/* Another one stands on it. */
	assert_int_equal(
		branch_chain_add(
			&c, &(struct branch_chain_entry){ .id = 5, .parent = 1, .name = "s5" }),
		0);
	assert_int_equal(branch_chain_absorb(&c, 4, wrong, 1), -EBUSY);
	branch_chain_release(&c);
}

static void test_branch_chain__each_invariant_can_be_broken(void **state)
{
	struct branch_chain c = some();

	(void)state;
	EXPECT_BROKEN(branch_chain_check_invariants(&c),
		      "branch_chain: there are no more than BRANCH_CHAIN_MAX", c.n,
		      BRANCH_CHAIN_MAX + 1);
	EXPECT_BROKEN(branch_chain_check_invariants(&c),
		      "branch_chain: each one has a number and a name", c.entries[1].id, 0);
	EXPECT_BROKEN(branch_chain_check_invariants(&c),
		      "branch_chain: each one has a number and a name", c.entries[3].name[0], '.');
	EXPECT_BROKEN(branch_chain_check_invariants(&c),
		      "branch_chain: no two have the same number or name", c.entries[2].id, 1);
	EXPECT_BROKEN(branch_chain_check_invariants(&c),
		      "branch_chain: a parent comes before its children", c.entries[1].parent, 3);
	strcpy(c.entries[2].name, "first");
	assert_string_equal(branch_chain_check_invariants(&c),
			    "branch_chain: no two have the same number or name");
	branch_chain_release(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_branch_chain__text_gives_back_what_it_was_made_of),
		cmocka_unit_test(test_branch_chain__one_byte_less_or_another_is_damage),
		cmocka_unit_test(test_branch_chain__what_a_forger_may_write_is_refused),
		cmocka_unit_test(test_branch_chain__names_are_plain),
		cmocka_unit_test(test_branch_chain__what_stands_below_is_found),
		cmocka_unit_test(test_branch_chain__names_and_numbers_are_given_once),
		cmocka_unit_test(test_branch_chain__one_takes_in_those_below),
		cmocka_unit_test(test_branch_chain__what_something_stands_on_stays),
		cmocka_unit_test(test_branch_chain__each_invariant_can_be_broken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
