// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/base/cleanup.h"
#include "veneer/server/rundir.h"

#include <sys/stat.h>

#define ERR_SIZE 8192

static void give(struct tree_dirs *d, const char *name)
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s", d->s.path, name);
	setenv("VENEER_RUNTIME_DIR", path, 1);
}

static void test_rundir__is_made_for_its_owner_only(void **state)
{
	struct tree_dirs *d = *state;
	char err[ERR_SIZE];
	struct rundir r;
	struct stat st;

	give(d, "run");
	assert_int_equal(rundir_open(&r, err, ERR_SIZE), 0);
	assert_int_equal(fstatat(d->s.fd, "run", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_non_null(strstr(r.path, "/run/"));
	assert_non_null(strstr(r.path, r.name));
	rundir_release(&r);
}

static void test_rundir__place_that_others_may_write_in_is_refused(void **state)
{
	struct tree_dirs *d = *state;
	char err[ERR_SIZE] = "";
	struct rundir r;

	tree_put_dir(d, "open");
	assert_int_equal(fchmodat(d->s.fd, "open", 0777, 0), 0);
	give(d, "open");
	assert_int_equal(rundir_open(&r, err, ERR_SIZE), -EPERM);
	assert_non_null(strstr(err, "/open"));
	rundir_release(&r);
	tree_put_dir(d, "own");
	assert_int_equal(symlinkat("own", d->s.fd, "link"), 0);
	give(d, "link");
	assert_true(rundir_open(&r, err, ERR_SIZE) < 0);
	rundir_release(&r);
}

static void test_rundir__socket_of_other_namespaces_is_seen(void **state)
{
	struct tree_dirs *d = *state;
	char err[ERR_SIZE];
	struct rundir r;
	int fd;

	give(d, "run");
	assert_int_equal(rundir_open(&r, err, ERR_SIZE), 0);
	assert_int_equal(rundir_listen(&r, &fd), 0);
	close(fd);
	assert_false(rundir_has_other(&r));
	tree_put_text(d, "run/1-2.sock.lock", "");
	assert_false(rundir_has_other(&r));
	tree_put_text(d, "run/1-2.sock", "");
	assert_true(rundir_has_other(&r));
	rundir_release(&r);
}

static void test_rundir__lock_keeps_the_second_out(void **state)
{
	char err[ERR_SIZE];
	struct rundir a, b;
	int one, two;

	give(*state, "run");
	assert_int_equal(rundir_open(&a, err, ERR_SIZE), 0);
	assert_int_equal(rundir_open(&b, err, ERR_SIZE), 0);
	assert_int_equal(rundir_lock(&a, 0, &one), 0);
	assert_int_equal(rundir_lock(&b, 0, &two), -EAGAIN);
	assert_int_equal(rundir_lock(&b, 20, &two), -EAGAIN);
	close(one);
	assert_int_equal(rundir_lock(&b, 0, &two), 0);
	close(two);
	rundir_release(&a);
	rundir_release(&b);
}

static void test_rundir__stale_socket_is_replaced_and_a_live_one_is_not(void **state)
{
	char err[ERR_SIZE];
	struct rundir r;
	int one, two;

	give(*state, "run");
	assert_int_equal(rundir_open(&r, err, ERR_SIZE), 0);
	assert_int_equal(rundir_listen(&r, &one), 0);
	assert_int_equal(rundir_listen(&r, &two), -EADDRINUSE);
	close(one);
	assert_int_equal(rundir_listen(&r, &two), 0);
	close(two);
	rundir_remove(&r);
	assert_int_equal(faccessat(r.fd, r.name, F_OK, 0), -1);
	/* A file that is not a socket belongs to another program. */
	assert_int_equal(mkdirat(r.fd, r.name, 0700), 0);
	assert_int_equal(rundir_listen(&r, &one), -EADDRINUSE);
	rundir_release(&r);
}

static void test_rundir__given_path_is_split(void **state)
{
	struct tree_dirs *d = *state;
	char path[PATH_MAX + 64], err[ERR_SIZE];
	struct rundir r;

	snprintf(path, sizeof(path), "%s/my.sock", d->s.path);
	assert_int_equal(rundir_open_path(&r, path, err, ERR_SIZE), 0);
	assert_string_equal(r.name, "my.sock");
	assert_string_equal(r.path, path);
	rundir_release(&r);
	assert_int_equal(rundir_open_path(&r, "/tmp/", err, ERR_SIZE), -EINVAL);
	rundir_release(&r);
	assert_int_equal(rundir_open_path(&r, "/nowhere/x", err, ERR_SIZE), -ENOENT);
	rundir_release(&r);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_rundir__is_made_for_its_owner_only),
		row(test_rundir__place_that_others_may_write_in_is_refused),
		row(test_rundir__socket_of_other_namespaces_is_seen),
		row(test_rundir__lock_keeps_the_second_out),
		row(test_rundir__stale_socket_is_replaced_and_a_live_one_is_not),
		row(test_rundir__given_path_is_split),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
