// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/base/cleanup.h"
#include "veneer/mount/workdir.h"

#include <dirent.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>

struct work {
	struct workdir at;
	char err[512];
};

static int open_work(struct tree_dirs *d, struct work *w)
{
	char path[PATH_MAX + 64];

	*w = (struct work){ .at = WORKDIR_NONE };
	snprintf(path, sizeof(path), "%s/work", d->s.path);
	_cleanup_(closep) int top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return workdir_open(top, path, &w->at, w->err, sizeof(w->err));
}

static void test_workdir__each_mount_has_its_own_and_takes_it_along(void **state)
{
	struct tree_dirs *d = *state;
	struct work a, b;
	char *name;

	assert_int_equal(open_work(d, &a), 0);
	assert_int_equal(open_work(d, &b), 0);
	assert_string_not_equal(a.at.name, b.at.name);
	/* The second has not taken the first for dead. */
	assert_int_equal(faccessat(a.at.parent, a.at.name, F_OK, 0), 0);
	assert_int_equal(mkdirat(a.at.fd, "left", 0700), 0);
	name = strdup(a.at.name);
	workdir_close(&a.at);
	assert_int_equal(faccessat(b.at.parent, name, F_OK, 0), -1);
	assert_int_equal(faccessat(b.at.parent, b.at.name, F_OK, 0), 0);
	workdir_close(&b.at);
	free(name);
}

static void test_workdir__handle_leads_to_the_directory_and_to_no_other(void **state)
{
	struct tree_dirs *d = *state;
	char handle[WORKDIR_HANDLE_SIZE], path[PATH_MAX + 64], other[WORKDIR_HANDLE_SIZE + 8];
	struct stat st, found;
	struct work w;
	int fd, n;

	assert_int_equal(open_work(d, &w), 0);
	snprintf(path, sizeof(path), "%s/work", d->s.path);
	n = workdir_handle(path, &w.at, handle);
	assert_int_equal(n, strlen(handle));
	fd = workdir_open_handle(handle);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &found), 0);
	assert_int_equal(fstat(w.at.fd, &st), 0);
	assert_int_equal(found.st_ino, st.st_ino);
	close(fd);
	/* Another number, another name, no path. */
	snprintf(other, sizeof(other), "1:%s", handle);
	assert_int_equal(workdir_open_handle(other), -ESTALE);
	assert_int_equal(workdir_open_handle("1:2:3 /etc/passwd"), -ESTALE);
	assert_int_equal(workdir_open_handle("1:2:3 veneer-1"), -ESTALE);
	assert_int_equal(workdir_open_handle("1:2:3 "), -ESTALE);
	assert_int_equal(workdir_open_handle(""), -ESTALE);
	workdir_close(&w.at);
	assert_int_equal(workdir_open_handle(handle), -ENOENT);
}

static void test_workdir__what_dead_mounts_left_is_removed(void **state)
{
	struct tree_dirs *d = *state;
	struct work w;

	tree_put_text(d, "work/work/veneer-dead/deep/er/file", "x");
	tree_put_text(d, "work/work/others/file", "x");
	assert_int_equal(open_work(d, &w), 0);
	assert_false(tree_is_there(d, "work/work/veneer-dead"));
	assert_true(tree_is_there(d, "work/work/others/file"));
	workdir_close(&w.at);
}

/* In a mount namespace of a child's own. 0, 1 where that is not allowed, or what failed. */
static int open_on_full_disk(const char *path)
{
	struct work w = { .at = WORKDIR_NONE };
	char file[32];
	int top;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("scratch", path, "tmpfs", 0, "nr_inodes=20") < 0)
		return 1;
	top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* The set-group-id bit is handed down. */
	if (mkdirat(top, "work", 0700) < 0 || fchmodat(top, "work", 02700, 0) < 0 ||
	    mkdirat(top, "work/veneer-dead", 0700) < 0 ||
	    mkdirat(top, "work/veneer-dead/deep", 0700) < 0)
		return 2;
	for (int k = 0; snprintf(file, sizeof(file), "file%d", k) &&
			mknodat(top, file, S_IFREG | 0600, 0) == 0;
	     k++)
		;
	if (errno != ENOSPC)
		return 3;
	if (workdir_open(top, path, &w.at, w.err, sizeof(w.err)) < 0)
		return 4;
	if (strcmp(w.at.name, "veneer-dead") || faccessat(w.at.fd, "deep", F_OK, 0) == 0)
		return 5;
	return mkdirat(w.at.fd, "own", 0700) < 0 ? 6 : 0;
}

