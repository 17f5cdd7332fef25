// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/htab.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>

#include <cmocka.h>

struct entry {
	int key;
	bool is_in;
	struct hlink link;
};

static struct entry *find(const struct htab *t, uint64_t hash, int key)
{
	for (struct hlink *e = htab_first(t, hash); e; e = htab_next(e)) {
		struct entry *found = container_of(e, struct entry, link);

		if (found->key == key)
			return found;
	}
	return NULL;
}

static void test_htab__empty_table_answers(void **state)
{
	struct htab t = { 0 };
	struct entry e = { 0 };

	(void)state;
	assert_null(htab_first(&t, 0));
	htab_remove(&t, &e.link);
	htab_release(&t);
	assert_int_equal(t.count, 0);
}

/* Against an array of flags; hashes collide often, and their low bits always. */
static void test_htab__agrees_with_a_naive_model(void **state)
{
	enum { ENTRIES = 3000, STEPS = 100000 };
	struct entry *entries = calloc(ENTRIES, sizeof(*entries));
	struct htab t = { 0 };
	size_t count = 0;
	uint32_t seed = 1;

	(void)state;
	assert_non_null(entries);
	for (int step = 0; step < STEPS; step++) {
		seed = seed * 1664525 + 1013904223;

		int i = (int)((seed >> 8) % ENTRIES);
		uint64_t hash = (uint64_t)(i / 3) << 40;
		struct entry *e = &entries[i];

		e->key = i;
		if (e->is_in)
			assert_ptr_equal(find(&t, hash, i), e);
		else
			assert_null(find(&t, hash, i));
		if (seed & 128) {
			if (e->is_in) {
				htab_remove(&t, &e->link);
				count--;
			}
			e->is_in = false;
		} else {
			if (!e->is_in) {
				assert_int_equal(htab_insert(&t, &e->link, hash), 0);
				count++;
			}
			e->is_in = true;
		}
		assert_int_equal(t.count, count);
	}
	assert_true(t.nbuckets >= t.count);
	htab_release(&t);
	free(entries);
}

static void test_htab__same_hash_lists_all_of_that_hash_only(void **state)
{
	struct entry entries[200] = { 0 };
	struct htab t = { 0 };
	int n = 0;

	(void)state;
	for (int i = 0; i < 200; i++)
		assert_int_equal(htab_insert(&t, &entries[i].link, (uint64_t)i % 2), 0);
	for (struct hlink *e = htab_first(&t, 1); e; e = htab_next(e)) {
		assert_int_equal(e->hash, 1);
		n++;
	}
	assert_int_equal(n, 100);
	htab_release(&t);
}

static void free_entry(struct hlink *e, void *arg)
{
	++*(int *)arg;
	free(container_of(e, struct entry, link));
}

static void test_htab__drain_hands_over_each_entry_once(void **state)
{
	struct htab t = { 0 };
	int n = 0;

	(void)state;
	for (uint64_t i = 0; i < 1000; i++) {
		struct entry *e = calloc(1, sizeof(*e));

		assert_non_null(e);
		assert_int_equal(htab_insert(&t, &e->link, i * i), 0);
	}
	htab_drain(&t, free_entry, &n);
	assert_int_equal(n, 1000);
	assert_int_equal(t.count, 0);
	assert_null(htab_first(&t, 4));

	struct entry again = { 0 };

	assert_int_equal(htab_insert(&t, &again.link, 4), 0);
	assert_ptr_equal(htab_first(&t, 4), &again.link);
	htab_release(&t);
}

static void test_htab__room_is_made_once(void **state)
{
	struct entry e[40] = { 0 };
	struct htab t = { 0 };
	size_t nbuckets;

	(void)state;
	assert_int_equal(htab_insert(&t, &e[0].link, 7), 0);
	htab_reserve(&t, 1000);
	nbuckets = t.nbuckets;
	assert_true(nbuckets >= 1000);
	assert_ptr_equal(htab_first(&t, 7), &e[0].link);
	for (size_t k = 1; k < 40; k++)
		assert_int_equal(htab_insert(&t, &e[k].link, k * 1000), 0);
	htab_reserve(&t, 3);
	assert_int_equal(t.nbuckets, nbuckets);
	assert_int_equal(t.count, 40);
	htab_release(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_htab__empty_table_answers),
		cmocka_unit_test(test_htab__agrees_with_a_naive_model),
		cmocka_unit_test(test_htab__same_hash_lists_all_of_that_hash_only),
		cmocka_unit_test(test_htab__drain_hands_over_each_entry_once),
		cmocka_unit_test(test_htab__room_is_made_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
