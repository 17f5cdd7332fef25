// SPDX-License-Identifier: Apache-2.0
#include "../../src/jobs/mount_registry.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct mount_registry registry = MOUNT_REGISTRY_INIT(registry);

static void test_mount_registry__lists_members_in_order_by_ascending_numbers(void **state)
{
	struct mount_registry_member a = { 0 }, b = { 0 };

	(void)state;
	LOCK_SCOPE(&registry.lock);
	assert_null(mount_registry_next(&registry, NULL));
	mount_registry_enter(&registry, &a);
	mount_registry_enter(&registry, &b);
	assert_true(a.number > 0 && b.number > a.number);
	assert_ptr_equal(mount_registry_next(&registry, NULL), &a);
	assert_ptr_equal(mount_registry_next(&registry, &a), &b);
	assert_null(mount_registry_next(&registry, &b));
	assert_ptr_equal(mount_registry_find(&registry, b.number), &b);
	assert_ptr_equal(mount_registry_leave(&registry, a.number), &a);
	assert_null(mount_registry_find(&registry, a.number));
	assert_null(mount_registry_leave(&registry, a.number));
	assert_ptr_equal(mount_registry_leave(&registry, b.number), &b);
	assert_true(list_is_empty(&registry.members));
}

static void *leave(void *m)
{
	LOCK_SCOPE(&registry.lock);
	return mount_registry_leave(&registry, ((struct mount_registry_member *)m)->number);
}

static void wait_for_leaver(struct mount_registry_member *m)
{
	bool is_leaving = false;

	while (!is_leaving) {
		LOCK_SCOPE(&registry.lock);
		is_leaving = m->is_leaving;
	}
}

static void test_mount_registry__pinned_member_leaves_once_when_it_is_let_go_of(void **state)
{
	struct mount_registry_member m = { .is_pinned = true };
	pthread_t threads[2];
	void *left[2];

	(void)state;
	pthread_mutex_lock(&registry.lock);
	mount_registry_enter(&registry, &m);
	pthread_mutex_unlock(&registry.lock);
	for (int k = 0; k < 2; k++)
		assert_int_equal(pthread_create(&threads[k], NULL, leave, &m), 0);
	wait_for_leaver(&m);
	pthread_mutex_lock(&registry.lock);
	/* Nobody begins with it any more, and it is there. */
	assert_null(mount_registry_find(&registry, m.number));
	assert_null(mount_registry_next(&registry, NULL));
	assert_false(list_is_empty(&registry.members));
	mount_registry_unpin(&registry, &m);
	pthread_mutex_unlock(&registry.lock);
	for (int k = 0; k < 2; k++)
		pthread_join(threads[k], &left[k]);
	assert_true((left[0] == &m) != (left[1] == &m));
	assert_true(list_is_empty(&registry.members));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mount_registry__lists_members_in_order_by_ascending_numbers),
		cmocka_unit_test(
			test_mount_registry__pinned_member_leaves_once_when_it_is_let_go_of),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
