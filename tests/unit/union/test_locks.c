// SPDX-License-Identifier: Apache-2.0
#include "veneer/union/locks.h"

#include "veneer/base/cleanup.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>

#include <cmocka.h>

#define FILE_A	100u
#define FILE_B	200u
#define THREADS 8
#define ROUNDS	400
#define UNTOLD	1

static struct locks *locks;

static int setup(void **state)
{
	(void)state;
	return locks_new(&locks);
}

static int teardown(void **state)
{
	(void)state;
	/* A waiter that is left would be told of it where its test had it. */
	assert_int_equal(locks_waiting(locks), 0);
	locks_free(locks);
	locks = NULL;
	return 0;
}

/* Owner and handle are one, as of an OFD lock. */
static struct lock_request range(uint64_t owner, enum lock_type type, uint64_t start, uint64_t end)
{
	return (struct lock_request){ .kind = LOCKS_RECORD,
				      .type = type,
				      .inode = FILE_A,
				      .node = 5,
				      .owner = owner,
				      .handle = owner,
				      .start = start,
				      .end = end,
				      .pid = (uint32_t)owner + 1000 };
}

static struct lock_request whole(uint64_t owner, enum lock_type type)
{
	struct lock_request q = range(owner, type, 0, LOCKS_END);

	q.kind = LOCKS_FLOCK;
	return q;
}

static int set(struct lock_request q)
{
	bool is_closing;

	return locks_set(locks, &q, &is_closing);
}

/* A waiter that is told here. */
struct asker {
	uint64_t number;
	int result;
	unsigned times;
};

static void told(void *arg, int result)
{
	struct asker *a = arg;

	a->result = result;
	a->times++;
}

static int wait_for(struct asker *a, struct lock_request q)
{
	*a = (struct asker){ .result = UNTOLD };
	assert_int_equal(locks_prepare(locks, told, a, &a->number), 0);
	return locks_wait(locks, a->number, &q);
}

static void expect_told(const struct asker *a, int result)
{
	assert_int_equal(a->times, 1);
	assert_int_equal(a->result, result);
}

static void expect_waiting(const struct asker *a)
{
	assert_int_equal(a->times, 0);
}

static void test_locks__the_exclusive_one_is_alone(void **state)
{
	(void)state;
	assert_int_equal(set(range(1, LOCKS_SHARED, 0, 9)), 0);
	assert_int_equal(set(range(2, LOCKS_SHARED, 5, 20)), 0);
	assert_int_equal(set(range(3, LOCKS_EXCLUSIVE, 9, 9)), -EAGAIN);
	assert_int_equal(set(range(3, LOCKS_EXCLUSIVE, 21, LOCKS_END)), 0);
	assert_int_equal(set(range(1, LOCKS_SHARED, 100, 100)), -EAGAIN);
	assert_int_equal(set(range(1, LOCKS_EXCLUSIVE, 0, 4)), 0);
	assert_int_equal(set(range(1, LOCKS_EXCLUSIVE, 0, 5)), -EAGAIN);
}

static void test_locks__unlocking_the_middle_leaves_two(void **state)
{
	(void)state;
	assert_int_equal(set(range(1, LOCKS_EXCLUSIVE, 0, 99)), 0);
	assert_int_equal(set(range(1, LOCKS_NONE, 40, 59)), 0);
	assert_int_equal(locks_count(locks), 2);
	assert_int_equal(set(range(2, LOCKS_EXCLUSIVE, 40, 59)), 0);
	assert_int_equal(set(range(2, LOCKS_SHARED, 39, 39)), -EAGAIN);
	assert_int_equal(set(range(2, LOCKS_SHARED, 60, 60)), -EAGAIN);
	assert_int_equal(set(range(2, LOCKS_NONE, 0, LOCKS_END)), 0);
	assert_int_equal(set(range(1, LOCKS_EXCLUSIVE, 40, 59)), 0);
	assert_int_equal(locks_count(locks), 1);
}

