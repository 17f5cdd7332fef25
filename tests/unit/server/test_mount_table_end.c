// SPDX-License-Identifier: Apache-2.0
#include "support/served.h"

#include "server/served_mount.h"
#include "veneer/mount/upper_takeover.h"

#include <poll.h>

#define VOLATILE "volatile,io=cached,copies=all"

static void test_mount_table_end__all_end_while_they_are_in_use(void **state)
{
	struct mount_table_step step = { .keeps_upper = true };
	struct served *s = *state;
	struct fuse_kernel k[2];
	struct served_mount *m;
	uint64_t id;

	tree_put_text(s->d, "lower/file", "text");
	m = served_start(s, "a", VOLATILE, 3, &k[0]);
	id = m->id;
	served_start(s, "b", VOLATILE, 4, &k[1]);
	fuse_kernel_node(&k[0], "file");
	assert_false(mount_table_ends(s->table));
	mount_table_end_all(s->table);
	assert_true(mount_table_ends(s->table));
	served_await_fewer(s, 1);
	/* None is opened anew from then on. */
	assert_int_equal(mount_table_replace(s->table, id, &step), -ENOENT);
	/* Its users hear that it has gone: the descriptor is closed. */
	for (int i = 0; i < 2; i++) {
		struct pollfd p = { .fd = k[i].fd, .events = POLLIN };

		assert_int_equal(poll(&p, 1, 60000), 1);
		assert_true(p.revents & POLLHUP);
		fuse_kernel_close(&k[i]);
	}
	mount_table_end_all(s->table);
}

static void ask_for(struct served *s, const char *dir)
{
	char name[64];
	struct stat st;
	int work;

	snprintf(name, sizeof(name), "%s/upper", dir);
	assert_int_equal(fstatat(s->d->s.fd, name, &st, 0), 0);
	snprintf(name, sizeof(name), "%s/work", dir);
	work = openat(s->d->s.fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(work >= 0);
	upper_takeover_ask(work, st.st_dev, st.st_ino);
	close(work);
}

/* No mount namespace lists such a device: it is mounted nowhere. */
#define NOWHERE_MINOR 99991u

static void test_mount_table_end__detached_mount_makes_room_when_its_upper_is_wanted(void **state)
{
	struct served *s = *state;
	struct pollfd p = { .fd = mount_table_fd(s->table), .events = POLLIN };
	struct served_mount *m;
	struct fuse_kernel k;
	struct stat ns;

	m = served_start(s, "a", VOLATILE, NOWHERE_MINOR, &k);
	assert_true(m->takeover_fd >= 0);
	assert_int_equal(poll(&p, 1, 0), 0);
	/* Nobody asks. */
	mount_table_make_room(s->table);
	assert_int_equal(mount_table_count(s->table), 1);
	/* Without the mount namespace nobody knows where it is mounted. */
	ask_for(s, "a");
	assert_int_equal(poll(&p, 1, 60000), 1);
	mount_table_make_room(s->table);
	assert_int_equal(mount_table_count(s->table), 1);
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_int_equal(stat("/proc/self/ns/mnt", &ns), 0);
	m->at.mount_ns = ns.st_ino;
	m->at.dev_major = 0;
	ask_for(s, "a");
	assert_int_equal(poll(&p, 1, 60000), 1);
	mount_table_make_room(s->table);
	served_await_fewer(s, 1);
	fuse_kernel_close(&k);
}

static void test_mount_table_end__ask_for_another_upper_ends_nothing(void **state)
{
	struct served *s = *state;
	struct pollfd p = { .fd = mount_table_fd(s->table), .events = POLLIN };
	struct served_mount *m;
	struct fuse_kernel k;
	struct stat ns;
	int work;

	m = served_start(s, "a", VOLATILE, NOWHERE_MINOR, &k);
	assert_int_equal(stat("/proc/self/ns/mnt", &ns), 0);
	m->at.mount_ns = ns.st_ino;
	work = openat(s->d->s.fd, "a/work", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	upper_takeover_ask(work, 1, 2);
	close(work);
	assert_int_equal(poll(&p, 1, 60000), 1);
	mount_table_make_room(s->table);
	assert_int_equal(mount_table_count(s->table), 1);
	assert_true(S_ISDIR(fuse_kernel_attr(&k, FUSE_ROOT_ID).mode));
	served_unmount(s, &k, 1);
}

#define row(test) cmocka_unit_test_setup_teardown(test, served_setup, served_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_mount_table_end__all_end_while_they_are_in_use),
		row(test_mount_table_end__detached_mount_makes_room_when_its_upper_is_wanted),
		row(test_mount_table_end__ask_for_another_upper_ends_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
