// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/sys/mountinfo.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* In a mount namespace of its own, or not at all. */
static int setup(void **state)
{
	struct scratch *s = calloc(1, sizeof(*s));

	if (!s || scratch_enter(s) < 0 || mkdirat(s->fd, "a b", 0755) < 0 ||
	    mkdirat(s->fd, "a b/sub", 0755) < 0 || mkdirat(s->fd, "a", 0755) < 0)
		return -1;
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct scratch *s = *state;

	scratch_leave(s);
	free(s);
	return 0;
}

static bool is_plain(struct scratch *s, const char *name)
{
	char path[PATH_MAX + 16];
	bool ret = true;
	int fd;

	/* By its path: what was opened before belongs to the mounts of that time. */
	snprintf(path, sizeof(path), "%s/%s", s->path, name);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	mountinfo_plain(0, &fd, 1, &ret);
	close(fd);
	return ret;
}

static void test_mountinfo__ordinary_directory_is_plain(void **state)
{
	assert_true(is_plain(*state, "a b"));
	assert_true(is_plain(*state, "."));
}

static void need_mounts(struct scratch *s)
{
	char path[PATH_MAX + 16];

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		print_message("not allowed to mount\n");
		skip();
	}
	snprintf(path, sizeof(path), "%s/a b/sub", s->path);
	assert_int_equal(mount(s->path, path, NULL, MS_BIND, NULL), 0);
}

static void test_mountinfo__mount_inside_a_directory_is_seen(void **state)
{
	struct scratch *s = *state;
	char path[PATH_MAX + 16];

	need_mounts(s);
	assert_false(is_plain(s, "a b"));
	assert_false(is_plain(s, "."));
	/* The other name begins with this one. */
	assert_true(is_plain(s, "a"));
	snprintf(path, sizeof(path), "%s/a b/sub", s->path);
	assert_int_equal(umount2(path, MNT_DETACH), 0);
	assert_true(is_plain(s, "a b"));
}

static void test_mountinfo__mount_has_a_root_and_a_point(void **state)
{
	struct scratch *s = *state;
	struct mountinfo_mount m[2] = { { .id = 0 }, { .id = UINT64_MAX } };
	char path[PATH_MAX + 16];
	struct statx st;

	need_mounts(s);
	snprintf(path, sizeof(path), "%s/a b/sub", s->path);
	if (statx(AT_FDCWD, path, 0, STATX_MNT_ID | STATX_INO, &st) < 0 ||
	    !(st.stx_mask & STATX_MNT_ID))
		skip();
	m[0].id = st.stx_mnt_id;
	assert_int_equal(mountinfo_find(m, 2), 0);
	assert_string_equal(m[0].point, path);
	/* A bind mount of the scratch directory: its name ends what the root is called. */
	assert_non_null(strstr(m[0].root, strrchr(s->path, '/')));
	assert_null(m[1].root);
	free(m[0].root);
	free(m[0].point);
	assert_int_equal(umount2(path, MNT_DETACH), 0);
}

static void test_mountinfo__what_another_namespace_has_is_not_plain(void **state)
{
	struct scratch *s = *state;
	char path[PATH_MAX + 16];
	bool ret = true;
	int fd;

	need_mounts(s);
	snprintf(path, sizeof(path), "%s/a b/sub", s->path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(umount2(path, MNT_DETACH), 0);
	mountinfo_plain(0, &fd, 1, &ret);
	assert_false(ret);
	close(fd);
}

static void test_mountinfo__process_with_another_root_tells_nothing(void **state)
{
	struct scratch *s = *state;
	int go[2], fd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool ret = false;
	pid_t pid;
	char c;

	assert_int_equal(mountinfo_plain(getpid(), &fd, 1, &ret), 0);
	assert_true(ret);
	if (geteuid()) {
		print_message("only root can change it\n");
		skip();
	}
	assert_int_equal(pipe(go), 0);
	pid = fork();
	if (pid == 0) {
		(void)!write(go[1], chroot(s->path) == 0 ? "y" : "n", 1);
		pause();
		_exit(0);
	}
	assert_int_equal(read(go[0], &c, 1), 1);
	assert_int_equal(c, 'y');
	assert_true(mountinfo_plain(pid, &fd, 1, &ret) < 0);
	assert_false(ret);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(fd);
	close(go[0]);
	close(go[1]);
}

struct roots {
	unsigned whole, part, other;
};

static void note_root(const char *root, void *arg)
{
	struct roots *r = arg;

	r->whole += !strcmp(root, "/");
	r->part += !strcmp(root, "/part");
	r->other += strcmp(root, "/") && strcmp(root, "/part");
}

static void test_mountinfo__roots_of_a_file_system_are_found_where_they_are(void **state)
{
	struct scratch *s = *state;
	char whole[PATH_MAX + 16], part[PATH_MAX + 16], sub[PATH_MAX + 16];
	struct roots all = { 0 }, own = { 0 }, none = { 0 };
	pid_t pid = 0;
	struct stat st;
	ino_t ns;
	int fd;

	need_mounts(s);
	snprintf(whole, sizeof(whole), "%s/a", s->path);
	snprintf(part, sizeof(part), "%s/a/part", s->path);
	snprintf(sub, sizeof(sub), "%s/a b", s->path);
	assert_int_equal(mount("none", whole, "tmpfs", 0, NULL), 0);
	assert_int_equal(mkdir(part, 0755), 0);
	assert_int_equal(mount(part, sub, NULL, MS_BIND, NULL), 0);
	assert_int_equal(stat(whole, &st), 0);
	/* Keeps the device's number from the next file system that somebody mounts. */
	fd = open(whole, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	ns = mountinfo_namespace(getpid());

	assert_int_equal(
		mountinfo_roots(ns, &pid, major(st.st_dev), minor(st.st_dev), note_root, &own), 0);
	assert_int_equal(pid, getpid());
	assert_true(own.whole == 1 && own.part == 1 && own.other == 0);
	assert_int_equal(
		mountinfo_roots(0, NULL, major(st.st_dev), minor(st.st_dev), note_root, &all), 0);
	assert_true(all.whole == 1 && all.part == 1 && all.other == 0);
	assert_int_equal(umount2(whole, MNT_DETACH), 0);
	assert_int_equal(umount2(sub, MNT_DETACH), 0);
	assert_int_equal(
		mountinfo_roots(ns, &pid, major(st.st_dev), minor(st.st_dev), note_root, &none), 0);
	assert_int_equal(
		mountinfo_roots(0, NULL, major(st.st_dev), minor(st.st_dev), note_root, &none), 0);
	assert_true(none.whole + none.part + none.other == 0);
	close(fd);
	assert_int_equal(
		mountinfo_roots(1, &pid, major(st.st_dev), minor(st.st_dev), note_root, &none),
		-ESRCH);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_mountinfo__ordinary_directory_is_plain),
		row(test_mountinfo__process_with_another_root_tells_nothing),
		row(test_mountinfo__mount_inside_a_directory_is_seen),
		row(test_mountinfo__mount_has_a_root_and_a_point),
		row(test_mountinfo__what_another_namespace_has_is_not_plain),
		row(test_mountinfo__roots_of_a_file_system_are_found_where_they_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
