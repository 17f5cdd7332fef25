// SPDX-License-Identifier: Apache-2.0
#include "support/served.h"

#include "server/served_mount.h"

#include <sys/sysmacros.h>

#define VOLATILE "volatile,io=cached,copies=all"

struct visit {
	unsigned n;
	unsigned minors[8];
	uint64_t numbers[8];
	const struct mount *mount;
};

static void visit(struct mount *m, const struct served_place *at, void *arg)
{
	struct visit *v = arg;

	v->minors[v->n] = at->dev_minor;
	v->numbers[v->n++] = at->number;
	v->mount = m;
}

static void test_mount_table_find__each_is_visited_once_in_the_order_of_their_start(void **state)
{
	struct served *s = *state;
	struct fuse_kernel k[3];
	struct visit v = { .n = 0 };

	mount_table_each(s->table, visit, &v);
	assert_int_equal(v.n, 0);
	served_start(s, "a", VOLATILE, 5, &k[0]);
	served_start(s, "b", VOLATILE, 3, &k[1]);
	served_start(s, "c", VOLATILE, 4, &k[2]);
	mount_table_each(s->table, visit, &v);
	assert_int_equal(v.n, 3);
	assert_int_equal(v.minors[0], 5);
	assert_int_equal(v.minors[1], 3);
	assert_int_equal(v.minors[2], 4);
	assert_true(v.numbers[0] < v.numbers[1] && v.numbers[1] < v.numbers[2]);
	served_unmount(s, &k[1], 3);
	v.n = 0;
	mount_table_each(s->table, visit, &v);
	assert_int_equal(v.n, 2);
	assert_int_equal(v.minors[1], 4);
	served_unmount(s, &k[0], 2);
	served_unmount(s, &k[2], 1);
}

static void test_mount_table_find__mount_is_found_by_its_device_or_its_upper(void **state)
{
	struct mount_table_target t = { .dev_minor = 3 };
	struct served *s = *state;
	struct visit v = { .n = 0 };
	struct fuse_kernel k[2];
	struct stat st;

	served_start(s, "a", VOLATILE, 3, &k[0]);
	served_start(s, "b", VOLATILE, 4, &k[1]);
	assert_true(mount_table_at(s->table, &t, visit, &v));
	assert_int_equal(v.n, 1);
	assert_int_equal(v.minors[0], 3);
	assert_int_equal(fstatat(s->d->s.fd, "b/upper", &st, 0), 0);
	t = (struct mount_table_target){ .dev_major = major(st.st_dev),
					 .dev_minor = minor(st.st_dev),
					 .ino = st.st_ino };
	v.n = 0;
	assert_true(mount_table_at(s->table, &t, visit, &v));
	assert_int_equal(v.minors[0], 4);
	t.ino++;
	assert_false(mount_table_at(s->table, &t, visit, &v));
	t = (struct mount_table_target){ .dev_minor = 77 };
	assert_false(mount_table_at(s->table, &t, visit, &v));
	assert_int_equal(v.n, 1);
	served_unmount(s, &k[0], 2);
	served_unmount(s, &k[1], 1);
}

struct search {
	struct served *s;
	bool is_found;
};

static void *search(void *arg)
{
	const struct mount_table_target t = { .dev_minor = 3 };
	struct search *q = arg;
	struct visit v = { .n = 0 };

	q->is_found = mount_table_at(q->s->table, &t, visit, &v);
	return NULL;
}

/* A client that comes while mounts of a dead server are resumed waits for its own. */
static void test_mount_table_find__mount_that_is_being_resumed_is_waited_for(void **state)
{
	struct served *s = *state;
	struct search q = { .s = s };
	struct fuse_kernel k;
	pthread_t thread;

	mount_table_expect(s->table, 1);
	assert_int_equal(pthread_create(&thread, NULL, search, &q), 0);
	served_start(s, "a", VOLATILE, 3, &k);
	mount_table_expect(s->table, -1);
	mount_table_resumed(s->table);
	pthread_join(thread, NULL);
	assert_true(q.is_found);
	served_unmount(s, &k, 1);
}

static void test_mount_table_find__mounts_that_end_with_the_server_are_counted(void **state)
{
	struct served *s = *state;
	struct served_mount *m;
	struct fuse_kernel k[2];

	m = served_start(s, "a", VOLATILE, 3, &k[0]);
	served_start(s, "b", VOLATILE, 4, &k[1]);
	assert_int_equal(mount_table_count_unkept(s->table), 0);
	m->is_unkept = true;
	assert_int_equal(mount_table_count_unkept(s->table), 1);
	served_unmount(s, &k[0], 2);
	assert_int_equal(mount_table_count_unkept(s->table), 0);
	served_unmount(s, &k[1], 1);
}

#define row(test) cmocka_unit_test_setup_teardown(test, served_setup, served_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_mount_table_find__each_is_visited_once_in_the_order_of_their_start),
		row(test_mount_table_find__mount_is_found_by_its_device_or_its_upper),
		row(test_mount_table_find__mount_that_is_being_resumed_is_waited_for),
		row(test_mount_table_find__mounts_that_end_with_the_server_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