static void test_locks__a_failed_change_of_a_record_changes_nothing(void **state)
{
	struct lock_record r;
	struct lock_request q = range(3, LOCKS_SHARED, 0, 9);

	(void)state;
	assert_int_equal(set(range(1, LOCKS_SHARED, 0, 9)), 0);
	assert_int_equal(set(range(2, LOCKS_SHARED, 0, 9)), 0);
	assert_int_equal(set(range(1, LOCKS_EXCLUSIVE, 0, 9)), -EAGAIN);
	assert_false(locks_test(locks, &q, &r));
	q.type = LOCKS_EXCLUSIVE;
	assert_true(locks_test(locks, &q, &r));
	assert_int_equal(r.type, LOCKS_SHARED);
	assert_int_equal(r.end, 9);
	assert_int_equal(r.pid, r.owner + 1000);
}

static void test_locks__files_and_kinds_know_nothing_of_each_other(void **state)
{
	struct lock_request elsewhere = range(2, LOCKS_EXCLUSIVE, 0, 9);

	(void)state;
	elsewhere.inode = FILE_B;
	assert_int_equal(set(range(1, LOCKS_EXCLUSIVE, 0, 9)), 0);
	assert_int_equal(set(elsewhere), 0);
	assert_int_equal(set(whole(3, LOCKS_EXCLUSIVE)), 0);
	assert_int_equal(set(whole(4, LOCKS_SHARED)), -EAGAIN);
}

static void test_locks__flock_that_fails_has_lost_what_it_had(void **state)
{
	(void)state;
	assert_int_equal(set(whole(1, LOCKS_SHARED)), 0);
	assert_int_equal(set(whole(2, LOCKS_SHARED)), 0);
	assert_int_equal(set(whole(1, LOCKS_EXCLUSIVE)), -EAGAIN);
	assert_int_equal(locks_count(locks), 1);
	assert_int_equal(set(whole(2, LOCKS_EXCLUSIVE)), 0);
	assert_int_equal(locks_count(locks), 1);
}

static void test_locks__who_waits_is_told_when_it_can_have_it(void **state)
{
	struct asker a, b, c;

	(void)state;
	assert_int_equal(set(range(1, LOCKS_EXCLUSIVE, 0, 99)), 0);
	assert_int_equal(wait_for(&a, range(2, LOCKS_SHARED, 0, 9)), 1);
	assert_int_equal(wait_for(&b, range(3, LOCKS_SHARED, 5, 60)), 1);
	assert_int_equal(wait_for(&c, range(4, LOCKS_EXCLUSIVE, 90, 90)), 1);
	assert_int_equal(set(range(1, LOCKS_NONE, 0, 49)), 0);
	expect_told(&a, 0);
	expect_waiting(&b);
	assert_int_equal(set(range(1, LOCKS_SHARED, 50, 99)), 0);
	expect_told(&b, 0);
	expect_waiting(&c);
	locks_release_owner(locks, FILE_A, 1, 1);
	expect_told(&c, 0);
	assert_int_equal(set(range(1, LOCKS_SHARED, 90, 90)), -EAGAIN);
	assert_int_equal(locks_waiting(locks), 0);
}

static void test_locks__they_are_served_in_the_order_in_which_they_came(void **state)
{
	struct asker a, b, c;

	(void)state;
	assert_int_equal(set(whole(1, LOCKS_EXCLUSIVE)), 0);
	assert_int_equal(wait_for(&a, whole(2, LOCKS_EXCLUSIVE)), 1);
	assert_int_equal(wait_for(&b, whole(3, LOCKS_EXCLUSIVE)), 1);
	assert_int_equal(wait_for(&c, whole(4, LOCKS_EXCLUSIVE)), 1);
	locks_release_handle(locks, FILE_A, 1);
	expect_told(&a, 0);
	expect_waiting(&b);
	assert_int_equal(set(whole(2, LOCKS_NONE)), 0);
	expect_told(&b, 0);
	expect_waiting(&c);
	locks_release_handle(locks, FILE_A, 3);
	expect_told(&c, 0);
}

