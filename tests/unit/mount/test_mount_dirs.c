// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/base/cleanup.h"
#include "veneer/mount/mount_dirs.h"

#include <sys/stat.h>

#define ERR_SIZE 8192

struct case_ {
	struct mount_opts o;
	struct mount_dirs dirs;
	char paths[4][PATH_MAX + 64], *lower[2], err[ERR_SIZE];
};

static void prepare(struct tree_dirs *d, struct case_ *c)
{
	static const char *const names[] = { "one", "two", "up", "wk" };

	*c = (struct case_){ 0 };
	for (size_t i = 0; i < 4; i++) {
		tree_put_dir(d, names[i]);
		snprintf(c->paths[i], sizeof(c->paths[i]), "%s/%s", d->s.path, names[i]);
	}
	c->lower[0] = c->paths[0];
	c->lower[1] = c->paths[1];
	c->o = (struct mount_opts){
		.lower = c->lower, .n_lower = 2, .upper = c->paths[2], .work = c->paths[3]
	};
}

static void assert_is(int fd, const char *path)
{
	struct stat a, b;

	assert_int_equal(fstat(fd, &a), 0);
	assert_int_equal(stat(path, &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

static void test_mount_dirs__each_is_what_its_option_names(void **state)
{
	struct case_ c;

	prepare(*state, &c);
	assert_int_equal(mount_dirs_open(&c.o, &c.dirs, c.err, ERR_SIZE), 0);
	assert_int_equal(c.dirs.n_lower, 2);
	assert_is(c.dirs.lower[0], c.paths[0]);
	assert_is(c.dirs.lower[1], c.paths[1]);
	assert_is(c.dirs.upper, c.paths[2]);
	assert_is(c.dirs.work, c.paths[3]);
	assert_true(mount_dirs_fit(&c.o, &c.dirs));
	c.o.n_lower = 1;
	assert_false(mount_dirs_fit(&c.o, &c.dirs));
	c.o.n_lower = 2;
	closep(&c.dirs.work);
	assert_false(mount_dirs_fit(&c.o, &c.dirs));
	mount_dirs_release(&c.dirs);
	assert_false(mount_dirs_fit(&c.o, &c.dirs));
}

static void test_mount_dirs__work_directory_of_a_read_only_mount_need_not_exist(void **state)
{
	struct case_ c;

	prepare(*state, &c);
	c.o.is_readonly = true;
	c.o.work = NULL;
	assert_int_equal(mount_dirs_open(&c.o, &c.dirs, c.err, ERR_SIZE), 0);
	assert_int_equal(c.dirs.work, -1);
	assert_true(mount_dirs_fit(&c.o, &c.dirs));
	mount_dirs_release(&c.dirs);
}

static void assert_told(struct case_ *c, const char *start, const char *path)
{
	assert_int_equal(mount_dirs_open(&c->o, &c->dirs, c->err, ERR_SIZE), -ENOENT);
	assert_non_null(strstr(c->err, start));
	assert_non_null(strstr(c->err, path));
	mount_dirs_release(&c->dirs);
}

static void test_mount_dirs__missing_one_is_told_in_a_sentence(void **state)
{
	struct case_ c;

	prepare(*state, &c);
	strcat(c.paths[1], "/none");
	assert_told(&c, "cannot open lowerdir ", c.paths[1]);
	prepare(*state, &c);
	strcat(c.paths[2], "/none");
	assert_told(&c, "cannot open upperdir ", c.paths[2]);
	prepare(*state, &c);
	strcat(c.paths[3], "/none");
	assert_told(&c, "cannot open workdir ", c.paths[3]);
}

static void test_mount_dirs__many_are_kept_in_order(void **state)
{
	struct mount_dirs dirs;
	int fds[100];

	(void)state;
	mount_dirs_init(&dirs);
	for (int i = 0; i < 100; i++) {
		fds[i] = open("/", O_PATH | O_CLOEXEC);
		assert_int_equal(mount_dirs_add_lower(&dirs, fds[i]), 0);
	}
	assert_int_equal(dirs.n_lower, 100);
	assert_memory_equal(dirs.lower, fds, sizeof(fds));
	mount_dirs_release(&dirs);
	assert_int_equal(fcntl(fds[99], F_GETFD), -1);
}

static void test_mount_dirs__clones_are_of_all_lower_directories_or_of_none(void **state)
{
	struct mount_dirs dirs;
	int ends[2];

	(void)state;
	mount_dirs_init(&dirs);
	assert_int_equal(mount_dirs_add_lower(&dirs, open("/", O_PATH | O_CLOEXEC)), 0);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(mount_dirs_add_lower(&dirs, ends[0]), 0);
	mount_dirs_clone(&dirs);
	assert_int_equal(dirs.n_clones, 0);
	assert_null(dirs.clones);
	close(ends[1]);
	mount_dirs_release(&dirs);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_mount_dirs__each_is_what_its_option_names),
		row(test_mount_dirs__work_directory_of_a_read_only_mount_need_not_exist),
		row(test_mount_dirs__missing_one_is_told_in_a_sentence),
		row(test_mount_dirs__many_are_kept_in_order),
		row(test_mount_dirs__clones_are_of_all_lower_directories_or_of_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
