// SPDX-License-Identifier: Apache-2.0
#include "support/served.h"

#include "server/saved_mount.h"
#include "veneer/base/stats.h"
#include "veneer/union/lookup.h"

#include <string.h>

#define VOLATILE "volatile,io=cached,copies=all"

struct saving {
	struct served *s;
	struct saved_mount k;
	struct mount m;
	bool has_mount;
	uint64_t node; /* of lower/file */
};

/* A mount that is open and not saved yet. */
static void start(struct saving *v, struct served *s)
{
	struct mount_opts opts;
	struct mount_dirs dirs;
	char err[256];

	*v = (struct saving){ .s = s };
	tree_put_text(s->d, "lower/file", "text");
	served_request(s, "", VOLATILE, &v->k.mount_record, &dirs);
	v->k.supervisor_state = s->supervisor_state;
	v->k.work = WORKDIR_NONE;
	assert_int_equal(mount_record_keep_dirs(&v->k.mount_record, &dirs), 0);
	if (mount_record_options(&v->k.mount_record, &dirs, &opts, err, sizeof(err)) < 0 ||
	    mount_open_at(&v->m, &opts, &dirs, err, sizeof(err)) < 0)
		fail_msg("%s", err);
	v->has_mount = true;
	v->m.key = supervisor_state_key(s->supervisor_state);
}

static void stop(struct saving *v)
{
	if (v->has_mount)
		mount_close(&v->m);
	saved_mount_release(&v->k);
}

static void count_place(int fd, uint32_t place, void *arg)
{
	(void)place;
	assert_true(fcntl(fd, F_GETFD) >= 0);
	++*(unsigned *)arg;
}

static unsigned n_places(struct served *s)
{
	unsigned n = 0;

	supervisor_state_each(s->supervisor_state, count_place, &n);
	return n;
}

static void test_saved_mount__record_stands_until_it_is_dropped(void **state)
{
	struct served *s = *state;
	struct mount_record d;
	struct saving v;
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	start(&v, s);
	assert_int_equal(n_places(s), 0);
	assert_int_equal(saved_mount_write(&v.k, &v.m, fd, "init", 4), 0);
	assert_true(v.k.is_kept);
	assert_int_equal(n_places(s), 1);
	assert_non_null(v.m.activity);
	/* The caller's descriptor is duplicated, those of the mount are only named. */
	assert_int_not_equal(v.k.mount_record.fuse_fd, fd);
	assert_int_equal(v.k.mount_record.slots_fd, -1);
	assert_int_equal(mount_record_read(v.k.mount_record.fd, &d), 0);
	assert_true(d.slots_fd >= 0 && d.names_fd >= 0);
	assert_int_equal(d.key, v.m.key);
	assert_int_equal(d.init.len, 4);
	mount_record_forget(&d);
	saved_mount_drop(&v.k);
	assert_int_equal(n_places(s), 0);
	saved_mount_drop(&v.k);
	stop(&v);
	close(fd);
}

static void test_saved_mount__one_that_cannot_be_saved_is_served_all_the_same(void **state)
{
	struct served *s = *state;
	struct saving v;

	start(&v, s);
	/* No descriptor: nothing is written. */
	assert_true(saved_mount_write(&v.k, &v.m, 1000000, "init", 4) < 0);
	assert_false(v.k.is_kept);
	assert_int_equal(n_places(s), 0);
	assert_null(v.m.activity);
	stop(&v);
}

static int leave(struct saving *v)
{
	struct mount_saved_tables left = MOUNT_SAVED_TABLES_NONE;
	int r = mount_leave(&v->m, &left);

	v->has_mount = false;
	saved_mount_keep_left(&v->k, &left);
	return r;
}

static void test_saved_mount__mount_that_was_left_is_opened_again_by_its_tables(void **state)
{
	struct served *s = *state;
	struct saving v;
	struct inode *i;
	struct stat st;
	uint32_t id, generation;
	char err[256] = "";

	start(&v, s);
	assert_int_equal(saved_mount_write(&v.k, &v.m, -1, NULL, 0), 0);
	assert_int_equal(lookup_name(&v.m.tree, v.m.tree.root, "file", &i, &st), 0);
	inode_grant(&v.m.tree, i, &id, &generation);
	assert_int_equal(leave(&v), 0);
	assert_true(v.k.mount_record.slots_fd >= 0);
	assert_non_null(v.k.stats);
	assert_int_equal(saved_mount_reopen(&v.k, NULL, &v.m, &v.has_mount, err, sizeof(err)), 0);
	assert_true(v.has_mount);
	assert_int_equal(v.k.mount_record.slots_fd, -1);
	assert_null(v.k.stats);
	/* The kernel's number for the file means the same. */
	i = inode_get(&v.m.tree, id);
	assert_non_null(i);
	assert_int_equal(lookup_restore(&v.m.tree, i), 0);
	assert_int_equal(lookup_stat(&v.m.tree, i, &st), 0);
	assert_int_equal(st.st_size, 4);
	stop(&v);
}

static void test_saved_mount__failure_leaves_what_another_try_needs(void **state)
{
	struct served *s = *state;
	struct saving v;
	char err[256] = "";
	uint32_t argc;

	start(&v, s);
	assert_int_equal(saved_mount_write(&v.k, &v.m, -1, NULL, 0), 0);
	assert_int_equal(leave(&v), 0);
	/* Arguments that say nothing: nothing is opened. */
	argc = v.k.mount_record.argc;
	v.k.mount_record.argc = argc + 1;
	assert_true(saved_mount_reopen(&v.k, NULL, &v.m, &v.has_mount, err, sizeof(err)) < 0);
	assert_false(v.has_mount);
	assert_string_not_equal(err, "");
	assert_true(saved_mount_regain(&v.k, &v.m, &v.has_mount));
	v.k.mount_record.argc = argc;
	assert_int_equal(saved_mount_reopen(&v.k, NULL, &v.m, &v.has_mount, err, sizeof(err)), 0);
	/* What is open gives back its tables, too. */
	assert_int_equal(v.k.mount_record.slots_fd, -1);
	assert_true(saved_mount_regain(&v.k, &v.m, &v.has_mount));
	assert_false(v.has_mount);
	assert_true(v.k.mount_record.slots_fd >= 0);
	assert_int_equal(saved_mount_reopen(&v.k, NULL, &v.m, &v.has_mount, err, sizeof(err)), 0);
	stop(&v);
}

#define row(test) cmocka_unit_test_setup_teardown(test, served_setup_saved, served_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_saved_mount__record_stands_until_it_is_dropped),
		row(test_saved_mount__one_that_cannot_be_saved_is_served_all_the_same),
		row(test_saved_mount__mount_that_was_left_is_opened_again_by_its_tables),
		row(test_saved_mount__failure_leaves_what_another_try_needs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
