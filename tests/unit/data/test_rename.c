// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/copyup.h"
#include "veneer/data/cow.h"
#include "veneer/data/create.h"
#include "veneer/data/remove.h"
#include "veneer/data/rename.h"
#include "veneer/union/lookup.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/syscall.h>

#define BIG 50000

/* Both names in the root, looked up as the kernel does. */
static const char *split(const char *path, char dir[256])
{
	const char *slash = strrchr(path, '/');

	snprintf(dir, 256, "%.*s", slash ? (int)(slash - path) : 0, path);
	return slash ? slash + 1 : path;
}

static int move(struct tree_dirs *d, const char *from, const char *to, unsigned flags)
{
	struct inode *a = tree_look(d, from), *b = tree_look(d, to);
	char from_dir[256], to_dir[256];
	const char *from_name = split(from, from_dir), *to_name = split(to, to_dir);
	struct inode *old = tree_get(d, from_dir), *new = tree_get(d, to_dir);
	int r = rename_entry(d->t, old, from_name, new, to_name, flags);

	tree_forget(d, old);
	tree_forget(d, new);
	if (a)
		tree_forget(d, a);
	if (b)
		tree_forget(d, b);
	return r;
}

static void remount(struct tree_dirs *d)
{
	tree_unmount(d);
	tree_mount(d, "volatile");
}

static void test_rename__lower_file_moves_without_its_data(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", BIG, 1);
	struct stat st;

	tree_mount(d, "volatile");
	assert_int_equal(move(d, "f", "g", 0), 0);
	assert_int_equal(fstatat(d->s.fd, "upper/g", &st, 0), 0);
	assert_int_equal(st.st_size, BIG);
	assert_true(st.st_blocks <= 8);
	assert_true(tree_is_partial(d, "upper/g"));
	tree_expect_names(d, "", "g");
	tree_expect(d, "g", data, BIG);
	remount(d);
	tree_expect_names(d, "", "g");
	tree_expect(d, "g", data, BIG);
	free(data);
}

static void test_rename__moved_file_keeps_its_bytes_when_its_old_name_is_taken_again(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", BIG, 1);
	struct inode *i;

	tree_mount(d, "volatile");
	assert_int_equal(move(d, "f", "g", 0), 0);
	i = tree_make(d, "", "f", S_IFREG | 0644);
	assert_int_equal(cow_write(d->t, i, "other", 5, 0), 0);
	remount(d);
	tree_expect(d, "g", data, BIG);
	tree_expect_text(d, "f", "other");
	tree_unmount(d);
	tree_freeze(d);
	tree_mount(d, "volatile");
	tree_expect(d, "g", data, BIG);
	tree_expect_text(d, "f", "other");
	free(data);
}

static void test_rename__moved_twice_over_two_generations_still_finds_its_blocks(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/a", BIG, 1);

	tree_mount(d, "volatile");
	assert_int_equal(move(d, "a", "b", 0), 0);
	tree_unmount(d);
	tree_freeze(d);
	tree_mount(d, "volatile");
	assert_int_equal(cow_write(d->t, tree_get(d, "b"), "two", 3, 20000), 0);
	memcpy(data + 20000, "two", 3);
	assert_int_equal(move(d, "b", "c", 0), 0);
	assert_int_equal(move(d, "c", "a", 0), 0);
	tree_expect(d, "a", data, BIG);
	tree_unmount(d);
	tree_freeze(d);
	tree_mount(d, "volatile");
	tree_expect_names(d, "", "a");
	tree_expect(d, "a", data, BIG);
	free(data);
}

static void test_rename__over_a_lower_file_replaces_it(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/a", "a");
	tree_put_text(d, "lower/b", "b");
	tree_mount(d, "volatile");
	assert_int_equal(move(d, "a", "b", 0), 0);
	tree_expect_text(d, "b", "a");
	remount(d);
	tree_expect_names(d, "", "b");
	tree_expect_text(d, "b", "a");
}

static void test_rename__replaced_file_stays_usable_while_it_is_held(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/b", BIG, 1);
	struct inode *b;
	size_t n;

	tree_put_text(d, "lower/a", "a");
	tree_mount(d, "volatile");
	b = tree_get(d, "b");
	assert_int_equal(cow_write(d->t, b, "x", 1, 5000), 0);
	data[5000] = 'x';
	assert_int_equal(move(d, "a", "b", 0), 0);
	tree_expect_inode(d, b, data, BIG);
	assert_int_equal(cow_write(d->t, b, "y", 1, 30000), 0);
	data[30000] = 'y';
	tree_expect_inode(d, b, data, BIG);
	tree_expect_text(d, "b", "a");
	n = mapfile_count(d->t->map);
	tree_forget(d, b);
	assert_int_equal(mapfile_count(d->t->map), n - 1);
	free(data);
}

