// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/cow.h"
#include "veneer/data/publish.h"
#include "veneer/data/remove.h"
#include "veneer/data/tmpfile.h"
#include "veneer/layer/fd_cache.h"
#include "veneer/union/lookup.h"
#include "veneer/union/upper.h"

#include <dirent.h>

static struct inode *make(struct tree_dirs *d, const char *dir, mode_t mode, struct stat *st)
{
	struct create_args args = {
		.mode = S_IFREG | mode, .umask = 022, .uid = getuid(), .gid = getgid()
	};
	struct inode *i;
	int r = tmpfile_create(d->t, tree_get(d, dir), &args, &i, st);

	if (r == -EOPNOTSUPP)
		skip(); /* the file system under the scratch directory has none */
	assert_int_equal(r, 0);
	return i;
}

static void test_tmpfile__has_no_name_and_the_mode_asked_for(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	struct stat st;

	tree_put_dir(d, "lower/d");
	tree_mount(d, "volatile");
	i = make(d, "d", 06666, &st);
	assert_int_equal(st.st_mode, S_IFREG | 06644);
	assert_int_equal(st.st_nlink, 0);
	assert_true(inode_is_orphan(i));
	assert_int_equal(lookup_stat(d->t, i, &st), 0);
	assert_int_equal(st.st_ino, i->ino);
	tree_expect_names(d, "d", "");
	assert_int_equal(cow_write(d->t, i, "bytes", 5, 0), 0);
	/* The file could not be opened again. */
	fd_cache_shrink();
	tree_expect_inode(d, i, "bytes", 5);
	tree_forget(d, i);
}

static void test_tmpfile__inherits_the_group_of_a_set_gid_directory(void **state)
{
	struct tree_dirs *d = *state;
	struct stat dir, st;

	tree_mount(d, "volatile");
	tree_make(d, "", "d", S_IFDIR | 0755);
	assert_int_equal(fchmodat(d->s.fd, "upper/d", 02755, 0), 0);
	if (geteuid() == 0)
		assert_int_equal(fchownat(d->s.fd, "upper/d", 0, 77, 0), 0);
	assert_int_equal(fstatat(d->s.fd, "upper/d", &dir, 0), 0);
	tree_forget(d, make(d, "d", 0600, &st));
	assert_int_equal(st.st_gid, dir.st_gid);
}

static void test_tmpfile__named_one_is_found_and_may_be_closed(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	struct stat st;

	tree_mount(d, "volatile");
	i = make(d, "", 0644, &st);
	assert_int_equal(cow_write(d->t, i, "bytes", 5, 0), 0);
	assert_int_equal(create_link(d->t, i, d->t->root, "name", &st), 0);
	assert_int_equal(st.st_nlink, 1);
	tmpfile_named(d->t, i);
	assert_false(inode_is_orphan(i));
	fd_cache_shrink();
	tree_expect_inode(d, i, "bytes", 5);
	assert_ptr_equal(tree_get(d, "name"), i);
	tree_unmount(d);
	tree_mount(d, "volatile");
	tree_expect(d, "name", "bytes", 5);
}

static void test_tmpfile__forgotten_one_is_gone(void **state)
{
	struct tree_dirs *d = *state;
	struct stat st;
	uint32_t id;

	tree_mount(d, "volatile");
	struct inode *i = make(d, "", 0644, &st);

	id = i->id;
	tree_forget(d, i);
	assert_null(inode_get(d->t, id));
	tree_expect_names(d, "", "");
}

/* The file system gives it a name once; the next server must find that one, and not take it
 * away. */
static void test_tmpfile__a_server_that_died_may_have_linked_it_beside_a_whiteout(void **state)
{
	struct tree_dirs *d = *state;
	char beside[NAME_MAX + 1], path[NAME_MAX + 32];
	struct inode *i;
	struct stat st;

	tree_put_text(d, "lower/f", "lower");
	tree_mount(d, "volatile");
	assert_int_equal(remove_file(d->t, d->t->root, "f"), 0);
	remove_beside_name("f", beside);
	snprintf(path, sizeof(path), "upper/%s", beside);
	for (int k = 0; k < 2; k++) {
		i = make(d, "", 0644, &st);
		assert_int_equal(cow_write(d->t, i, "bytes", 5, 0), 0);
		if (k == 0)
			assert_int_equal(
				publish_link_fd(upper_pin(d->t, i), d->t->upper->rootfd, beside),
				0);
		else
			tree_put_text(d, path, "another's");
		assert_int_equal(create_link(d->t, i, d->t->root, "f", &st), 0);
		assert_int_equal(st.st_nlink, 1);
		assert_int_equal(fstatat(d->s.fd, path, &st, 0), -1);
		tmpfile_named(d->t, i);
		tree_expect_inode(d, i, "bytes", 5);
		if (k == 0)
			fd_cache_unpin(&i->src.fd);
		assert_int_equal(remove_file(d->t, d->t->root, "f"), 0);
		tree_forget(d, i);
	}
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_tmpfile__has_no_name_and_the_mode_asked_for),
		row(test_tmpfile__inherits_the_group_of_a_set_gid_directory),
		row(test_tmpfile__named_one_is_found_and_may_be_closed),
		row(test_tmpfile__forgotten_one_is_gone),
		row(test_tmpfile__a_server_that_died_may_have_linked_it_beside_a_whiteout),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
