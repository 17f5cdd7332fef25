// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/dir_walk.h"

#include "support/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/resource.h>

#include <cmocka.h>

#define DEEP 3000

static struct scratch s;

/* The entries that a walk saw. */
struct seen {
	char names[4096], missed[256];
	unsigned n;
	unsigned end_at, moves_at; /* the how many'th name; 0: none */
	const char *leaves_out, *removes;
	int error;
};

static int note(void *arg, int dirfd, const char *name, const struct stat *st)
{
	struct seen *w = arg;
	struct stat same;

	assert_int_equal(fstatat(dirfd, name, &same, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(same.st_ino, st->st_ino);
	if (strlen(w->names) < sizeof(w->names) - 300)
		sprintf(w->names + strlen(w->names), "%s ", name);
	w->n++;
	if (w->n == w->end_at)
		return -EDOM;
	if (w->n == w->moves_at)
		assert_int_equal(renameat(s.fd, "top/inner", s.fd, "elsewhere/inner"), 0);
	if (w->removes && !strcmp(w->removes, name))
		assert_int_equal(unlinkat(dirfd, name, AT_REMOVEDIR), 0);
	return S_ISDIR(st->st_mode) && (!w->leaves_out || strcmp(w->leaves_out, name) != 0);
}

static int missed(void *arg, const char *name, int error)
{
	struct seen *w = arg;

	sprintf(w->missed + strlen(w->missed), "%s ", name);
	w->error = error;
	return 0;
}

static const struct dir_walk_hooks hooks = { .entry = note, .miss = missed };

static void make_file(const char *path)
{
	int fd = openat(s.fd, path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	close(fd);
}

static void test_dir_walk__all_is_seen_and_what_is_left_out_not_entered(void **state)
{
	struct seen w = { .leaves_out = "out" };

	(void)state;
	assert_int_equal(mkdirat(s.fd, "d", 0700), 0);
	assert_int_equal(mkdirat(s.fd, "d/e", 0700), 0);
	assert_int_equal(mkdirat(s.fd, "out", 0700), 0);
	make_file("d/e/f");
	make_file("out/unseen");
	assert_int_equal(symlinkat("d", s.fd, "link"), 0);
	assert_int_equal(dir_walk(s.fd, &hooks, &w), 0);
	assert_int_equal(w.n, 5);
	assert_non_null(strstr(w.names, "e f "));
	assert_null(strstr(w.names, "unseen"));
	assert_string_equal(w.missed, "");
}

static void test_dir_walk__hook_that_fails_ends_it(void **state)
{
	struct seen w = { .end_at = 2 };

	(void)state;
	make_file("a");
	make_file("b");
	make_file("c");
	assert_int_equal(dir_walk(s.fd, &hooks, &w), -EDOM);
	assert_int_equal(w.n, 2);
}

static int deepen(int at, int levels, const char *name)
{
	int fd = dup(at);

	for (int k = 0; k < levels; k++) {
		int sub;

		assert_int_equal(mkdirat(fd, name, 0700), 0);
		sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(sub >= 0);
		close(fd);
		fd = sub;
	}
	return fd;
}

static void test_dir_walk__depth_costs_few_descriptors(void **state)
{
	struct seen w = { .n = 0 };
	struct rlimit old, few;
	char command[PATH_MAX + 32];

	(void)state;
	close(deepen(s.fd, DEEP, "deep"));
	/* Behind it, so that the walk must come back for it. */
	assert_int_equal(mkdirat(s.fd, "deep/deep/side", 0700), 0);
	assert_int_equal(mkdirat(s.fd, "deep/deep/side/end", 0700), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few = (struct rlimit){ (rlim_t)s.fd + 40, old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(dir_walk(s.fd, &hooks, &w), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(w.n, DEEP + 2);
	assert_string_equal(w.missed, "");
	snprintf(command, sizeof(command), "rm -rf '%s/deep'", s.path);
	assert_int_equal(system(command), 0);
}

/* The way up is gone: what is in the directory it was moved to must not be taken for what was
 * there. */
static void test_dir_walk__moved_directory_leads_nowhere(void **state)
{
	struct seen w = { .leaves_out = "elsewhere", .moves_at = 43 };
	int fd;

	(void)state;
	assert_int_equal(mkdirat(s.fd, "elsewhere", 0700), 0);
	make_file("elsewhere/f");
	assert_int_equal(mkdirat(s.fd, "top", 0700), 0);
	assert_int_equal(mkdirat(s.fd, "top/inner", 0700), 0);
	fd = openat(s.fd, "top/inner", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	close(deepen(fd, 40, "x"));
	close(fd);
	assert_int_equal(dir_walk(s.fd, &hooks, &w), 0);
	assert_int_equal(w.n, 43);
	assert_null(strstr(w.names, "f "));
	assert_string_equal(w.missed, ".. ");
	assert_int_equal(w.error, -ESTALE);
}

static void test_dir_walk__what_cannot_be_entered_is_missed_and_the_rest_seen(void **state)
{
	struct seen w = { .removes = "gone" };

	(void)state;
	assert_int_equal(mkdirat(s.fd, "a", 0700), 0);
	assert_int_equal(mkdirat(s.fd, "gone", 0700), 0);
	assert_int_equal(mkdirat(s.fd, "z", 0700), 0);
	make_file("a/f");
	make_file("z/g");
	assert_int_equal(dir_walk(s.fd, &hooks, &w), 0);
	assert_int_equal(w.n, 5);
	assert_string_equal(w.missed, "gone ");
	assert_int_equal(w.error, -ENOENT);
}

static int enter(void **state)
{
	(void)state;
	return scratch_enter(&s);
}

static int leave(void **state)
{
	(void)state;
	scratch_leave(&s);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_dir_walk__all_is_seen_and_what_is_left_out_not_entered, enter, leave),
		cmocka_unit_test_setup_teardown(test_dir_walk__hook_that_fails_ends_it, enter,
						leave),
		cmocka_unit_test_setup_teardown(test_dir_walk__depth_costs_few_descriptors, enter,
						leave),
		cmocka_unit_test_setup_teardown(test_dir_walk__moved_directory_leads_nowhere, enter,
						leave),
		cmocka_unit_test_setup_teardown(
			test_dir_walk__what_cannot_be_entered_is_missed_and_the_rest_seen, enter,
			leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
