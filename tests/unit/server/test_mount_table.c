// SPDX-License-Identifier: Apache-2.0
#include "support/served.h"

#include "server/served_mount.h"
#include "veneer/server/sb_registry.h"

#include <sched.h>
#include <string.h>

#define VOLATILE "volatile,io=cached,copies=all"

int __wrap_usleep(useconds_t us);

/* The wait for an upper in use counts its steps, which take no time here. */
int __wrap_usleep(useconds_t us)
{
	(void)us;
	return sched_yield();
}

static void test_mount_table__mount_counts_from_its_opening_to_its_end(void **state)
{
	struct served *s = *state;
	struct served_mount *m;
	struct fuse_kernel k;
	char err[256];

	tree_put_text(s->d, "lower/file", "text");
	assert_int_equal(mount_table_count(s->table), 0);
	assert_int_equal(served_open(s, "", VOLATILE, &m, err), 0);
	assert_int_equal(mount_table_count(s->table), 1);
	assert_non_null(mount_table_mount(m)->tree.upper);
	/* One that is opened and not started is dropped by its owner. */
	mount_table_drop(s->table, m);
	assert_int_equal(mount_table_count(s->table), 0);
	assert_int_equal(s->n_changed, 1);

	served_start(s, "", VOLATILE, 7, &k);
	assert_int_equal(fuse_kernel_attr(&k, fuse_kernel_node(&k, "file")).size, 4);
	served_unmount(s, &k, 1);
	assert_int_equal(mount_table_count(s->table), 0);
}

static void
test_mount_table__request_that_cannot_be_parsed_leaves_its_parts_to_the_caller(void **state)
{
	struct served *s = *state;
	struct mount_record d;
	struct mount_dirs dirs;
	struct served_mount *m = NULL;
	char err[256] = "";
	int upper;

	served_request(s, "", VOLATILE, &d, &dirs);
	/* One of its strings is missing. */
	d.argc++;
	upper = dirs.upper;
	assert_true(mount_table_open(s->table, &dirs, &d, &m, err, sizeof(err)) < 0);
	assert_string_not_equal(err, "");
	assert_null(m);
	assert_int_equal(dirs.upper, upper);
	assert_true(fcntl(upper, F_GETFD) >= 0);
	assert_int_equal(mount_table_count(s->table), 0);
	d.argc--;
	/* Directories that do not fit the options. */
	assert_int_equal(mount_dirs_add_lower(&dirs, open("/", O_RDONLY | O_CLOEXEC)), 0);
	assert_true(mount_table_open(s->table, &dirs, &d, &m, err, sizeof(err)) < 0);
	assert_int_equal(mount_table_count(s->table), 0);
	mount_dirs_release(&dirs);
	mount_record_release(&d);
}

static void test_mount_table__failure_to_open_leaves_no_mount_and_no_lock(void **state)
{
	struct served *s = *state;
	struct served_mount *m = NULL, *first;
	char err[256];

	assert_int_equal(served_open(s, "", VOLATILE, &first, err), 0);
	/* Its upper is in use. */
	if (served_open(s, "", VOLATILE, &m, err) == 0)
		fail_msg("opened twice");
	assert_non_null(strstr(err, "in use"));
	assert_int_equal(mount_table_count(s->table), 1);
	mount_table_drop(s->table, first);
	assert_int_equal(served_open(s, "", VOLATILE, &m, err), 0);
	mount_table_drop(s->table, m);
	assert_int_equal(mount_table_count(s->table), 0);
}

static void test_mount_table__connection_that_is_gone_before_it_is_started(void **state)
{
	const struct served_place at = { .dev_minor = 1 };
	struct served *s = *state;
	struct served_mount *m;
	struct fuse_kernel k;
	char err[256];

	assert_int_equal(served_open(s, "", VOLATILE, &m, err), 0);
	fuse_kernel_open(&k, 0);
	close(k.fd);
	/* The kernel has said INIT and ends: the answer fails, or nothing is read. */
	k.fd = -1;
	close(k.fuse_fd);
	assert_int_equal(mount_table_start(s->table, m, k.fuse_fd, &at, err, sizeof(err)), -EIO);
	assert_string_equal(err, "the kernel closed the mount at /nowhere");
	/* The caller's still. */
	assert_int_equal(mount_table_count(s->table), 1);
	mount_table_drop(s->table, m);
}

/* ---- a mount that is opened anew while it is used ---- */

static int prepare_result, take_result, n_taken;
static struct mount *prepared;

static int prepare(void *arg, struct mount *m, const struct mount_record *d)
{
	(void)arg, (void)d;
	prepared = m;
	return prepare_result;
}

static int take(void *arg, int upper_fd)
{
	struct served *s = arg;

	n_taken++;
	assert_true(fcntl(upper_fd, F_GETFD) >= 0);
	/* It is open nowhere: a change here is seen by the mount that is opened anew. */
	tree_put_text(s->d, "upper/taken", "by the step");
	return take_result;
}

static struct mount_table_step step_of(struct served *s)
{
	prepare_result = take_result = n_taken = 0;
	return (struct mount_table_step){
		.keeps_upper = true, .prepare = prepare, .take = take, .arg = s
	};
}