static void test_locks__who_is_given_up_waits_no_longer(void **state)
{
	struct asker a, b;
	struct lock_request q = range(3, LOCKS_EXCLUSIVE, 0, 9);

	(void)state;
	assert_int_equal(set(range(1, LOCKS_EXCLUSIVE, 0, 9)), 0);
	assert_int_equal(wait_for(&a, range(2, LOCKS_EXCLUSIVE, 0, 9)), 1);
	locks_cancel(locks, a.number);
	expect_told(&a, -EINTR);
	locks_cancel(locks, a.number);
	expect_told(&a, -EINTR);
	b = (struct asker){ .result = UNTOLD };
	assert_int_equal(locks_prepare(locks, told, &b, &b.number), 0);
	locks_cancel(locks, b.number);
	assert_int_equal(locks_wait(locks, b.number, &q), -EINTR);
	expect_waiting(&b);
	assert_int_equal(set(range(1, LOCKS_NONE, 0, 9)), 0);
	assert_int_equal(set(range(4, LOCKS_EXCLUSIVE, 0, 9)), 0);
	assert_int_equal(locks_waiting(locks), 0);
}

static void test_locks__a_circle_of_waiting_owners_is_refused(void **state)
{
	struct asker a, b, c;
	struct lock_request q = range(3, LOCKS_EXCLUSIVE, 1, 1);

	(void)state;
	for (uint64_t owner = 1; owner <= 3; owner++)
		assert_int_equal(set(range(owner, LOCKS_EXCLUSIVE, owner, owner)), 0);
	q.inode = FILE_B;
	q.start = q.end = 50;
	assert_int_equal(set(q), 0);
	assert_int_equal(wait_for(&a, range(1, LOCKS_EXCLUSIVE, 2, 2)), 1);
	q.owner = 2;
	assert_int_equal(wait_for(&b, q), 1);
	assert_int_equal(wait_for(&c, range(3, LOCKS_SHARED, 1, 1)), -EDEADLK);
	expect_waiting(&c);
	/* No circle: 4 has nothing. */
	assert_int_equal(wait_for(&c, range(4, LOCKS_SHARED, 1, 1)), 1);
	locks_cancel(locks, a.number);
	assert_int_equal(set(range(1, LOCKS_NONE, 0, 9)), 0);
	expect_told(&c, 0);
	expect_waiting(&b);
	locks_cancel(locks, b.number);
}

static void test_locks__waiting_for_flock_is_no_circle(void **state)
{
	struct asker a, b;
	struct lock_request q = whole(1, LOCKS_EXCLUSIVE);

	(void)state;
	q.inode = FILE_B;
	assert_int_equal(set(whole(2, LOCKS_EXCLUSIVE)), 0);
	assert_int_equal(set(q), 0);
	q.owner = q.handle = 2;
	assert_int_equal(wait_for(&a, whole(1, LOCKS_EXCLUSIVE)), 1);
	assert_int_equal(wait_for(&b, q), 1);
	locks_cancel(locks, b.number);
	expect_told(&b, -EINTR);
	expect_waiting(&a);
	locks_cancel(locks, a.number);
}

/* The owner is a process with two handles, the locks of another open file have only one. */
static void test_locks__what_goes_with_a_descriptor_and_what_with_the_last(void **state)
{
	struct lock_request by_second = range(1, LOCKS_EXCLUSIVE, 10, 19);

	(void)state;
	by_second.handle = 51;
	assert_int_equal(set(range(1, LOCKS_EXCLUSIVE, 0, 4)), 0);
	assert_int_equal(set(by_second), 0);
	assert_int_equal(set(range(2, LOCKS_EXCLUSIVE, 50, 59)), 0);
	assert_int_equal(set(whole(2, LOCKS_EXCLUSIVE)), 0);
	/* Process 1 closes the one descriptor: what it has by the other goes, too. */
	locks_release_owner(locks, FILE_A, 1, 1);
	assert_int_equal(locks_count(locks), 2);
	/* The process closes a copy of 2's. */
	locks_release_owner(locks, FILE_A, 1, 2);
	assert_int_equal(locks_count(locks), 2);
	locks_release_handle(locks, FILE_A, 2);
	assert_int_equal(locks_count(locks), 0);
}

