// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"
#include "support/wait.h"

#include "veneer/data/cow.h"
#include "veneer/data/remove.h"
#include "veneer/union/lookup.h"
#include "veneer/union/upper.h"

#include <signal.h>

static void test_upper__descriptor_is_of_the_very_object(void **state)
{
	struct tree_dirs *d = *state;
	struct stat a, b;
	struct inode *i;
	int fd;

	tree_put_text(d, "upper/dir/f", "x");
	tree_mount(d, "volatile");
	i = tree_get(d, "dir/f");
	fd = upper_pin(d->t, i);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &a), 0);
	assert_int_equal(fstatat(d->s.fd, "upper/dir/f", &b, 0), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
	fd_cache_unpin(&i->src.fd);
}

static void test_upper__name_that_leads_elsewhere_is_stale(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;

	tree_put_text(d, "upper/f", "x");
	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	fd_cache_shrink();
	/* Another program's doing, behind the mount's back. */
	assert_int_equal(renameat(d->s.fd, "upper/f", d->s.fd, "elsewhere"), 0);
	tree_put_text(d, "upper/f", "another");
	assert_int_equal(upper_pin(d->t, i), -ESTALE);
}

static void test_upper__held_file_survives_its_name_and_a_shrink(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	struct stat st;

	tree_put_text(d, "upper/f", "text");
	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(remove_file(d->t, d->t->root, "f"), 0);
	fd_cache_shrink();
	assert_int_equal(upper_stat(d->t, i, &st), 0);
	assert_int_equal(st.st_nlink, 0);
	tree_expect_inode(d, i, "text", 4);
}

static void test_upper__listing_tells_whiteouts_and_what_is_below(void **state)
{
	struct tree_dirs *d = *state;
	struct upper_dir *list;
	struct upper_dir_entry e;

	tree_put_text(d, "lower/both", "");
	tree_put_text(d, "lower/white", "");
	tree_put_text(d, "upper/both", "");
	tree_put_text(d, "upper/new", "");
	tree_put_whiteout(d, "upper/white");
	tree_put_text(d, "upper/.wh.hidden", "");
	tree_put_text(d, "upper/hidden", "");
	tree_mount(d, "volatile");
	assert_int_equal(upper_listing(d->t, d->t->root, &list), 0);
	assert_true(upper_dir_find(list, "both", &e) && e.is_below && !e.is_whiteout);
	assert_true(upper_dir_find(list, "new", &e) && !e.is_below && !e.is_whiteout);
	assert_true(upper_dir_find(list, "white", &e) && e.is_whiteout);
	assert_true(upper_dir_find(list, "hidden", &e) && e.is_whiteout);
	assert_false(upper_dir_find(list, ".wh.hidden", &e));
	assert_int_equal(upper_dir_count(list), 4);
}

static void test_upper__many_files_need_few_descriptors(void **state)
{
	struct tree_dirs *d = *state;
	int before, after;

	for (unsigned k = 0; k < 700; k++) {
		char rel[32];

		snprintf(rel, sizeof(rel), "upper/f%u", k);
		tree_put_text(d, rel, "x");
	}
	tree_mount(d, "volatile");
	before = dup(0);
	close(before);
	for (unsigned k = 0; k < 700; k++) {
		char name[32];

		snprintf(name, sizeof(name), "f%u", k);
		assert_int_equal(cow_write(d->t, tree_get(d, name), "y", 1, 0), 0);
	}
	after = dup(0);
	close(after);
	assert_true(after - before <= 520);
	tree_expect_text(d, "f0", "y");
}

/* The program runs, so its file takes no writer. */
static bool is_running(struct tree_dirs *d)
{
	int fd = openat(d->s.fd, "upper/prog", O_WRONLY | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd < 0;
}

static void test_upper__program_that_runs_can_still_be_read(void **state)
{
	struct tree_dirs *d = *state;
	char self[PATH_MAX + 64], c;
	struct inode *i;
	ssize_t n;
	pid_t pid;

	snprintf(self, sizeof(self), "cp /bin/sleep %s/upper/prog", d->s.path);
	assert_int_equal(system(self), 0);
	snprintf(self, sizeof(self), "%s/upper/prog", d->s.path);
	pid = fork();
	if (pid == 0) {
		execl(self, "prog", "60", (char *)NULL);
		_exit(127);
	}
	tree_mount(d, "volatile");
	i = tree_get(d, "prog");
	wait_until(is_running(d));
	n = upper_pin(d->t, i);
	if (n >= 0)
		n = pread((int)n, &c, 1, 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(n, 1);
	fd_cache_unpin(&i->src.fd);
}

static void test_upper__temporary_names_differ(void **state)
{
	struct tree_dirs *d = *state;
	char a[32], b[32];

	tree_mount(d, "volatile");
	upper_temp_name(d->t, a);
	upper_temp_name(d->t, b);
	assert_string_not_equal(a, b);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_upper__descriptor_is_of_the_very_object),
		row(test_upper__name_that_leads_elsewhere_is_stale),
		row(test_upper__held_file_survives_its_name_and_a_shrink),
		row(test_upper__listing_tells_whiteouts_and_what_is_below),
		row(test_upper__many_files_need_few_descriptors),
		row(test_upper__program_that_runs_can_still_be_read),
		row(test_upper__temporary_names_differ),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
