// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/cow.h"
#include "veneer/tools/apply.h"

#include <time.h>

#define BIG ((size_t)16 * BLK_BYTES)

struct applying {
	struct tree_dirs *d; /* upper changes what lower has */
	struct timespec since;
	struct diff diff;
	int dirfd; /* of lower */
	char paths[512];
};

static int setup(void **state)
{
	struct applying *a = calloc(1, sizeof(*a));

	if (!a || tree_setup((void **)&a->d) < 0)
		return -1;
	tree_put_text(a->d, "lower/dir/a", "a");
	tree_put_text(a->d, "lower/dir/b", "b");
	tree_put_text(a->d, "lower/file", "file");
	a->dirfd = openat(a->d->s.fd, "lower", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*state = a;
	return 0;
}

static int teardown(void **state)
{
	struct applying *a = *state;

	diff_release(&a->diff);
	close(a->dirfd);
	tree_teardown((void **)&a->d);
	free(a);
	return 0;
}

/* From here on a change of lower counts. Its time is that of a file: the clock of the file system,
 * which is not that of this process. */
static void begin(struct applying *a)
{
	struct stat st, now;
	int fd = openat(a->d->s.fd, "stamp", O_CREAT | O_RDWR | O_CLOEXEC, 0600);

	assert_int_equal(fstatat(a->dirfd, "file", &st, 0), 0);
	do {
		assert_int_equal(fchmod(fd, 0600), 0);
		assert_int_equal(fstat(fd, &now), 0);
	} while ((now.st_ctim.tv_sec == st.st_ctim.tv_sec &&
		  now.st_ctim.tv_nsec <= st.st_ctim.tv_nsec) ||
		 !now.st_ctim.tv_nsec);
	a->since = now.st_ctim;
	close(fd);
}

static void read_changes(struct applying *a)
{
	char upper[PATH_MAX + 16], lower[PATH_MAX + 16], *lowers[] = { lower };

	snprintf(upper, sizeof(upper), "%s/upper", a->d->s.path);
	snprintf(lower, sizeof(lower), "%s/lower", a->d->s.path);
	diff_release(&a->diff);
	assert_int_equal(diff_read(upper, lowers, 1, true, NULL, &a->diff), 0);
}

static void note(void *arg, const char *path)
{
	struct applying *a = arg;

	snprintf(a->paths + strlen(a->paths), sizeof(a->paths) - strlen(a->paths), "%s%s",
		 *a->paths ? " " : "", path);
}

static void expect_conflicts(struct applying *a, const char *paths)
{
	size_t n = 0;

	read_changes(a);
	*a->paths = '\0';
	for (const char *p = paths; *p; p++)
		n += p == paths || p[-1] == ' ';
	assert_int_equal(apply_find_conflicts(&a->diff, a->dirfd, &a->since, note, a), n);
	assert_string_equal(a->paths, paths);
}

static void write_in_mount(struct applying *a, const char *path)
{
	struct inode *i;

	tree_mount(a->d, "volatile");
	i = tree_get(a->d, path);
	assert_int_equal(cow_write(a->d->t, i, "X", 1, 0), 0);
	tree_forget(a->d, i);
	tree_unmount(a->d);
}

static void test_apply__changes_of_one_side_alone_are_no_conflict(void **state)
{
	struct applying *a = *state;

	write_in_mount(a, "dir/a");
	tree_put_text(a->d, "upper/new", "new");
	tree_put_whiteout(a->d, "upper/file");
	begin(a);
	expect_conflicts(a, "");
	/* The other side changes what this one does not. */
	tree_put_text(a->d, "lower/dir/b", "B");
	expect_conflicts(a, "");
}

static void test_apply__file_that_both_sides_changed(void **state)
{
	struct applying *a = *state;

	write_in_mount(a, "file");
	begin(a);
	tree_put_text(a->d, "lower/file", "FILE");
	expect_conflicts(a, "file");
	assert_int_equal(unlinkat(a->dirfd, "file", 0), 0);
	expect_conflicts(a, "file");
}

static void test_apply__name_that_both_sides_made(void **state)
{
	struct applying *a = *state;

	tree_put_text(a->d, "upper/new", "new");
	begin(a);
	expect_conflicts(a, "");
	tree_put_text(a->d, "lower/new", "of the other");
	expect_conflicts(a, "new");
}

static void test_apply__directory_that_goes_has_something_new_in_it(void **state)
{
	struct applying *a = *state;

	tree_put_whiteout(a->d, "upper/dir");
	begin(a);
	expect_conflicts(a, "");
	tree_put_text(a->d, "lower/dir/b", "B");
	read_changes(a);
	*a->paths = '\0';
	assert_true(apply_find_conflicts(&a->diff, a->dirfd, &a->since, note, a) > 0);
	assert_non_null(strstr(a->paths, "dir"));
}

static void test_apply__root_that_has_another_mode(void **state)
{
	struct applying *a = *state;
	struct stat st;

	assert_int_equal(fstat(a->dirfd, &st), 0);
	assert_int_equal(fchmodat(a->d->s.fd, "upper", st.st_mode & 07777, 0), 0);
	read_changes(a);
	assert_int_equal(apply_is_root_changed(&a->diff, a->dirfd), 0);
	assert_int_equal(fchmodat(a->d->s.fd, "upper", 0701, 0), 0);
	read_changes(a);
	assert_int_equal(apply_is_root_changed(&a->diff, a->dirfd), 1);
}

/* A directory that is changed itself is its owner's to open. */
static void test_apply__directory_of_this_user_is_no_obstacle(void **state)
{
	struct applying *a = *state;

	tree_put_text(a->d, "upper/dir/new", "new");
	tree_put_text(a->d, "upper/dir/newer", "new");
	read_changes(a);
	assert_int_equal(apply_find_obstacles(&a->diff, a->dirfd, note, a), 0);
	assert_int_equal(fchmodat(a->dirfd, "dir", 0555, 0), 0);
	assert_int_equal(apply_find_obstacles(&a->diff, a->dirfd, note, a), 0);
	assert_string_equal(a->paths, "");
	assert_int_equal(fchmodat(a->dirfd, "dir", 0755, 0), 0);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_apply__changes_of_one_side_alone_are_no_conflict),
		row(test_apply__file_that_both_sides_changed),
		row(test_apply__name_that_both_sides_made),
		row(test_apply__directory_that_goes_has_something_new_in_it),
		row(test_apply__root_that_has_another_mode),
		row(test_apply__directory_of_this_user_is_no_obstacle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