static void test_workdir__where_there_is_no_room_a_dead_mounts_is_taken_over(void **state)
{
	struct tree_dirs *d = *state;
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(open_on_full_disk(d->s.path));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 1) {
		print_message("no mount namespaces here\n");
		skip();
	}
	assert_int_equal(status, 0);
}

static void test_workdir__what_cannot_be_used_is_told_in_a_sentence(void **state)
{
	struct tree_dirs *d = *state;
	struct work w;

	tree_put_text(d, "work/work", "in the way");
	assert_int_equal(open_work(d, &w), -ENOTDIR);
	assert_non_null(strstr(w.err, "/work"));
}

static void test_workdir__link_in_its_place_is_not_followed(void **state)
{
	struct tree_dirs *d = *state;
	struct work w;

	tree_put_dir(d, "elsewhere");
	assert_int_equal(symlinkat("../elsewhere", d->s.fd, "work/work"), 0);
	assert_true(open_work(d, &w) < 0);
}

static void test_workdir__one_that_goes_on_is_locked_all_the_time(void **state)
{
	struct tree_dirs *d = *state;
	struct workdir now = WORKDIR_NONE;
	struct work w, other;
	int fd;

	assert_int_equal(open_work(d, &w), 0);
	assert_int_equal(mkdirat(w.at.fd, "left", 0700), 0);
	fd = openat(w.at.parent, w.at.name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(workdir_adopt(&w.at, &now));
	assert_int_equal(w.at.fd, -1);
	assert_int_equal(faccessat(now.fd, "left", F_OK, 0), -1);
	assert_int_equal(flock(fd, LOCK_SH | LOCK_NB), -1);
	close(fd);
	/* Another mount does not take it for dead, and nobody goes on in what was removed. */
	assert_int_equal(open_work(d, &other), 0);
	assert_int_equal(faccessat(now.parent, now.name, F_OK, 0), 0);
	assert_int_equal(unlinkat(now.parent, now.name, AT_REMOVEDIR), 0);
	assert_false(workdir_adopt(&now, &w.at));
	assert_int_equal(now.fd, -1);
	assert_false(workdir_adopt(&now, &w.at));
	workdir_close(&other.at);
}

static void test_workdir__close_ignores_what_was_never_opened(void **state)
{
	(void)state;
	workdir_close(&WORKDIR_NONE);
}

static void put_boot(struct tree_dirs *d, const char *boot)
{
	tree_put_text(d, "work/work/incompat/volatile/boot_id", boot);
}

static int check(struct tree_dirs *d, struct work *w, bool is_volatile)
{
	(void)d;
	return workdir_check_volatile(w->at.parent, "/the/work", is_volatile, w->err,
				      sizeof(w->err));
}

static void test_workdir__volatile_mark_of_this_boot_may_go_on(void **state)
{
	struct tree_dirs *d = *state;
	struct work w;

	assert_int_equal(open_work(d, &w), 0);
	assert_int_equal(check(d, &w, false), 0);
	assert_false(tree_is_there(d, "work/work/incompat"));
	assert_int_equal(check(d, &w, true), 0);
	assert_true(tree_is_there(d, "work/work/incompat/volatile"));
	assert_int_equal(check(d, &w, true), 0);
	assert_int_equal(check(d, &w, false), 0);
	workdir_close(&w.at);
}

/* A server that is killed while it takes a mount over must not leave a mark without a boot. */
static void test_workdir__volatile_mark_is_made_whole_and_once(void **state)
{
	static const struct timespec past[2];
	static const char at[] = "work/work/incompat/volatile/boot_id";
	struct tree_dirs *d = *state;
	struct stat st;
	struct work w;

	tree_put_text(d, "work/work/incompat/volatile.new/boot_id", "");
	assert_int_equal(open_work(d, &w), 0);
	assert_int_equal(check(d, &w, true), 0);
	assert_false(tree_is_there(d, "work/work/incompat/volatile.new"));
	assert_int_equal(utimensat(d->s.fd, at, past, 0), 0);
	assert_int_equal(check(d, &w, true), 0);
	assert_int_equal(fstatat(d->s.fd, at, &st, 0), 0);
	assert_int_equal(st.st_mtim.tv_sec, 0);
	workdir_close(&w.at);
}

static void test_workdir__volatile_mark_of_another_boot_is_refused(void **state)
{
	struct tree_dirs *d = *state;
	struct work w;

	assert_int_equal(open_work(d, &w), 0);
	put_boot(d, "01234567-89ab-cdef-0123-456789abcdef");
	assert_int_equal(check(d, &w, false), -EINVAL);
	assert_int_equal(check(d, &w, true), -EINVAL);
	assert_non_null(strstr(w.err, "/the/work/work/incompat/volatile"));
	workdir_close(&w.at);
}

static void test_workdir__volatile_mark_that_overlayfs_left_is_refused(void **state)
{
	struct tree_dirs *d = *state;
	struct work w;

	tree_put_dir(d, "work/work/incompat/volatile");
	assert_int_equal(open_work(d, &w), 0);
	assert_int_equal(check(d, &w, true), -EINVAL);
	workdir_close(&w.at);
}

static void test_workdir__volatile_mark_goes_at_the_end_of_the_last_mount(void **state)
{
	struct tree_dirs *d = *state;
	struct work a, b;

	assert_int_equal(open_work(d, &a), 0);
	assert_false(workdir_is_volatile(a.at.parent));
	assert_int_equal(check(d, &a, true), 0);
	assert_true(workdir_is_volatile(a.at.parent));
	assert_int_equal(open_work(d, &b), 0);
	workdir_end_volatile(&a.at);
	assert_true(workdir_is_volatile(a.at.parent));
	workdir_close(&a.at);
	workdir_end_volatile(&b.at);
	assert_false(workdir_is_volatile(b.at.parent));
	assert_false(tree_is_there(d, "work/work/incompat"));
	/* The name of another boot is not accepted. */
	put_boot(d, "another");
	assert_false(workdir_is_volatile(b.at.parent));
	workdir_close(&b.at);
}

static void test_workdir__mount_takes_what_is_unfinished_along(void **state)
{
	struct tree_dirs *d = *state;
	struct dirent *de;
	unsigned n = 0;
	DIR *dir;

	tree_mount(d, "volatile");
	assert_int_equal(mkdirat(d->t->workfd, "half", 0700), 0);
	tree_unmount(d);
	dir = fdopendir(openat(d->s.fd, "work/work", O_RDONLY | O_DIRECTORY));
	while ((de = readdir(dir)))
		n += !strncmp(de->d_name, "veneer-", 7);
	closedir(dir);
	assert_int_equal(n, 0);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_workdir__each_mount_has_its_own_and_takes_it_along),
		row(test_workdir__handle_leads_to_the_directory_and_to_no_other),
		row(test_workdir__what_dead_mounts_left_is_removed),
		row(test_workdir__where_there_is_no_room_a_dead_mounts_is_taken_over),
		row(test_workdir__what_cannot_be_used_is_told_in_a_sentence),
		row(test_workdir__link_in_its_place_is_not_followed),
		row(test_workdir__one_that_goes_on_is_locked_all_the_time),
		row(test_workdir__close_ignores_what_was_never_opened),
		row(test_workdir__volatile_mark_of_this_boot_may_go_on),
		row(test_workdir__volatile_mark_is_made_whole_and_once),
		row(test_workdir__volatile_mark_of_another_boot_is_refused),
		row(test_workdir__volatile_mark_that_overlayfs_left_is_refused),
		row(test_workdir__volatile_mark_goes_at_the_end_of_the_last_mount),
		row(test_workdir__mount_takes_what_is_unfinished_along),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
