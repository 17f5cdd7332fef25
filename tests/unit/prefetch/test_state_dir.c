// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/prefetch/state_dir.h"

#include <poll.h>
#include <sys/socket.h>

#define WAIT_MS 60000

static int setup(void **state)
{
	unsetenv("VENEER_STATE_DIR");
	unsetenv("XDG_STATE_HOME");
	return tree_setup(state);
}

static void expect_path(const char *wanted)
{
	char *path = state_dir_path();

	if (wanted)
		assert_string_equal(path, wanted);
	else
		assert_null(path);
	free(path);
}

static void test_state_dir__path_goes_by_the_environment(void **state)
{
	char *path;

	(void)state;
	setenv("VENEER_STATE_DIR", "/given", 1);
	setenv("XDG_STATE_HOME", "/xdg", 1);
	expect_path("/given");
	assert_true(state_dir_is_wanted());
	/* A path that is relative leads anywhere. */
	setenv("VENEER_STATE_DIR", "given", 1);
	expect_path("/xdg/veneer");
	setenv("VENEER_STATE_DIR", "", 1);
	assert_false(state_dir_is_wanted());
	unsetenv("VENEER_STATE_DIR");
	assert_true(state_dir_is_wanted());
	setenv("XDG_STATE_HOME", "xdg", 1);
	setenv("HOME", "home", 1);
	path = state_dir_path();
	assert_true(!path || !strcmp(path, "/var/lib/veneer"));
	free(path);
	setenv("HOME", "/home/me", 1);
	path = state_dir_path();
	assert_true(!strcmp(path, "/var/lib/veneer") ||
		    !strcmp(path, "/home/me/.local/state/veneer"));
	free(path);
}

static void test_state_dir__is_made_for_its_owner_alone(void **state)
{
	struct tree_dirs *d = *state;
	char path[PATH_MAX + 32];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/some/state", d->s.path);
	assert_int_equal(state_dir_open(path, 1), -ENOENT);
	assert_false(tree_is_there(d, "some"));
	fd = state_dir_open(path, 0);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	close(fd);
	fd = state_dir_open(path, 1);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(chmod(path, 0720), 0);
	assert_int_equal(state_dir_open(path, 0), -EPERM);
	assert_int_equal(chmod(path, 0702), 0);
	assert_int_equal(state_dir_open(path, 1), -EPERM);
	assert_int_equal(chmod(path, 0755), 0);
	fd = state_dir_open(path, 1);
	assert_true(fd >= 0);
	close(fd);
}

static void test_state_dir__link_and_file_are_no_directory(void **state)
{
	struct tree_dirs *d = *state;
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/upper/state", d->s.path);
	assert_int_equal(symlink(d->s.path, path), 0);
	assert_true(state_dir_open(path, 1) < 0);
	assert_int_equal(unlink(path), 0);
	tree_put_text(d, "upper/state", "x");
	assert_int_equal(state_dir_open(path, 1), -ENOTDIR);
}

static void test_state_dir__another_process_answers_with_its_descriptor(void **state)
{
	struct tree_dirs *d = *state;
	struct pollfd p = { .events = POLLIN };
	char path[PATH_MAX + 32];
	struct stat a, b;
	int fd;

	snprintf(path, sizeof(path), "%s/state", d->s.path);
	setenv("VENEER_STATE_DIR", path, 1);
	p.fd = state_dir_ask();
	assert_true(p.fd >= 0);
	assert_int_equal(poll(&p, 1, WAIT_MS), 1);
	fd = state_dir_answer(p.fd);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &a), 0);
	assert_int_equal(stat(path, &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	close(fd);
	close(p.fd);
	/* One that cannot be had. */
	assert_int_equal(chmod(path, 0777), 0);
	p.fd = state_dir_ask();
	assert_int_equal(poll(&p, 1, WAIT_MS), 1);
	assert_int_equal(state_dir_answer(p.fd), -EPERM);
	close(p.fd);
}

static void test_state_dir__answer_that_is_none(void **state)
{
	const int32_t good = 0, bad = -EACCES;
	int ends[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(state_dir_answer(ends[0]), -EAGAIN);
	assert_int_equal(send(ends[1], &bad, sizeof(bad), 0), sizeof(bad));
	assert_int_equal(state_dir_answer(ends[0]), -EACCES);
	/* Success without a descriptor, and a word that is cut short. */
	assert_int_equal(send(ends[1], &good, sizeof(good), 0), sizeof(good));
	assert_int_equal(state_dir_answer(ends[0]), -EIO);
	assert_int_equal(send(ends[1], &good, 2, 0), 2);
	assert_int_equal(state_dir_answer(ends[0]), -EIO);
	close(ends[1]);
	assert_int_equal(state_dir_answer(ends[0]), -EIO);
	close(ends[0]);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_state_dir__path_goes_by_the_environment),
		row(test_state_dir__is_made_for_its_owner_alone),
		row(test_state_dir__link_and_file_are_no_directory),
		row(test_state_dir__another_process_answers_with_its_descriptor),
		row(test_state_dir__answer_that_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
