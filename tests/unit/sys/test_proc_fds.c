// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"
#include "support/wait.h"

#include "veneer/sys/mountinfo.h"
#include "veneer/sys/proc_fds.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

/* A file system with a file in /a and in /b, under "whole", and both directories once more, under
 * "a" and "b". */
struct fixture {
	struct scratch s;
	struct stat st; /* of a/f, which b/f is too */
};

static void path_of(struct fixture *f, char path[PATH_MAX + 32], const char *name)
{
	snprintf(path, PATH_MAX + 32, "%s/%s", f->s.path, name);
}

static void bind(struct fixture *f, const char *from, const char *to)
{
	char source[PATH_MAX + 32], target[PATH_MAX + 32];

	path_of(f, source, from);
	path_of(f, target, to);
	assert_int_equal(mount(source, target, NULL, MS_BIND, NULL), 0);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	if (!f || scratch_enter(&f->s) < 0 || mkdirat(f->s.fd, "whole", 0755) < 0 ||
	    mkdirat(f->s.fd, "a", 0755) < 0 || mkdirat(f->s.fd, "b", 0755) < 0)
		return -1;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	scratch_leave(&f->s);
	free(f);
	return 0;
}

static void need_mounts(struct fixture *f)
{
	char path[PATH_MAX + 32];

	path_of(f, path, "whole");
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("none", path, "tmpfs", 0, NULL) < 0) {
		print_message("not allowed to mount\n");
		skip();
	}
	path_of(f, path, "whole/a");
	assert_int_equal(mkdir(path, 0755), 0);
	path_of(f, path, "whole/b");
	assert_int_equal(mkdir(path, 0755), 0);
	path_of(f, path, "whole/a/f");
	assert_int_equal(mknod(path, S_IFREG | 0644, 0), 0);
	assert_int_equal(stat(path, &f->st), 0);
	bind(f, "whole/a", "a");
	bind(f, "whole/a", "b");
}