static void test_mount_table__replaced_mount_keeps_its_nodes_and_connection(void **state)
{
	struct served *s = *state;
	const struct mount_table_step step = step_of(s);
	struct fuse_kernel k;
	struct served_mount *m;
	uint64_t node;

	tree_put_text(s->d, "lower/file", "text");
	m = served_start(s, "", VOLATILE, 7, &k);
	node = fuse_kernel_node(&k, "file");
	assert_int_equal(fuse_kernel_write(&k, node, 0, "T", 1), 1);
	assert_int_equal(mount_table_replace(s->table, m->id, &step), 0);
	assert_int_equal(n_taken, 1);
	assert_ptr_equal(prepared, &m->mount);
	assert_int_equal(fuse_kernel_attr(&k, node).size, 4);
	fuse_kernel_node(&k, "taken");
	/* And again: it is in the table as before, by another id. */
	assert_int_equal(mount_table_count(s->table), 1);
	served_unmount(s, &k, 1);
}

static void test_mount_table__step_that_refuses_leaves_the_mount_as_it_is(void **state)
{
	struct served *s = *state;
	struct mount_table_step step = step_of(s);
	struct fuse_kernel k;
	struct served_mount *m;
	uint64_t node;

	tree_put_text(s->d, "lower/file", "text");
	m = served_start(s, "", VOLATILE, 7, &k);
	node = fuse_kernel_node(&k, "file");
	prepare_result = -ETXTBSY;
	assert_int_equal(mount_table_replace(s->table, m->id, &step), -ETXTBSY);
	assert_int_equal(n_taken, 0);
	assert_int_equal(fuse_kernel_attr(&k, node).size, 4);
	/* One that fails later has the mount opened anew all the same. */
	prepare_result = 0;
	take_result = -EDQUOT;
	assert_int_equal(mount_table_replace(s->table, m->id, &step), -EDQUOT);
	assert_int_equal(n_taken, 1);
	assert_int_equal(fuse_kernel_attr(&k, node).size, 4);
	served_unmount(s, &k, 1);
}

static void test_mount_table__mount_that_is_none_ends_or_is_not_saved_is_not_replaced(void **state)
{
	struct served *s = *state;
	struct mount_table_step step = step_of(s);
	struct fuse_kernel k;
	struct served_mount *m;

	assert_int_equal(mount_table_replace(s->table, 1, &step), -ENOENT);
	m = served_start(s, "", VOLATILE, 7, &k);
	assert_int_equal(mount_table_replace(s->table, m->id + 1, &step), -ENOENT);
	if (!s->supervisor_state)
		assert_int_equal(mount_table_replace(s->table, m->id, &step), -EOPNOTSUPP);
	assert_int_equal(n_taken, 0);
	assert_false(mount_table_ends(s->table));
	served_unmount(s, &k, 1);
}

static void test_mount_table__expected_mounts_count(void **state)
{
	struct served *s = *state;

	mount_table_expect(s->table, 3);
	assert_int_equal(mount_table_count(s->table), 3);
	mount_table_expect(s->table, -3);
	assert_int_equal(mount_table_count(s->table), 0);
	assert_int_equal(s->n_changed, 1);
	mount_table_resumed(s->table);
}

/* A record whose descriptors are gone, as after a server that failed to hand them over. */
static void test_mount_table__record_that_cannot_be_resumed_is_dropped(void **state)
{
	struct served *s = *state;
	struct mount_record d;
	struct mount_dirs dirs;
	char err[256] = "";
	uint32_t place;
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	served_request(s, "", VOLATILE, &d, &dirs);
	mount_dirs_release(&dirs);
	d.key = 5;
	assert_int_equal(supervisor_state_put(s->supervisor_state, fd, &place), 0);
	mount_table_expect(s->table, 1);
	assert_true(mount_table_resume(s->table, &d, place, err, sizeof(err)) < 0);
	assert_string_not_equal(err, "");
	assert_int_equal(mount_table_count(s->table), 0);
	/* Its place is free. */
	mount_table_resumed(s->table);
	close(fd);
}

#define row(test)	cmocka_unit_test_setup_teardown(test, served_setup, served_teardown)
#define row_saved(test) cmocka_unit_test_setup_teardown(test, served_setup_saved, served_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_mount_table__mount_counts_from_its_opening_to_its_end),
		row_saved(test_mount_table__mount_counts_from_its_opening_to_its_end),
		row(test_mount_table__request_that_cannot_be_parsed_leaves_its_parts_to_the_caller),
		row(test_mount_table__failure_to_open_leaves_no_mount_and_no_lock),
		row(test_mount_table__connection_that_is_gone_before_it_is_started),
		row_saved(test_mount_table__replaced_mount_keeps_its_nodes_and_connection),
		row_saved(test_mount_table__step_that_refuses_leaves_the_mount_as_it_is),
		row(test_mount_table__mount_that_is_none_ends_or_is_not_saved_is_not_replaced),
		row_saved(
			test_mount_table__mount_that_is_none_ends_or_is_not_saved_is_not_replaced),
		row_saved(test_mount_table__expected_mounts_count),
		row_saved(test_mount_table__record_that_cannot_be_resumed_is_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