static void test_rename__over_a_whiteout_keeps_lower_hidden(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/gone", "old");
	tree_mount(d, "volatile");
	tree_get(d, "gone");
	assert_int_equal(remove_file(d->t, d->t->root, "gone"), 0);
	assert_int_equal(cow_write(d->t, tree_make(d, "", "new", S_IFREG | 0644), "new", 3, 0), 0);
	assert_int_equal(move(d, "new", "gone", 0), 0);
	remount(d);
	tree_expect_names(d, "", "gone");
	tree_expect_text(d, "gone", "new");
	tree_get(d, "gone");
	assert_int_equal(remove_file(d->t, d->t->root, "gone"), 0);
	remount(d);
	tree_expect_names(d, "", "");
}

static void test_rename__noreplace_and_exchange_look_at_the_target(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/a", "a");
	tree_put_text(d, "lower/b", "b");
	tree_mount(d, "volatile");
	assert_int_equal(move(d, "a", "b", RENAME_NOREPLACE), -EEXIST);
	assert_int_equal(move(d, "a", "c", RENAME_EXCHANGE), -ENOENT);
	assert_int_equal(move(d, "c", "a", 0), -ENOENT);
	assert_int_equal(move(d, "a", "b", 1u << 10), -EINVAL);
	assert_int_equal(move(d, "a", "b", RENAME_EXCHANGE), 0);
	tree_expect_text(d, "a", "b");
	tree_expect_text(d, "b", "a");
	assert_int_equal(move(d, "a", ".wh.a", 0), -EINVAL);
	remount(d);
	tree_expect_text(d, "a", "b");
	tree_expect_text(d, "b", "a");
}

static void test_rename__exchanged_partial_files_keep_their_bytes(void **state)
{
	struct tree_dirs *d = *state;
	char *a = tree_put_pattern(d, "lower/a", BIG, 1),
	     *b = tree_put_pattern(d, "lower/b", BIG + 5000, 2);

	tree_mount(d, "volatile");
	assert_int_equal(cow_write(d->t, tree_get(d, "a"), "x", 1, 9000), 0);
	a[9000] = 'x';
	assert_int_equal(move(d, "a", "b", RENAME_EXCHANGE), 0);
	for (unsigned round = 0; round < 2; round++) {
		tree_expect(d, "b", a, BIG);
		tree_expect(d, "a", b, BIG + 5000);
		tree_unmount(d);
		tree_freeze(d);
		tree_mount(d, "volatile");
	}
	free(a);
	free(b);
}

static void test_rename__directory_of_a_lower_layer_takes_along_what_is_below(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/dir/sub/f", "f");
	tree_put_text(d, "lower/other/g", "g");
	tree_mount(d, "volatile");
	assert_int_equal(move(d, "dir", "moved", 0), 0);
	assert_int_equal(move(d, "moved/sub", "other/sub", 0), 0);
	assert_int_equal(move(d, "moved", "other/dir", RENAME_WHITEOUT), -EINVAL);
	assert_int_equal(move(d, "moved", "other/dir", 0), 0);
	for (unsigned round = 0; round < 2; round++) {
		tree_expect_names(d, "", "other");
		tree_expect_names(d, "other", "dir g sub");
		tree_expect_names(d, "other/dir", "");
		tree_expect_text(d, "other/sub/f", "f");
		remount(d);
	}
	assert_int_equal(move(d, "other/sub", "other/dir", RENAME_EXCHANGE), 0);
	remount(d);
	tree_expect_text(d, "other/dir/f", "f");
	tree_expect_names(d, "other/sub", "");
}

static void test_rename__without_redirects_a_directory_of_a_lower_layer_is_exdev(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/dir/f", "");
	tree_mount(d, "volatile,cow=copy");
	assert_int_equal(move(d, "dir", "moved", 0), -EXDEV);
	assert_int_equal(copyup_inode(d->t, tree_get(d, "dir"), NULL), 0);
	assert_int_equal(move(d, "dir", "moved", 0), -EXDEV);
	tree_expect_names(d, "", "dir");
}

static void test_rename__new_directory_moves_with_partial_files_in_it(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", BIG, 1);
	struct inode *dir, *f;

	tree_mount(d, "volatile");
	dir = tree_make(d, "", "dir", S_IFDIR | 0755);
	f = tree_get(d, "f");
	assert_int_equal(rename_entry(d->t, d->t->root, "f", dir, "f", 0), 0);
	assert_int_equal(cow_write(d->t, f, "x", 1, 9000), 0);
	data[9000] = 'x';
	assert_int_equal(move(d, "dir", "moved", 0), 0);
	tree_expect(d, "moved/f", data, BIG);
	tree_unmount(d);
	tree_freeze(d);
	tree_mount(d, "volatile");
	tree_expect_names(d, "", "moved");
	tree_expect(d, "moved/f", data, BIG);
	free(data);
}

