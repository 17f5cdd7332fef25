// SPDX-License-Identifier: Apache-2.0
#include "support/served.h"

#include "server/served_mount.h"

#include <sched.h>

#define VOLATILE "volatile,io=cached,copies=all"
#define ROUNDS	 200

static void test_served_mount__pins_go_by_id_and_above_it(void **state)
{
	struct served *s = *state;
	struct served_mount *a, *b, *got;
	struct fuse_kernel k[2];
	uint64_t id[2];

	assert_null(served_mount_pin_after(s->table, 0, false));
	a = served_start(s, "a", VOLATILE, 3, &k[0]);
	b = served_start(s, "b", VOLATILE, 4, &k[1]);
	id[0] = a->id;
	id[1] = b->id;
	got = served_mount_pin_after(s->table, 0, false);
	assert_ptr_equal(got, a);
	served_mount_unpin(got);
	got = served_mount_pin_after(s->table, id[0], false);
	assert_ptr_equal(got, b);
	served_mount_unpin(got);
	assert_null(served_mount_pin_after(s->table, id[1], false));
	got = served_mount_pin_after(s->table, id[1], true);
	assert_ptr_equal(got, b);
	served_mount_unpin(got);
	assert_null(served_mount_pin_after(s->table, id[1] + 1, true));
	assert_null(served_mount_pin_after(s->table, 0, true));
	served_unmount(s, &k[0], 2);
	assert_null(served_mount_pin_after(s->table, id[0], true));
	served_unmount(s, &k[1], 1);
}

static void test_served_mount__mount_is_not_freed_while_it_is_pinned(void **state)
{
	struct served *s = *state;
	struct served_mount *m, *pinned;
	struct fuse_kernel k;

	tree_put_text(s->d, "lower/file", "text");
	m = served_start(s, "", VOLATILE, 3, &k);
	pinned = served_mount_pin_after(s->table, m->id, true);
	served_mount_end(m);
	/* A second wish is the same. */
	served_mount_end(m);
	/* From the moment it is out of the list nobody finds it, and it waits for this thread. */
	while (pinned == m) {
		struct served_mount *again = served_mount_pin_after(s->table, m->id, true);

		if (!again)
			break;
		served_mount_unpin(again);
		sched_yield();
	}
	assert_int_equal(mount_table_count(s->table), 1);
	assert_string_equal(pinned->mount.opts.mountpoint, "/nowhere");
	assert_true(pinned->has_mount);
	served_mount_unpin(pinned);
	served_await_fewer(s, 1);
	fuse_kernel_close(&k);
}

static void *look(void *arg)
{
	struct served *s = arg;
	bool is_in_order = true;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct served_mount *m;
		uint64_t id = 0;

		while ((m = served_mount_pin_after(s->table, id, false))) {
			is_in_order &= m->id > id;
			id = m->id;
			served_mount_unpin(m);
		}
	}
	return is_in_order ? s : NULL;
}

static void test_served_mount__lookers_and_ends_get_along(void **state)
{
	struct served *s = *state;
	pthread_t threads[3];

	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, look, s), 0);
	for (int i = 0; i < 10; i++) {
		struct served_mount *m;
		struct fuse_kernel k;

		m = served_start(s, "", VOLATILE, 3, &k);
		if (i % 2) {
			served_mount_end(m);
			served_await_fewer(s, 1);
			fuse_kernel_close(&k);
		} else {
			served_unmount(s, &k, 1);
		}
	}
	for (int i = 0; i < 3; i++) {
		void *result;

		pthread_join(threads[i], &result);
		assert_ptr_equal(result, s);
	}
	while (served_mount_has_endings(s->table))
		sched_yield();
}

#define row(test)	cmocka_unit_test_setup_teardown(test, served_setup, served_teardown)
#define row_saved(test) cmocka_unit_test_setup_teardown(test, served_setup_saved, served_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_served_mount__pins_go_by_id_and_above_it),
		row(test_served_mount__mount_is_not_freed_while_it_is_pinned),
		row_saved(test_served_mount__mount_is_not_freed_while_it_is_pinned),
		row(test_served_mount__lookers_and_ends_get_along),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