static void test_locks__an_end_that_may_be_near_is_told(void **state)
{
	struct lock_request q = whole(2, LOCKS_EXCLUSIVE);
	bool is_closing;

	(void)state;
	assert_int_equal(set(whole(1, LOCKS_EXCLUSIVE)), 0);
	assert_int_equal(locks_set(locks, &q, &is_closing), -EAGAIN);
	assert_false(is_closing);
	locks_release_owner(locks, FILE_A, 77, 1);
	assert_int_equal(locks_set(locks, &q, &is_closing), -EAGAIN);
	assert_true(is_closing);
	locks_release_handle(locks, FILE_A, 1);
	assert_int_equal(locks_set(locks, &q, &is_closing), 0);
}

static void test_locks__there_are_not_more_than_so_many(void **state)
{
	struct asker a;

	(void)state;
	for (uint64_t k = 0; k < LOCK_TABLE_MAX; k++)
		assert_int_equal(set(range(1, LOCKS_SHARED, 3 * (LOCK_TABLE_MAX - k),
					   3 * (LOCK_TABLE_MAX - k) + 1)),
				 0);
	assert_int_equal(set(range(1, LOCKS_SHARED, 0, 0)), -ENOLCK);
	assert_int_equal(wait_for(&a, whole(2, LOCKS_SHARED)), -ENOLCK);
	assert_int_equal(set(range(1, LOCKS_EXCLUSIVE, 3, 3)), -ENOLCK);
	/* A change that takes no more room succeeds. */
	assert_int_equal(set(range(1, LOCKS_EXCLUSIVE, 3, 4)), 0);
	assert_int_equal(set(range(1, LOCKS_SHARED, 0, LOCKS_END)), 0);
	assert_int_equal(locks_count(locks), 1);
	assert_int_equal(set(range(1, LOCKS_SHARED, 0, 0)), 0);
}

static void test_locks__no_more_wait_than_so_many(void **state)
{
	static struct asker askers[LOCKS_WAITERS_MAX];
	uint64_t number;

	(void)state;
	assert_int_equal(set(whole(1, LOCKS_EXCLUSIVE)), 0);
	for (unsigned k = 0; k < LOCKS_WAITERS_MAX; k++)
		assert_int_equal(wait_for(&askers[k], whole(k + 2, LOCKS_SHARED)), 1);
	assert_int_equal(locks_prepare(locks, told, NULL, &number), -ENOLCK);
	locks_release_handle(locks, FILE_A, 1);
	for (unsigned k = 0; k < LOCKS_WAITERS_MAX; k++)
		expect_told(&askers[k], 0);
	assert_int_equal(locks_waiting(locks), 0);
}

static void test_locks__a_range_that_is_none_is_refused(void **state)
{
	struct asker a;

	(void)state;
	assert_int_equal(set(range(1, LOCKS_SHARED, 5, 4)), -EINVAL);
	assert_int_equal(set(range(1, LOCKS_SHARED, 5, (uint64_t)LOCKS_END + 1)), -EINVAL);
	assert_int_equal(wait_for(&a, range(1, LOCKS_SHARED, 5, 4)), -EINVAL);
	assert_int_equal(locks_waiting(locks), 0);
}

static void test_locks__at_the_end_all_are_told(void **state)
{
	struct asker a, b;

	(void)state;
	assert_int_equal(set(whole(1, LOCKS_EXCLUSIVE)), 0);
	assert_int_equal(wait_for(&a, whole(2, LOCKS_SHARED)), 1);
	locks_end(locks, -ENODEV);
	expect_told(&a, -ENODEV);
	assert_int_equal(wait_for(&b, whole(3, LOCKS_SHARED)), -ENODEV);
}

static void test_locks__a_file_that_is_gone_has_none(void **state)
{
	struct asker a;

	(void)state;
	assert_int_equal(set(whole(1, LOCKS_EXCLUSIVE)), 0);
	assert_int_equal(set(range(1, LOCKS_EXCLUSIVE, 0, 5)), 0);
	assert_int_equal(wait_for(&a, whole(2, LOCKS_SHARED)), 1);
	locks_forget(locks, FILE_A);
	expect_told(&a, -ESTALE);
	assert_int_equal(locks_count(locks), 0);
}

