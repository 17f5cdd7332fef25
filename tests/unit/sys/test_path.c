// SPDX-License-Identifier: Apache-2.0
/* Every behaviour is tried twice: as this kernel has it, and again with openat2 refused. */
#include "veneer/sys/path.h"

#include "support/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cmocka.h>

static struct scratch dir;
static int rootfd = -1;
static bool is_again;

/* outside   root/a/b/file   root/link -> a   root/up -> ../outside   root/a/self -> b/file */
static int setup(void **state)
{
	(void)state;
	assert_int_equal(scratch_enter(&dir), 0);
	close(openat(dir.fd, "outside", O_CREAT | O_WRONLY, 0600));
	assert_int_equal(mkdirat(dir.fd, "root", 0755), 0);
	rootfd = openat(dir.fd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_true(rootfd >= 0);
	assert_int_equal(mkdirat(rootfd, "a", 0755), 0);
	assert_int_equal(mkdirat(rootfd, "a/b", 0755), 0);
	close(openat(rootfd, "a/b/file", O_CREAT | O_WRONLY, 0600));
	assert_int_equal(symlinkat("a", rootfd, "link"), 0);
	assert_int_equal(symlinkat("../outside", rootfd, "up"), 0);
	assert_int_equal(symlinkat("b/file", rootfd, "a/self"), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close(rootfd);
	scratch_leave(&dir);
	return 0;
}

/* The descriptor is closed; 0 or -errno is what matters. */
static int try(const char *path, int flags)
{
	int fd = path_open(rootfd, path, flags, 0600);

	if (fd < 0)
		return fd;
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
	return 0;
}

static ino_t ino_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_ino;
}

static void test_path__opens_what_is_beneath(void **state)
{
	(void)state;
	assert_int_equal(try("a/b/file", O_RDWR), 0);
	assert_int_equal(try("a/b", O_RDONLY | O_DIRECTORY), 0);
	assert_int_equal(try("a//b/./file", O_RDONLY), 0);
	assert_int_equal(try("a/b/", O_RDONLY), 0);
	assert_int_equal(try("a/b/file", O_PATH | O_NOATIME), 0);
	assert_int_equal(try("a/none", O_RDONLY), -ENOENT);
	assert_int_equal(try("none/file", O_RDONLY), -ENOENT);
	assert_int_equal(try("a/b/file/x", O_RDONLY), -ENOTDIR);
	assert_int_equal(try("a/b/file/", O_RDONLY), -ENOTDIR);
	assert_int_equal(try("a/b/file", O_RDONLY | O_DIRECTORY), -ENOTDIR);
}

static void test_path__empty_and_dot_are_the_root(void **state)
{
	int empty = path_open(rootfd, "", O_RDONLY | O_DIRECTORY, 0);
	int dot = path_open(rootfd, ".", O_PATH, 0);

	(void)state;
	assert_true(empty >= 0 && dot >= 0);
	assert_true(ino_of(empty) == ino_of(rootfd));
	assert_true(ino_of(dot) == ino_of(rootfd));
	close(empty);
	close(dot);
}

static void test_path__never_leaves_the_root(void **state)
{
	(void)state;
	assert_int_equal(try("..", O_PATH), -EXDEV);
	assert_int_equal(try("../outside", O_RDONLY), -EXDEV);
	assert_int_equal(try("a/../../outside", O_RDONLY), -EXDEV);
	assert_int_equal(try("a/..", O_PATH), -EXDEV);
	assert_int_equal(try("/", O_PATH), -EXDEV);
	assert_int_equal(try("/etc/passwd", O_RDONLY), -EXDEV);
	assert_int_equal(try("a/..b", O_RDONLY), -ENOENT);
}

static void test_path__follows_no_symlink(void **state)
{
	(void)state;
	assert_int_equal(try("link/b/file", O_RDONLY), -ELOOP);
	assert_int_equal(try("link/b", O_PATH | O_NOFOLLOW), -ELOOP);
	assert_int_equal(try("up", O_RDONLY), -ELOOP);
	assert_int_equal(try("a/self", O_RDONLY), -ELOOP);
	assert_int_equal(try("a/self", O_RDONLY | O_NOFOLLOW), -ELOOP);
	assert_int_equal(try("a/self", O_PATH), -ELOOP);
	assert_int_equal(try("link", O_RDONLY | O_DIRECTORY), -ELOOP);
	assert_int_equal(try("link", O_RDONLY | O_DIRECTORY | O_NOFOLLOW), -ENOTDIR);
	assert_int_equal(try("link/", O_PATH), -ELOOP);
}

static void test_path__last_symlink_opens_itself_as_o_path(void **state)
{
	int fd = path_open(rootfd, "up", O_PATH | O_NOFOLLOW, 0);
	char target[64];
	struct stat st;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(readlinkat(fd, "", target, sizeof(target)), strlen("../outside"));
	close(fd);
}

static void test_path__creates_with_the_given_mode(void **state)
{
	mode_t old = umask(0);
	int fd = path_open(rootfd, "a/new", O_CREAT | O_EXCL | O_RDWR, S_IFREG | 0641);
	struct stat st;

	(void)state;
	umask(old);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0641);
	close(fd);
	assert_int_equal(try("a/new", O_CREAT | O_EXCL | O_RDWR), -EEXIST);
	assert_int_equal(try("up", O_CREAT | O_WRONLY), -ELOOP);
	assert_int_equal(try("fresh/", O_CREAT | O_WRONLY), -EISDIR);
	assert_int_equal(unlinkat(rootfd, "a/new", 0), 0);
}

