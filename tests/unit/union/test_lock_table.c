// SPDX-License-Identifier: Apache-2.0
#include "veneer/union/lock_table.h"

#include "veneer/base/cleanup.h"
#include "veneer/union/locks.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct lock_table *tab;

static int setup(void **state)
{
	(void)state;
	return lock_table_new(&tab);
}

static int teardown(void **state)
{
	(void)state;
	lock_table_free(tab);
	tab = NULL;
	return 0;
}

static const struct lock_record *sample(uint64_t owner)
{
	static struct lock_record r;

	r = (struct lock_record){ .node = 7,
				  .owner = owner,
				  .handle = 9,
				  .start = owner,
				  .end = owner + 5,
				  .pid = 11,
				  .kind = LOCKS_RECORD,
				  .type = LOCKS_SHARED };
	return &r;
}

/* The table as a server that starts now would see it. */
static struct lock_table *recovery(void)
{
	struct lock_table *t;

	assert_int_equal(lock_table_attach(fcntl(lock_table_fd(tab), F_DUPFD_CLOEXEC, 3), &t), 0);
	return t;
}

struct owners {
	uint64_t sum;
	uint32_t n;
};

static void add(uint32_t index, const struct lock_record *r, void *arg)
{
	struct owners *o = arg;

	(void)index;
	o->sum += r->owner;
	o->n++;
	assert_int_equal(r->node, 7);
	assert_int_equal(r->handle, 9);
	assert_int_equal(r->end, r->owner + 5);
	assert_int_equal(r->pid, 11);
	assert_int_equal(r->type, LOCKS_SHARED);
}

static void expect_recovery(uint64_t sum, uint32_t n)
{
	struct lock_table *t = recovery();
	struct owners o = { 0 };

	lock_table_each(t, add, &o);
	assert_int_equal(o.sum, sum);
	assert_int_equal(o.n, n);
	assert_int_equal(lock_table_count(t), n);
	lock_table_free(t);
}

static void test_lock_table__what_happened_is_inherited(void **state)
{
	(void)state;
	lock_table_bring(tab, sample(1));
	lock_table_bring(tab, sample(2));
	lock_table_commit(tab);
	expect_recovery(3, 2);
}

static void test_lock_table__a_change_that_was_begun_has_not_happened(void **state)
{
	uint32_t first;

	(void)state;
	first = lock_table_bring(tab, sample(1));
	lock_table_commit(tab);
	lock_table_take_away(tab, first);
	lock_table_bring(tab, sample(2));
	lock_table_bring(tab, sample(3));
	expect_recovery(1, 1);
}

/* The recovering server's own change has the number of the one that did not happen. */
static void test_lock_table__what_was_begun_does_not_come_back_later(void **state)
{
	uint32_t first;

	(void)state;
	first = lock_table_bring(tab, sample(1));
	lock_table_commit(tab);
	lock_table_take_away(tab, first);
	lock_table_bring(tab, sample(2));

	struct lock_table *t = recovery();

	lock_table_bring(t, sample(4));
	lock_table_commit(t);
	lock_table_free(t);
	expect_recovery(5, 2);
}

static void test_lock_table__what_was_taken_away_gives_its_room(void **state)
{
	uint32_t last = 0;

	(void)state;
	for (uint32_t k = 0; k < LOCK_TABLE_MAX; k++) {
		assert_true(lock_table_has_room(tab, 0, 1));
		last = lock_table_bring(tab, sample(k));
		lock_table_commit(tab);
	}
	assert_false(lock_table_has_room(tab, 0, 1));
	assert_false(lock_table_has_room(tab, 1, 2));
	assert_true(lock_table_has_room(tab, 1, 1));
	lock_table_take_away(tab, last);
	lock_table_bring(tab, sample(5));
	lock_table_commit(tab);
	assert_int_equal(lock_table_count(tab), LOCK_TABLE_MAX);
	expect_recovery((uint64_t)LOCK_TABLE_MAX * (LOCK_TABLE_MAX - 1) / 2 - (LOCK_TABLE_MAX - 1) +
				5,
			LOCK_TABLE_MAX);
}

static void test_lock_table__another_file_is_refused(void **state)
{
	struct lock_table *t;

	(void)state;
	assert_int_equal(lock_table_attach(open("/dev/null", O_RDWR | O_CLOEXEC), &t), -EPROTO);
	assert_int_equal(lock_table_attach(-1, &t) < 0, 1);
	assert_int_equal(pwrite(lock_table_fd(tab), "x", 1, 8), 1);
	assert_int_equal(lock_table_attach(fcntl(lock_table_fd(tab), F_DUPFD_CLOEXEC, 3), &t),
			 -EPROTO);
}

static void test_lock_table__a_record_that_cannot_be_is_left_out(void **state)
{
	struct lock_record bad = *sample(3);

	(void)state;
	lock_table_bring(tab, sample(1));
	bad.end = bad.start - 1;
	lock_table_bring(tab, &bad);
	bad = *sample(4);
	bad.type = 9;
	lock_table_bring(tab, &bad);
	lock_table_commit(tab);
	expect_recovery(1, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_lock_table__what_happened_is_inherited, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			test_lock_table__a_change_that_was_begun_has_not_happened, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_lock_table__what_was_begun_does_not_come_back_later, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lock_table__what_was_taken_away_gives_its_room,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_lock_table__another_file_is_refused, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			test_lock_table__a_record_that_cannot_be_is_left_out, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
