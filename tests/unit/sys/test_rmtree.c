// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/sys/rmtree.h"

static void test_rmtree__everything_beneath_goes(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "t/a/b/c/file", "x");
	tree_put_dir(d, "t/empty");
	tree_put_whiteout(d, "t/a/white");
	tree_put_text(d, "beside/file", "x");
	rmtree(d->s.fd, "t");
	assert_false(tree_is_there(d, "t"));
	assert_true(tree_is_there(d, "beside/file"));
}

static void test_rmtree__links_are_removed_and_not_followed(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "outside/file", "x");
	tree_put_dir(d, "t");
	assert_int_equal(symlinkat("../outside", d->s.fd, "t/link"), 0);
	assert_int_equal(symlinkat("outside", d->s.fd, "link"), 0);
	rmtree(d->s.fd, "t");
	rmtree(d->s.fd, "link");
	assert_false(tree_is_there(d, "t"));
	assert_true(tree_is_there(d, "outside/file"));
}

static void test_rmtree__many_entries_go(void **state)
{
	struct tree_dirs *d = *state;

	for (unsigned k = 0; k < 2000; k++) {
		char rel[32];

		snprintf(rel, sizeof(rel), "t/%u", k);
		tree_put_text(d, rel, "");
	}
	rmtree(d->s.fd, "t");
	assert_false(tree_is_there(d, "t"));
}

static void test_rmtree__what_is_not_there_is_no_matter(void **state)
{
	struct tree_dirs *d = *state;

	rmtree(d->s.fd, "none");
}

/* A chain of directories d beneath rel, with a file in each. */
static void put_deep(struct tree_dirs *d, const char *rel, unsigned depth)
{
	int fd, next;

	tree_put_dir(d, rel);
	fd = openat(d->s.fd, rel, O_RDONLY | O_DIRECTORY);
	for (unsigned k = 0; k < depth; k++) {
		assert_int_equal(mkdirat(fd, "d", 0755), 0);
		assert_int_equal(mknodat(fd, "file", S_IFREG | 0644, 0), 0);
		next = openat(fd, "d", O_RDONLY | O_DIRECTORY);
		close(fd);
		fd = next;
	}
	close(fd);
}

static void test_rmtree__depth_is_no_limit(void **state)
{
	struct tree_dirs *d = *state;

	for (unsigned k = 60; k < 70; k++) {
		put_deep(d, "t", k);
		rmtree(d->s.fd, "t");
		assert_false(tree_is_there(d, "t"));
	}
	/* Names that moving up would give are taken, by what is deep itself. */
	put_deep(d, "t/#0", 500);
	put_deep(d, "t/#1/a", 130);
	put_deep(d, "t/#1/b", 130);
	tree_put_text(d, "t/#2", "x");
	tree_put_text(d, "#3/file", "x");
	rmtree(d->s.fd, "t");
	assert_false(tree_is_there(d, "t"));
	assert_true(tree_is_there(d, "#3/file"));
}

static void test_rmtree__hostile_depth_takes_no_more_descriptors_than_allowed(void **state)
{
	struct tree_dirs *d = *state;
	int before, after;

	put_deep(d, "t", 500);
	before = dup(0);
	close(before);
	rmtree(d->s.fd, "t");
	after = dup(0);
	close(after);
	assert_int_equal(before, after);
}

static bool keeps(void *arg, int parent_fd, const char *name, const struct stat *st)
{
	const char *prefix = arg;

	(void)parent_fd;
	(void)st;
	return !strncmp(name, prefix, strlen(prefix));
}

static void test_rmtree__some_entries_stay(void **state)
{
	struct tree_dirs *d = *state;
	char prefix[] = "keep";

	tree_put_text(d, "t/a/b/keep-me", "x");
	tree_put_text(d, "t/a/b/not-me", "x");
	tree_put_text(d, "t/a/not-me", "x");
	tree_put_dir(d, "t/empty");
	tree_put_text(d, "t/keep-dir/gone", "x");
	rmtree_but(d->s.fd, "t", keeps, prefix);
	assert_true(tree_is_there(d, "t/a/b/keep-me"));
	assert_true(tree_is_there(d, "t/keep-dir"));
	assert_false(tree_is_there(d, "t/keep-dir/gone"));
	assert_false(tree_is_there(d, "t/a/b/not-me") || tree_is_there(d, "t/a/not-me"));
	assert_false(tree_is_there(d, "t/empty"));
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_rmtree__everything_beneath_goes),
		row(test_rmtree__links_are_removed_and_not_followed),
		row(test_rmtree__many_entries_go),
		row(test_rmtree__what_is_not_there_is_no_matter),
		row(test_rmtree__depth_is_no_limit),
		row(test_rmtree__some_entries_stay),
		row(test_rmtree__hostile_depth_takes_no_more_descriptors_than_allowed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