static void test_rename__directory_over_a_removed_one_shows_nothing_of_it(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/dir/old", "");
	tree_mount(d, "volatile");
	tree_get(d, "dir/old");
	assert_int_equal(remove_file(d->t, tree_get(d, "dir"), "old"), 0);
	tree_make(d, "", "new", S_IFDIR | 0755);
	tree_make(d, "new", "f", S_IFREG | 0644);
	assert_int_equal(move(d, "new", "dir", 0), 0);
	tree_expect_names(d, "dir", "f");
	tree_unmount(d);
	tree_freeze(d);
	tree_mount(d, "volatile");
	tree_expect_names(d, "", "dir");
	tree_expect_names(d, "dir", "f");
}

static void test_rename__directory_over_one_that_is_not_empty_is_refused(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/dir/old", "");
	tree_mount(d, "volatile");
	tree_make(d, "", "new", S_IFDIR | 0755);
	assert_int_equal(move(d, "new", "dir", 0), -ENOTEMPTY);
	tree_expect_names(d, "", "dir new");
}

static void test_rename__old_name_goes_where_whiteouts_are_files(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/f", "text");
	tree_put_text(d, "lower/g", "hidden");
	tree_mount(d, "volatile");
	d->t->style.has_device = false;
	assert_int_equal(remove_file(d->t, d->t->root, "g"), 0);
	assert_true(tree_is_there(d, "upper/.wh.g"));
	assert_int_equal(move(d, "f", "g", 0), 0);
	assert_true(tree_is_there(d, "upper/.wh.f"));
	assert_false(tree_is_there(d, "upper/.wh.g"));
	assert_false(tree_is_there(d, "upper/f"));
	tree_expect_names(d, "", "g");
	tree_expect_text(d, "g", "text");
}

#ifdef SYS_newfstatat

/* From now on stat(2) of a name fails in this thread, but not that of a descriptor. */
static int deny_stat(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_newfstatat, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, AT_EMPTY_PATH, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0 ? -errno : 0;
}

static void *rename_new_to_dir(void *arg)
{
	struct union_fs *t = arg;
	const int r = deny_stat() ?: rename_entry(t, t->root, "new", t->root, "dir", 0);

	return (void *)(intptr_t)r;
}

/* It must know what it is to remove there. */
static void test_rename__exchange_whose_rest_nobody_may_look_at_is_taken_back(void **state)
{
	struct tree_dirs *d = *state;
	pthread_t thread;
	void *r;

	tree_put_text(d, "lower/dir/old", "");
	tree_mount(d, "volatile");
	tree_get(d, "dir/old");
	assert_int_equal(remove_file(d->t, tree_get(d, "dir"), "old"), 0);
	tree_make(d, "", "new", S_IFDIR | 0755);
	tree_make(d, "new", "f", S_IFREG | 0644);
	assert_int_equal(pthread_create(&thread, NULL, rename_new_to_dir, d->t), 0);
	assert_int_equal(pthread_join(thread, &r), 0);
	assert_int_equal((intptr_t)r, -EIO);
	tree_expect_names(d, "", "dir new");
	tree_expect_names(d, "dir", "");
	tree_expect_names(d, "new", "f");
	assert_int_equal(move(d, "new", "dir", 0), 0);
	tree_expect_names(d, "", "dir");
	tree_expect_names(d, "dir", "f");
}

#endif

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_rename__lower_file_moves_without_its_data),
		row(test_rename__moved_file_keeps_its_bytes_when_its_old_name_is_taken_again),
		row(test_rename__moved_twice_over_two_generations_still_finds_its_blocks),
		row(test_rename__over_a_lower_file_replaces_it),
		row(test_rename__old_name_goes_where_whiteouts_are_files),
		row(test_rename__replaced_file_stays_usable_while_it_is_held),
		row(test_rename__over_a_whiteout_keeps_lower_hidden),
		row(test_rename__noreplace_and_exchange_look_at_the_target),
		row(test_rename__exchanged_partial_files_keep_their_bytes),
		row(test_rename__directory_of_a_lower_layer_takes_along_what_is_below),
		row(test_rename__without_redirects_a_directory_of_a_lower_layer_is_exdev),
		row(test_rename__new_directory_moves_with_partial_files_in_it),
		row(test_rename__directory_over_a_removed_one_shows_nothing_of_it),
		row(test_rename__directory_over_one_that_is_not_empty_is_refused),
#ifdef SYS_newfstatat
		row(test_rename__exchange_whose_rest_nobody_may_look_at_is_taken_back),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