static uint64_t moved(uint64_t node, void *arg)
{
	return node == 5 ? *(uint64_t *)arg : 0;
}

static void test_locks__held_ones_outlive_the_server(void **state)
{
	struct lock_request lost = range(9, LOCKS_EXCLUSIVE, 0, 9), q;
	uint64_t now = 333;
	struct locks *recovery;
	struct lock_record r;
	int fd;

	(void)state;
	lost.inode = FILE_B;
	lost.node = 6;
	assert_int_equal(set(range(1, LOCKS_EXCLUSIVE, 10, 19)), 0);
	assert_int_equal(set(range(1, LOCKS_NONE, 14, 15)), 0);
	assert_int_equal(set(whole(2, LOCKS_SHARED)), 0);
	assert_int_equal(set(lost), 0);
	fd = fcntl(locks_fd(locks), F_DUPFD_CLOEXEC, 3);
	assert_int_equal(locks_attach(fd, moved, &now, &recovery), 0);
	assert_int_equal(locks_count(recovery), 3);
	q = range(3, LOCKS_SHARED, 0, LOCKS_END);
	q.inode = now;
	assert_true(locks_test(recovery, &q, &r));
	assert_int_equal(r.pid, 1001);
	assert_int_equal(r.start, 10);
	assert_int_equal(r.end, 13);
	q.start = q.end = 14;
	assert_false(locks_test(recovery, &q, &r));
	locks_release_handle(recovery, now, 2);
	locks_release_owner(recovery, now, 1, 1);
	assert_int_equal(locks_count(recovery), 0);
	locks_free(recovery);
}

static uint64_t renumbered(uint64_t node, void *arg)
{
	(void)arg;
	return node == 5 ? FILE_A + 1000 : 0;
}

static void test_locks__inodes_that_are_made_anew_have_the_locks_and_waiters(void **state)
{
	struct lock_request q, gone = range(1, LOCKS_EXCLUSIVE, 0, 9);
	struct asker waiting, lost;
	struct lock_record r;

	(void)state;
	gone.inode = FILE_B;
	gone.node = 6;
	assert_int_equal(set(range(1, LOCKS_EXCLUSIVE, 0, 9)), 0);
	assert_int_equal(set(whole(1, LOCKS_SHARED)), 0);
	assert_int_equal(set(gone), 0);
	assert_int_equal(wait_for(&waiting, range(2, LOCKS_SHARED, 5, 5)), 1);
	gone.owner = 2;
	assert_int_equal(wait_for(&lost, gone), 1);
	/* As of a session that was left. */
	locks_end(locks, -ERESTART);
	expect_told(&waiting, -ERESTART);
	expect_told(&lost, -ERESTART);

	assert_int_equal(locks_renumber(locks, renumbered, NULL), 0);
	assert_int_equal(locks_count(locks), 2);
	q = range(2, LOCKS_SHARED, 5, 5);
	assert_false(locks_test(locks, &q, &r));
	q.inode += 1000;
	assert_true(locks_test(locks, &q, &r));
	assert_int_equal(wait_for(&waiting, q), 1);
	assert_int_equal(locks_renumber(locks, renumbered, NULL), 0);
	expect_waiting(&waiting);
	locks_release_owner(locks, FILE_A + 1000, 1, 1);
	expect_told(&waiting, 0);
	locks_release_handle(locks, FILE_A + 1000, 1);
	locks_release_handle(locks, FILE_A + 1000, 2);
	assert_int_equal(locks_count(locks), 0);
}

static void test_locks__who_waits_for_an_inode_that_is_lost_is_told(void **state)
{
	struct lock_request q = range(1, LOCKS_EXCLUSIVE, 0, 9);
	struct asker waiting;

	(void)state;
	q.node = 6;
	assert_int_equal(set(q), 0);
	q.owner = 2;
	assert_int_equal(wait_for(&waiting, q), 1);
	assert_int_equal(locks_renumber(locks, renumbered, NULL), 0);
	expect_told(&waiting, -ESTALE);
	assert_int_equal(locks_count(locks), 0);
}