static void test_path__long_names_are_refused(void **state)
{
	char path[PATH_MAX + 2];

	(void)state;
	memset(path, 'n', sizeof(path));
	path[256] = '\0';
	assert_int_equal(try(path, O_RDONLY), -ENAMETOOLONG);
	for (size_t i = 0; i < sizeof(path) - 1; i++)
		path[i] = i % 2 ? '/' : 'a';
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(try(path, O_RDONLY), -ENAMETOOLONG);
}

/* An EPERM of the file itself must not be taken for a missing system call, nor the reverse. */
static void test_path__eperm_of_a_file_is_reported(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	if (getuid() != 0) {
		print_message("needs root to have a file of another user\n");
		skip();
	}
	assert_int_equal(fchmodat(dir.fd, ".", 0755, 0), 0);
	assert_int_equal(fchmodat(rootfd, "a/b/file", 0644, 0), 0);
	pid = fork();
	if (pid == 0) {
		if (setresuid(65534, 65534, 65534) < 0)
			_exit(1);
		if (path_open(rootfd, "a/b/file", O_RDONLY | O_NOATIME, 0) != -EPERM)
			_exit(2);
		_exit(path_open(rootfd, "a/b/file", O_RDONLY, 0) < 0 ? 3 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_path__reopens_o_path_and_unlinked_files(void **state)
{
	int fd = path_open(rootfd, "a/gone", O_CREAT | O_RDWR, 0600), again;
	char c;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "x", 1), 1);
	close(fd);
	fd = path_open(rootfd, "a/gone", O_PATH | O_NOFOLLOW, 0);
	assert_int_equal(unlinkat(rootfd, "a/gone", 0), 0);
	again = path_reopen(fd, O_RDWR | O_NOFOLLOW);
	assert_true(again >= 0);
	assert_true(ino_of(again) == ino_of(fd));
	assert_int_equal(read(again, &c, 1), 1);
	assert_int_equal(c, 'x');
	close(again);
	close(fd);

	again = path_reopen(rootfd, O_RDONLY | O_DIRECTORY);
	assert_true(again >= 0);
	close(again);
	fd = path_open(rootfd, "up", O_PATH | O_NOFOLLOW, 0);
	assert_int_equal(path_reopen(fd, O_RDONLY), -ELOOP);
	close(fd);
	assert_int_equal(path_reopen(fd, O_RDONLY), -ENOENT);
}

static void test_path__above_is_within_one_mount(void **state)
{
	int b = openat(rootfd, "a/b", O_PATH | O_DIRECTORY | O_CLOEXEC),
	    proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int above = path_open_above(b);
	struct stat st, want;

	(void)state;
	assert_true(b >= 0 && proc >= 0 && above >= 0);
	assert_int_equal(fstat(above, &st) | fstatat(rootfd, "a", &want, 0), 0);
	assert_int_equal(st.st_ino, want.st_ino);
	close(above);
	above = path_open_above(proc);
	if (is_again)
		assert_true(above >= 0 && close(above) == 0);
	else
		assert_int_equal(above, -EXDEV);
	close(proc);
	close(b);
}

static bool is_plain(const char *path)
{
	return path_is_plain(path, strlen(path));
}

static void test_path__plain_paths(void **state)
{
	char longest[PATH_MAX + 1];

	(void)state;
	assert_true(is_plain("a"));
	assert_true(is_plain("a/b/c"));
	assert_true(is_plain("..a/.b/c..d/..."));
	assert_false(is_plain(""));
	assert_false(is_plain("/"));
	assert_false(is_plain("/a"));
	assert_false(is_plain("a/"));
	assert_false(is_plain("a//b"));
	assert_false(is_plain("."));
	assert_false(is_plain(".."));
	assert_false(is_plain("a/./b"));
	assert_false(is_plain("a/b/.."));
	assert_false(is_plain("../a"));
	assert_false(path_is_plain("a\0b", 3));

	memset(longest, 'n', sizeof(longest));
	assert_true(path_is_plain(longest, 255));
	assert_false(path_is_plain(longest, 256));
	for (size_t i = 1; i < sizeof(longest); i += 2)
		longest[i] = '/';
	assert_true(path_is_plain(longest, 4095));
	assert_false(path_is_plain(longest, 4097));
	/* Not one byte beyond the given length is looked at. */
	assert_true(path_is_plain("ab/", 2));
}

static void test_path__same_without_openat2(void **state)
{
	(void)state;
	if (is_again)
		return;
	assert_int_equal(scratch_run_self("ENOSYS"), 0);
	assert_int_equal(scratch_run_self("EPERM"), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_path__opens_what_is_beneath),
		cmocka_unit_test(test_path__empty_and_dot_are_the_root),
		cmocka_unit_test(test_path__never_leaves_the_root),
		cmocka_unit_test(test_path__above_is_within_one_mount),
		cmocka_unit_test(test_path__follows_no_symlink),
		cmocka_unit_test(test_path__last_symlink_opens_itself_as_o_path),
		cmocka_unit_test(test_path__creates_with_the_given_mode),
		cmocka_unit_test(test_path__long_names_are_refused),
		cmocka_unit_test(test_path__eperm_of_a_file_is_reported),
		cmocka_unit_test(test_path__reopens_o_path_and_unlinked_files),
		cmocka_unit_test(test_path__plain_paths),
		cmocka_unit_test(test_path__same_without_openat2),
	};

	is_again = argc > 1;
	if (is_again && scratch_deny(SYS_openat2, strcmp(argv[1], "EPERM") ? ENOSYS : EPERM) < 0)
		return 77;
	return cmocka_run_group_tests(tests, setup, teardown);
}