static int open_at(struct fixture *f, const char *name, int flags)
{
	char path[PATH_MAX + 32];
	int fd;

	path_of(f, path, name);
	fd = open(path, flags | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void leave(struct fixture *f)
{
	static const char *const points[] = { "b", "a", "whole" };
	char path[PATH_MAX + 32];

	for (int i = 0; i < 3; i++) {
		path_of(f, path, points[i]);
		umount2(path, MNT_DETACH);
	}
}

struct roots {
	unsigned whole, a, other;
};

static void note(const char *root, void *arg)
{
	struct roots *r = arg;

	r->whole += !strcmp(root, "/");
	r->a += !strcmp(root, "/a");
	r->other += strcmp(root, "/") && strcmp(root, "/a");
}

static int ask(struct fixture *f, pid_t pid, struct roots *ret)
{
	*ret = (struct roots){ 0 };
	return proc_fds_roots(pid, major(f->st.st_dev), minor(f->st.st_dev), f->st.st_ino, note,
			      ret);
}

static void test_proc_fds__what_is_open_says_by_which_mount(void **state)
{
	struct fixture *f = *state;
	int one, two, path, other;
	struct roots r;

	need_mounts(f);
	assert_int_equal(ask(f, getpid(), &r), 0);
	assert_int_equal(r.whole + r.a + r.other, 0);
	one = open_at(f, "a/f", O_RDONLY);
	path = open_at(f, "whole/a/f", O_PATH);
	other = open_at(f, "whole/b", O_RDONLY);
	assert_int_equal(ask(f, getpid(), &r), 0);
	assert_true(r.a == 1 && r.whole == 0 && r.other == 0);
	two = open_at(f, "whole/a/f", O_RDONLY);
	assert_int_equal(ask(f, getpid(), &r), 0);
	assert_true(r.a == 1 && r.whole == 1 && r.other == 0);
	close(one);
	close(two);
	close(path);
	close(other);
	leave(f);
}

static void test_proc_fds__mount_that_is_nowhere_is_doubt(void **state)
{
	struct fixture *f = *state;
	char path[PATH_MAX + 32];
	struct roots r;
	int fd;

	need_mounts(f);
	fd = open_at(f, "a/f", O_RDONLY);
	path_of(f, path, "a");
	assert_int_equal(umount2(path, MNT_DETACH), 0);
	assert_int_equal(ask(f, getpid(), &r), -ENOENT);
	close(fd);
	leave(f);
}

static bool is_waiting(pid_t pid, const char *where)
{
	char path[48], text[64] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/wchan", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, text, sizeof(text) - 1) < 0)
		*text = '\0';
	close(fd);
	return strstr(text, where) != NULL;
}

/* Both mounts have it open there, and one of them is what it waits with. */
static void test_proc_fds__who_waits_for_a_lock_is_asked_what_for(void **state)
{
	struct fixture *f = *state;
	struct roots r;
	pid_t pid;
	int held;

	need_mounts(f);
	held = open_at(f, "a/f", O_RDONLY);
	assert_int_equal(flock(held, LOCK_EX), 0);
	pid = fork();
	if (pid == 0) {
		int one = open_at(f, "a/f", O_RDONLY), two = open_at(f, "whole/a/f", O_RDONLY);

		(void)!flock(two, LOCK_EX);
		close(one);
		_exit(0);
	}
	wait_until(wait_is_at_rest(pid));
	if (!is_waiting(pid, "lock")) {
		print_message("what a process waits for is not shown\n");
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		skip();
	}
	assert_int_equal(ask(f, pid, &r), 0);
	assert_true(r.whole == 1 && r.a == 0 && r.other == 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(held);
	leave(f);
}

/* Holds the lock of its epoll until it dies: that is to write to a page which nobody brings. */
static void hold_epoll(struct fixture *f)
{
	const size_t size = (size_t)sysconf(_SC_PAGESIZE);
	void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register what = { .range = { (uintptr_t)page, size },
					.mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_api api = { .api = UFFD_API };
	struct epoll_event event = { .events = EPOLLOUT };
	int faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC), epoll = epoll_create1(0), ends[2];

	alarm(20);
	open_at(f, "a/f", O_RDONLY);
	if (page != MAP_FAILED && faults >= 0 && ioctl(faults, UFFDIO_API, &api) == 0 &&
	    ioctl(faults, UFFDIO_REGISTER, &what) == 0 && pipe(ends) == 0 &&
	    epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], &event) == 0)
		epoll_wait(epoll, page, 1, -1);
	_exit(0);
}

/* The caller would wait for it and could not be killed; and the caller may hold up the answer
 * itself. */
static void test_proc_fds__a_lock_that_the_process_holds_is_not_waited_for(void **state)
{
	struct fixture *f = *state;
	struct roots r;
	pid_t pid;

	need_mounts(f);
	pid = fork();
	if (pid == 0)
		hold_epoll(f);
	for (int i = 0;
	     i < 5000 && !is_waiting(pid, "userfault") && waitpid(pid, NULL, WNOHANG) == 0; i++)
		usleep(1000);
	if (!is_waiting(pid, "userfault")) {
		print_message("not allowed to hold up a fault, or what a process waits for is not "
			      "shown\n");
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		skip();
	}
	assert_int_equal(ask(f, pid, &r), 0);
	assert_true(r.a == 1 && r.whole == 0 && r.other == 0);
	assert_true(is_waiting(pid, "userfault"));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	leave(f);
}

/* Two file systems number their files alike. */
static void test_proc_fds__a_file_of_another_file_system_is_not_meant(void **state)
{
	struct fixture *f = *state;
	char path[PATH_MAX + 32];
	struct roots r;
	struct stat st;
	int fd;

	need_mounts(f);
	path_of(f, path, "b");
	assert_int_equal(mount("none", path, "tmpfs", 0, NULL), 0);
	/* As many before it as in the other one. */
	for (int i = 0; i < 100; i++) {
		snprintf(path + strlen(f->s.path), sizeof(path) - strlen(f->s.path), "/b/%d", i);
		assert_int_equal(mknod(path, S_IFREG | 0644, 0), 0);
		assert_int_equal(stat(path, &st), 0);
		if (st.st_ino == f->st.st_ino)
			break;
	}
	if (st.st_ino == f->st.st_ino) {
		fd = open(path, O_RDONLY | O_CLOEXEC);
		assert_true(fd >= 0);
		assert_int_equal(ask(f, getpid(), &r), 0);
		assert_int_equal(r.whole + r.a + r.other, 0);
		close(fd);
	}
	path_of(f, path, "b");
	umount2(path, MNT_DETACH);
	leave(f);
}

static void test_proc_fds__process_that_is_not_there(void **state)
{
	struct fixture *f = *state;
	struct roots r;

	assert_int_equal(ask(f, 0, &r), -ESRCH);
	assert_true(ask(f, 0x3fffffff, &r) < 0);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_proc_fds__process_that_is_not_there),
		row(test_proc_fds__what_is_open_says_by_which_mount),
		row(test_proc_fds__mount_that_is_nowhere_is_doubt),
		row(test_proc_fds__who_waits_for_a_lock_is_asked_what_for),
		row(test_proc_fds__a_lock_that_the_process_holds_is_not_waited_for),
		row(test_proc_fds__a_file_of_another_file_system_is_not_meant),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
