// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/cow.h"
#include "veneer/tools/apply.h"

#include <sys/mman.h>

#define BIG ((size_t)64 * BLK_BYTES)

struct carrying {
	struct tree_dirs *d;
	int tar, dirfd;
	char left[512];
};

static int setup(void **state)
{
	struct carrying *c = calloc(1, sizeof(*c));

	if (!c || tree_setup((void **)&c->d) < 0)
		return -1;
	tree_put_text(c->d, "lower/dir/gone", "x");
	tree_put_text(c->d, "lower/dir/stays", "stays");
	tree_put_text(c->d, "lower/over/below", "x");
	tree_put_text(c->d, "lower/file", "before");
	c->dirfd = openat(c->d->s.fd, "lower", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	c->tar = openat(c->d->s.fd, "tar", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	*state = c;
	return c->tar < 0 || c->dirfd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	struct carrying *c = *state;

	close(c->tar);
	close(c->dirfd);
	tree_teardown((void **)&c->d);
	free(c);
	return 0;
}

/* The changes of upper, as a tar. */
static void pack(struct carrying *c)
{
	char upper[PATH_MAX + 16], lower[PATH_MAX + 16], *lowers[] = { lower };
	struct diff_progress p;
	struct diff diff;

	snprintf(upper, sizeof(upper), "%s/upper", c->d->s.path);
	snprintf(lower, sizeof(lower), "%s/lower", c->d->s.path);
	assert_int_equal(diff_read(upper, lowers, 1, false, NULL, &diff), 0);
	assert_int_equal(diff_tar_write(&diff, c->tar, NULL, NULL, &p), 0);
	diff_release(&diff);
}

static void note(void *arg, const char *path)
{
	struct carrying *c = arg;

	snprintf(c->left + strlen(c->left), sizeof(c->left) - strlen(c->left), "%s ", path);
}

static int extract(struct carrying *c)
{
	*c->left = '\0';
	lseek(c->tar, 0, SEEK_SET);
	return apply_extract(c->tar, c->dirfd, note, c);
}

static void expect_text(struct carrying *c, const char *name, const char *text)
{
	char got[64] = "";
	int fd = openat(c->dirfd, name, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		fail_msg("%s is not there", name);
	assert_true(read(fd, got, sizeof(got) - 1) >= 0);
	assert_string_equal(got, text);
	close(fd);
}

static void expect_changes(struct carrying *c)
{
	struct stat a, b;

	expect_text(c, "file", "after");
	expect_text(c, "dir/stays", "stays");
	expect_text(c, "dir/new", "new");
	expect_text(c, "over/only", "x");
	assert_false(tree_is_there(c->d, "lower/dir/gone"));
	assert_false(tree_is_there(c->d, "lower/over/below"));
	assert_int_equal(fstatat(c->dirfd, "dir/new", &a, 0), 0);
	assert_int_equal(fstatat(c->dirfd, "twin", &b, 0), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	assert_int_equal(fstatat(c->dirfd, "link", &a, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(S_ISLNK(a.st_mode));
}

static void put_changes(struct carrying *c)
{
	tree_put_text(c->d, "upper/file", "after");
	tree_put_text(c->d, "upper/dir/new", "new");
	tree_put_whiteout(c->d, "upper/dir/gone");
	tree_put_opaque(c->d, "upper/over");
	tree_put_text(c->d, "upper/over/only", "x");
	assert_int_equal(symlinkat("/etc", c->d->s.fd, "upper/link"), 0);
	assert_int_equal(linkat(c->d->s.fd, "upper/dir/new", c->d->s.fd, "upper/twin", 0), 0);
	assert_int_equal(fchmodat(c->d->s.fd, "upper/file", 0600, 0), 0);
}

static void test_apply_tar__changes_are_carried_out_and_again_change_nothing(void **state)
{
	struct carrying *c = *state;
	struct stat st;

	put_changes(c);
	pack(c);
	assert_int_equal(extract(c), 0);
	assert_string_equal(c->left, "");
	expect_changes(c);
	assert_int_equal(fstatat(c->dirfd, "file", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	/* As after a kill. */
	assert_int_equal(extract(c), 0);
	expect_changes(c);
}

static void test_apply_tar__name_beside_that_a_kill_left_is_in_nobodys_way(void **state)
{
	struct carrying *c = *state;

	put_changes(c);
	pack(c);
	tree_put_text(c->d, "lower/.wh..wh.apply", "half");
	assert_int_equal(extract(c), 0);
	expect_changes(c);
	assert_false(tree_is_there(c->d, "lower/.wh..wh.apply"));
}

/* A directory of the layer below may be a link by now, to anywhere. */
static void test_apply_tar__link_in_the_way_is_not_followed(void **state)
{
	struct carrying *c = *state;

	put_changes(c);
	pack(c);
	tree_put_dir(c->d, "elsewhere");
	assert_int_equal(unlinkat(c->dirfd, "dir/gone", 0), 0);
	assert_int_equal(unlinkat(c->dirfd, "dir/stays", 0), 0);
	assert_int_equal(unlinkat(c->dirfd, "dir", AT_REMOVEDIR), 0);
	assert_int_equal(symlinkat("../elsewhere", c->dirfd, "dir"), 0);
	(void)extract(c);
	assert_false(tree_is_there(c->d, "elsewhere/new"));
}

static void test_apply_tar__file_of_holes_stays_one_of_holes(void **state)
{
	struct carrying *c = *state;
	struct stat st;
	int fd;

	tree_put_text(c->d, "upper/sparse", "x");
	fd = openat(c->d->s.fd, "upper/sparse", O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, "end", 3, BIG - 3), 3);
	close(fd);
	pack(c);
	assert_int_equal(extract(c), 0);
	assert_int_equal(fstatat(c->dirfd, "sparse", &st, 0), 0);
	assert_int_equal(st.st_size, BIG);
	assert_true((size_t)st.st_blocks * 512 < BIG / 2);
}

static void test_apply_tar__archive_that_is_cut_or_none_is_an_error(void **state)
{
	struct carrying *c = *state;
	struct stat st;

	free(tree_put_pattern(c->d, "upper/big", BIG, 1));
	pack(c);
	assert_int_equal(fstat(c->tar, &st), 0);
	assert_int_equal(ftruncate(c->tar, st.st_size / 2), 0);
	assert_true(extract(c) < 0);
	assert_false(tree_is_there(c->d, "lower/big"));
	assert_int_equal(ftruncate(c->tar, 0), 0);
	assert_int_equal(pwrite(c->tar, "no archive at all", 17, 0), 17);
	assert_true(extract(c) < 0);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_apply_tar__changes_are_carried_out_and_again_change_nothing),
		row(test_apply_tar__name_beside_that_a_kill_left_is_in_nobodys_way),
		row(test_apply_tar__link_in_the_way_is_not_followed),
		row(test_apply_tar__file_of_holes_stays_one_of_holes),
		row(test_apply_tar__archive_that_is_cut_or_none_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
