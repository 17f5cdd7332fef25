// SPDX-License-Identifier: Apache-2.0
/* lock_table_check_invariants and lock_set_check_invariants: each rule, broken by hand. */
#include "union/lock_table.c"

#include "support/broken.h"
#include "union/lock_set.h"

static struct lock_set set;
static struct lock_object *file;

static int setup(void **state)
{
	struct lock_table *t;

	(void)state;
	if (lock_table_new(&t) < 0 || lock_set_init(&set, t) < 0)
		return -1;
	file = lock_set_need(&set, 7);
	return file ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	lock_set_release(&set);
	return 0;
}

static struct lock_request want(uint64_t owner, enum lock_type type, uint64_t start, uint64_t end)
{
	return (struct lock_request){ .inode = 7,
				      .node = 7,
				      .owner = owner,
				      .start = start,
				      .end = end,
				      .kind = LOCKS_RECORD,
				      .type = type };
}

/* Has it; the link to its record. */
static uint32_t have(const struct lock_request *q)
{
	assert_int_equal(lock_set_change(&set, file, q), 0);
	for (uint32_t link = file->first[q->kind]; link; link = set.next[link - 1])
		if (set.tab->records[link - 1].owner == q->owner &&
		    set.tab->records[link - 1].start == q->start)
			return link;
	fail();
	return 0;
}

static void test_lock_table_invariants__each_rule_can_be_broken(void **state)
{
	const struct lock_request q = want(1, LOCKS_SHARED, 0, 9);
	struct lock_table *t = set.tab;
	const uint32_t at = have(&q) - 1;

	(void)state;
	EXPECT_BROKEN(lock_table_check_invariants(t),
		      "lock_table: each record is held, dying or free", t->n, 2);
	EXPECT_BROKEN(lock_table_check_invariants(t),
		      "lock_table: each record is held, dying or free", t->n_free, ROOM);
	EXPECT_BROKEN(lock_table_check_invariants(t), "lock_table: a free record has no birth",
		      t->free[t->n_free - 1], at);
	EXPECT_BROKEN(lock_table_check_invariants(t), "lock_table: a free record has no birth",
		      t->free[t->n_free - 2], ROOM);
	lock_table_take_away(t, at);
	EXPECT_BROKEN(lock_table_check_invariants(t),
		      "lock_table: a dying record dies by the next change", t->records[at].death,
		      0);
	lock_table_commit(t);
	assert_null(lock_table_check_invariants(t));
	file->first[LOCKS_RECORD] = 0;
}

#define CHECK(q) lock_set_check_invariants(&set, file, q)

static void test_lock_set_invariants__each_rule_can_be_broken(void **state)
{
	const struct lock_request q = want(1, LOCKS_EXCLUSIVE, 10, 19),
				  later = want(2, LOCKS_EXCLUSIVE, 30, 39);
	struct lock_record *r = &set.tab->records[have(&q) - 1];
	struct lock_record *other = &set.tab->records[have(&later) - 1];

	(void)state;
	EXPECT_BROKEN(CHECK(NULL), "lock_set: an object has records of its kind that are held",
		      r->kind, LOCKS_FLOCK);
	EXPECT_BROKEN(CHECK(NULL), "lock_set: an object has records of its kind that are held",
		      r->birth, 0);
	EXPECT_BROKEN(CHECK(NULL), "lock_set: records stand in the order of their starts",
		      other->start, 5);
	EXPECT_BROKEN(CHECK(&q), "lock_set: nothing is in the way of a lock that was given",
		      other->start, 15);
}

static void test_lock_set_invariants__granted_lock_is_there(void **state)
{
	const struct lock_request q = want(1, LOCKS_SHARED, 10, 19),
				  none = want(1, LOCKS_NONE, 10, 19);
	struct lock_record *r = &set.tab->records[have(&q) - 1];

	(void)state;
	EXPECT_BROKEN(CHECK(&q), "lock_set: a lock that was given is there", r->end, 18);
	EXPECT_BROKEN(CHECK(&q), "lock_set: a lock that was given is there", r->type,
		      LOCKS_EXCLUSIVE);
	assert_string_equal(CHECK(&none), "lock_set: nothing is left of a lock that was given up");
	assert_int_equal(lock_set_change(&set, file, &none), 1);
	assert_null(CHECK(&none));
}

static void test_lock_set_invariants__damaged_table_gives_no_more_rests_than_have_room(void **state)
{
	const struct lock_request q = want(1, LOCKS_EXCLUSIVE, 50, 59);

	(void)state;
	for (uint64_t k = 0; k < 4; k++) {
		const struct lock_record r = { .node = 7,
					       .owner = 1,
					       .start = k,
					       .end = 100 + k,
					       .kind = LOCKS_RECORD,
					       .type = LOCKS_SHARED };

		assert_int_equal(lock_set_enter(&set, 7, lock_table_bring(set.tab, &r)), 0);
		lock_table_commit(set.tab);
	}
	assert_int_equal(lock_set_change(&set, file, &q), 1);
	assert_null(CHECK(&q));
	assert_int_equal(lock_table_count(set.tab), LOCK_TABLE_CHANGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_lock_table_invariants__each_rule_can_be_broken,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_lock_set_invariants__each_rule_can_be_broken,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_lock_set_invariants__granted_lock_is_there,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_lock_set_invariants__damaged_table_gives_no_more_rests_than_have_room,
			setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
