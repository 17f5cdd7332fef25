// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/probe.h"

#include "support/scratch.h"

#include <dirent.h>
#include <linux/magic.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include <cmocka.h>

static struct scratch dir;

static int setup(void **state)
{
	(void)state;
	return scratch_enter(&dir);
}

static int teardown(void **state)
{
	(void)state;
	scratch_leave(&dir);
	return 0;
}

static int count_names(void)
{
	DIR *d = opendir(dir.path);
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static void test_probe__answers_what_the_directory_can_do(void **state)
{
	int fd = openat(dir.fd, "own", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	struct probe_dir p;

	(void)state;
	assert_int_equal(probe_work_dir(dir.fd, &p), 0);
	assert_false(p.is_readonly);
	assert_int_equal(p.has_user_xattr, !fsetxattr(fd, "user.x", "y", 1, 0));
	assert_int_equal(p.has_trusted_xattr, !fsetxattr(fd, "trusted.x", "y", 1, 0));
	assert_int_equal(p.has_whiteout, !mknodat(dir.fd, "wh", S_IFCHR, 0));
	assert_true(p.has_reserved_names);
	assert_true(p.has_noatime);
	assert_int_equal(p.has_rename_whiteout,
			 !renameat2(dir.fd, "own", dir.fd, "other", RENAME_WHITEOUT));
	print_message("user %d trusted %d tmpfile %d whiteout %d rename %d acl %d extents %d\n",
		      p.has_user_xattr, p.has_trusted_xattr, p.has_tmpfile, p.has_whiteout,
		      p.has_rename_whiteout, p.has_acl, p.has_true_extents);
	unlinkat(dir.fd, "own", 0);
	unlinkat(dir.fd, "other", 0);
	unlinkat(dir.fd, "wh", 0);
	close(fd);
}

static void test_probe__leaves_nothing_behind(void **state)
{
	struct probe_dir p;

	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(probe_work_dir(dir.fd, &p), 0);
		assert_int_equal(count_names(), 0);
	}
}

static void test_probe__takes_an_o_path_directory(void **state)
{
	int fd = open(dir.path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct probe_dir with_path, p;

	(void)state;
	memset(&with_path, 0, sizeof(with_path));
	memset(&p, 0, sizeof(p));
	assert_int_equal(probe_work_dir(fd, &with_path), 0);
	assert_int_equal(probe_work_dir(dir.fd, &p), 0);
	assert_memory_equal(&with_path, &p, sizeof(p));
	close(fd);
}

/* No file system outside of the three that were measured is believed. */
static void test_probe__tmpfs_has_no_true_extents(void **state)
{
	int fd = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct probe_dir p;
	struct statfs fs;

	(void)state;
	if (fd < 0 || fstatfs(fd, &fs) < 0 || fs.f_type != TMPFS_MAGIC ||
	    probe_work_dir(fd, &p) < 0) {
		print_message("no tmpfs on /dev/shm\n");
		skip();
	}
	assert_false(p.has_true_extents);
	close(fd);
}

static void test_probe__failure_other_than_readonly_is_an_error(void **state)
{
	int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct probe_dir p = { .has_acl = true };

	(void)state;
	assert_int_equal(probe_work_dir(-1, &p), -EBADF);
	if (fd >= 0)
		assert_true(probe_work_dir(fd, &p) < 0);
	assert_true(p.has_acl);
	close(fd);
}

/* In a mount namespace of a child's own. 0, 1 where that is not allowed, or what failed. */
static int probe_readonly(void)
{
	struct probe_dir p;
	int fd;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("scratch", dir.path, "tmpfs", 0, NULL) < 0 ||
	    mount(NULL, dir.path, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) < 0)
		return 1;
	fd = open(dir.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (probe_work_dir(fd, &p) != 0)
		return 2;
	return p.is_readonly && !p.has_user_xattr && !p.has_tmpfile && !p.has_whiteout ? 0 : 3;
}

static void test_probe__readonly_file_system_is_an_answer(void **state)
{
	int status;
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		_exit(probe_readonly());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 1) {
		print_message("no user and mount namespaces here\n");
		skip();
	}
	assert_int_equal(status, 0);
}

static bool can_the_same(const struct probe_dir *a, const struct probe_dir *b)
{
	return a->has_user_xattr == b->has_user_xattr &&
	       a->has_trusted_xattr == b->has_trusted_xattr && a->has_acl == b->has_acl &&
	       a->has_tmpfile == b->has_tmpfile && a->has_whiteout == b->has_whiteout;
}

/* As probe_readonly. */
static int probe_full(void)
{
	struct probe_dir empty, p;
	char name[32];
	int fd;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("scratch", dir.path, "tmpfs", 0, "nr_inodes=20") < 0)
		return 1;
	fd = open(dir.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (probe_work_dir(fd, &empty) != 0)
		return 2;
	for (int k = 0;
	     snprintf(name, sizeof(name), "file%d", k) && mknodat(fd, name, S_IFREG | 0600, 0) == 0;
	     k++)
		;
	/* No room for a file, and then room for one alone. */
	for (int k = 0; k < 2; k++) {
		if (probe_work_dir(fd, &p) != 0 || p.is_readonly)
			return 3;
		if (!can_the_same(&p, &empty))
			return 4;
		unlinkat(fd, "file0", 0);
	}
	return p.has_rename_whiteout == empty.has_rename_whiteout ? 0 : 5;
}

static void test_probe__want_of_room_is_no_want_of_abilities(void **state)
{
	int status;
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		_exit(probe_full());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 1) {
		print_message("no mount namespaces here\n");
		skip();
	}
	assert_int_equal(status, 0);
}

static void test_probe__trusted_is_what_the_kernel_lets_be_written(void **state)
{
	char path[] = "/var/tmp/veneer-privilege-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(probe_is_trusted(), fsetxattr(fd, "trusted.veneer", "", 0, 0) == 0);
	close(fd);
}

/* Not even with all capabilities of one. */
static void test_probe__user_namespace_has_nothing_trusted(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(unshare(CLONE_NEWUSER) < 0 ? 77 : probe_is_trusted());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* Before this process has asked: what the child is told is then its own. */
		cmocka_unit_test(test_probe__user_namespace_has_nothing_trusted),
		cmocka_unit_test(test_probe__trusted_is_what_the_kernel_lets_be_written),
		cmocka_unit_test(test_probe__answers_what_the_directory_can_do),
		cmocka_unit_test(test_probe__leaves_nothing_behind),
		cmocka_unit_test(test_probe__takes_an_o_path_directory),
		cmocka_unit_test(test_probe__tmpfs_has_no_true_extents),
		cmocka_unit_test(test_probe__failure_other_than_readonly_is_an_error),
		cmocka_unit_test(test_probe__readonly_file_system_is_an_answer),
		cmocka_unit_test(test_probe__want_of_room_is_no_want_of_abilities),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