/* ---- threads ---- */

static struct {
	_Atomic int inside;
	_Atomic unsigned granted, cancelled;
	_Atomic uint64_t numbers[THREADS];
} many;

struct thread_asker {
	sem_t told;
	int result;
};

static void told_thread(void *arg, int result)
{
	struct thread_asker *a = arg;

	a->result = result;
	sem_post(&a->told);
}

static void take_and_give(uint64_t owner, struct thread_asker *a)
{
	struct lock_request q = whole(owner, LOCKS_EXCLUSIVE);
	uint64_t number;
	int r;

	if (locks_prepare(locks, told_thread, a, &number) < 0)
		return;
	many.numbers[owner - 1] = number;
	r = locks_wait(locks, number, &q);
	if (r == 1) {
		sem_wait(&a->told);
		r = a->result;
	}
	if (r == -EINTR) {
		many.cancelled++;
		return;
	}
	if (r < 0 || atomic_fetch_add(&many.inside, 1) != 0)
		many.inside = 1000;
	many.granted++;
	atomic_fetch_sub(&many.inside, 1);
	locks_release_handle(locks, FILE_A, owner);
}

static void *work(void *arg)
{
	uint64_t owner = (uint64_t)(uintptr_t)arg;
	struct thread_asker a;

	sem_init(&a.told, 0, 0);
	for (unsigned k = 0; k < ROUNDS; k++) {
		take_and_give(owner, &a);
		if (k % 7 == owner)
			locks_cancel(locks, many.numbers[(owner + k) % THREADS]);
	}
	sem_destroy(&a.told);
	return NULL;
}

static void test_locks__threads_exclude_each_other_and_none_is_forgotten(void **state)
{
	pthread_t threads[THREADS];

	(void)state;
	many.inside = 0;
	many.granted = many.cancelled = 0;
	for (uintptr_t k = 0; k < THREADS; k++)
		assert_int_equal(pthread_create(&threads[k], NULL, work, (void *)(k + 1)), 0);
	for (unsigned k = 0; k < THREADS; k++)
		pthread_join(threads[k], NULL);
	assert_int_equal(many.inside, 0);
	assert_int_equal(many.granted + many.cancelled, THREADS * ROUNDS);
	assert_int_equal(locks_count(locks), 0);
	assert_int_equal(locks_waiting(locks), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_locks__the_exclusive_one_is_alone, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_locks__unlocking_the_middle_leaves_two, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			test_locks__a_failed_change_of_a_record_changes_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_locks__files_and_kinds_know_nothing_of_each_other, setup, teardown),
		cmocka_unit_test_setup_teardown(test_locks__flock_that_fails_has_lost_what_it_had,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_locks__who_waits_is_told_when_it_can_have_it,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_locks__they_are_served_in_the_order_in_which_they_came, setup,
			teardown),
		cmocka_unit_test_setup_teardown(test_locks__who_is_given_up_waits_no_longer, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_locks__a_circle_of_waiting_owners_is_refused,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_locks__waiting_for_flock_is_no_circle, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			test_locks__what_goes_with_a_descriptor_and_what_with_the_last, setup,
			teardown),
		cmocka_unit_test_setup_teardown(test_locks__an_end_that_may_be_near_is_told, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_locks__there_are_not_more_than_so_many, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_locks__no_more_wait_than_so_many, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_locks__a_range_that_is_none_is_refused, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_locks__at_the_end_all_are_told, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_locks__a_file_that_is_gone_has_none, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			test_locks__inodes_that_are_made_anew_have_the_locks_and_waiters, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			test_locks__who_waits_for_an_inode_that_is_lost_is_told, setup, teardown),
		cmocka_unit_test_setup_teardown(test_locks__held_ones_outlive_the_server, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			test_locks__threads_exclude_each_other_and_none_is_forgotten, setup,
			teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
