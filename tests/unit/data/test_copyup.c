// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "data/partial_mark.h"
#include "veneer/data/copyup.h"
#include "veneer/data/cow.h"
#include "veneer/data/read.h"
#include "veneer/data/remove.h"
#include "veneer/layer/mode_xattr.h"
#include "veneer/union/lookup.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#define BIG 50000

static void copy_up(struct tree_dirs *d, const char *path)
{
	struct inode *i = tree_get(d, path);

	assert_int_equal(copyup_inode(d->t, i, NULL), 0);
	tree_forget(d, i);
}

static void test_copyup__large_file_becomes_a_shell_with_all_its_attributes(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", BIG, 1), value[8];
	char path[PATH_MAX + 64];
	struct timespec times[2] = { { 1000, 1 }, { 2000, 2 } };
	struct stat st;

	snprintf(path, sizeof(path), "%s/lower/f", d->s.path);
	assert_int_equal(chown(path, 5, 6), 0);
	assert_int_equal(chmod(path, 06751), 0);
	assert_int_equal(setxattr(path, "user.a", "one", 3, 0), 0);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	tree_mount(d, "volatile");
	copy_up(d, "f");
	snprintf(path, sizeof(path), "%s/upper/f", d->s.path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, BIG);
	assert_true(st.st_blocks <= 8);
	assert_int_equal(st.st_uid, 5);
	assert_int_equal(st.st_gid, 6);
	assert_int_equal(st.st_mode & 07777, 06751);
	assert_int_equal(st.st_mtim.tv_sec, 2000);
	assert_int_equal(st.st_atim.tv_sec, 1000);
	assert_int_equal(getxattr(path, "user.a", value, sizeof(value)), 3);
	tree_expect(d, "f", data, BIG);
	free(data);
}

/* The last byte of a file, as another reader of the raw upper sees it. */
static char raw_last_byte(struct tree_dirs *d, const char *rel)
{
	int fd = openat(d->s.fd, rel, O_RDONLY);
	char c = 0;

	assert_int_equal(pread(fd, &c, 1, lseek(fd, -1, SEEK_END)), 1);
	close(fd);
	return c;
}

static void write_first_byte(struct tree_dirs *d, const char *path, char *data)
{
	struct inode *i = tree_get(d, path);

	data[0] ^= 1;
	assert_int_equal(cow_write(d->t, i, data, 1, 0), 0);
	tree_forget(d, i);
}

static void test_copyup__change_of_attributes_copies_no_data_and_the_first_write_all(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", COPYUP_WHOLE_MAX, 1);

	tree_mount(d, "volatile");
	copy_up(d, "f");
	assert_int_equal(raw_last_byte(d, "upper/f"), 0);
	tree_expect(d, "f", data, COPYUP_WHOLE_MAX);
	write_first_byte(d, "f", data);
	assert_int_equal(raw_last_byte(d, "upper/f"), data[COPYUP_WHOLE_MAX - 1]);
	tree_expect(d, "f", data, COPYUP_WHOLE_MAX);
	free(data);
}

static void test_copyup__content_comes_along_up_to_the_limit_and_not_beyond(void **state)
{
	struct tree_dirs *d = *state;
	char *at = tree_put_pattern(d, "lower/at", COPYUP_WHOLE_MAX, 1);
	char *beyond = tree_put_pattern(d, "lower/beyond", COPYUP_WHOLE_MAX + 1, 2);

	tree_mount(d, "volatile");
	write_first_byte(d, "at", at);
	write_first_byte(d, "beyond", beyond);
	assert_int_equal(raw_last_byte(d, "upper/at"), at[COPYUP_WHOLE_MAX - 1]);
	assert_int_equal(raw_last_byte(d, "upper/beyond"), 0);
	assert_true(tree_is_partial(d, "upper/beyond"));
	tree_expect(d, "at", at, COPYUP_WHOLE_MAX);
	tree_expect(d, "beyond", beyond, COPYUP_WHOLE_MAX + 1);
	free(at);
	free(beyond);
}

static void test_copyup__whole_copies_when_that_is_asked_for(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", 3000000, 1);

	tree_mount(d, "volatile,cow=copy");
	copy_up(d, "f");
	assert_false(tree_is_partial(d, "upper/f"));
	assert_false(tree_is_there(d, "upper/" MAPFILE_NAME));
	tree_expect(d, "f", data, 3000000);
	free(data);
}

#define LONG_AGO ((const struct timespec[2]){ { 1000, 1 }, { 2000, 2 } })

/* A write is no access, but it is the last change. */
static void expect_accessed_long_ago(struct tree_dirs *d, const char *rel)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "upper/%s", rel);
	assert_int_equal(fstatat(d->s.fd, path, &st, 0), 0);
	assert_int_equal(st.st_atim.tv_sec, 1000);
	assert_true(st.st_mtim.tv_sec > 2000);
}

static void test_copyup__small_file_goes_up_with_its_first_write(void **state)
{
	static const struct {
		size_t size, off, len;
	} rows[] = {
		{ 0, 0, 0 },	       { 0, 0, 5 },	    { 100, 0, 100 },   { 100, 0, 200 },
		{ 100, 50, 10 },       { 100, 99, 10 },	    { 100, 300, 10 },  { 16384, 16380, 4 },
		{ 16384, 16380, 8 },   { 16384, 0, 16384 }, { 100, 16380, 4 }, { 100, 16384, 1 },
		{ 100, 40000, 30000 }, { 5, 0, 70000 },
	};
	struct tree_dirs *d = *state;

	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		char rel[32], *data, *all = calloc(1, 100000);
		size_t size = rows[k].size;

		snprintf(rel, sizeof(rel), "lower/f%zu", k);
		data = tree_put_pattern(d, rel, size, k);
		memcpy(all, data, size);
		free(data);
		assert_int_equal(utimensat(d->s.fd, rel, LONG_AGO, 0), 0);
		tree_mount(d, "volatile");
		tree_pattern(all + rows[k].off, rows[k].len, 77);
		if (rows[k].len && rows[k].off + rows[k].len > size)
			size = rows[k].off + rows[k].len;
		assert_int_equal(cow_write(d->t, tree_get(d, rel + 6), all + rows[k].off,
					   rows[k].len, (off_t)rows[k].off),
				 0);
		if (rows[k].len)
			expect_accessed_long_ago(d, rel + 6);
		tree_expect(d, rel + 6, all, size);
		tree_unmount(d);
		free(all);
	}
}

static void test_copyup__directories_of_a_path_come_first_and_keep_their_times(void **state)
{
	struct tree_dirs *d = *state;
	struct timespec times[2] = { { 1000, 1 }, { 2000, 2 } };
	struct stat st;

	tree_put_text(d, "lower/a/b/c/f", "x");
	assert_int_equal(fchmodat(d->s.fd, "lower/a/b", 01770, 0), 0);
	assert_int_equal(utimensat(d->s.fd, "lower/a/b", times, 0), 0);
	tree_mount(d, "volatile");
	copy_up(d, "a/b/c/f");
	assert_int_equal(fstatat(d->s.fd, "upper/a/b", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 01770);
	assert_int_equal(st.st_mtim.tv_sec, 2000);
	assert_int_equal(tree_stat(d, "a/b").st_mtim.tv_sec, 2000);
	tree_expect_names(d, "a/b", "c");
}

static void test_copyup__links_and_special_files_are_made_again(void **state)
{
	struct tree_dirs *d = *state;
	char target[16];
	struct stat st;

	tree_put_dir(d, "lower");
	assert_int_equal(symlinkat("where", d->s.fd, "lower/link"), 0);
	assert_int_equal(mkfifoat(d->s.fd, "lower/fifo", 0640), 0);
	assert_int_equal(mknodat(d->s.fd, "lower/null", S_IFCHR | 0606, makedev(1, 3)), 0);
	assert_int_equal(fchmodat(d->s.fd, "lower/null", 0606, 0), 0);
	tree_mount(d, "volatile");
	copy_up(d, "link");
	copy_up(d, "fifo");
	copy_up(d, "null");
	assert_int_equal(readlinkat(d->s.fd, "upper/link", target, sizeof(target)), 5);
	assert_int_equal(fstatat(d->s.fd, "upper/fifo", &st, 0), 0);
	assert_true(S_ISFIFO(st.st_mode));
	assert_int_equal(fstatat(d->s.fd, "upper/null", &st, 0), 0);
	assert_int_equal(st.st_rdev, makedev(1, 3));
	assert_int_equal(st.st_mode & 07777, 0606);
}

/* Of a server that was started without its standard input. */
static void test_copyup__lower_file_at_descriptor_0_is_copied(void **state)
{
	const int kept = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", BIG, 1), p[10];
	struct inode *i;
	int r;

	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	close(STDIN_FILENO);
	read_file(d->t, i, p, sizeof(p), 0);
	r = copyup_inode(d->t, i, NULL);
	tree_forget(d, i);
	tree_unmount(d);
	if (kept >= 0) {
		dup2(kept, STDIN_FILENO);
		close(kept);
	}
	assert_int_equal(r, 0);
	assert_true(tree_is_partial(d, "upper/f"));
	tree_mount(d, "volatile");
	tree_expect(d, "f", data, BIG);
	free(data);
}

static void expect_stored(struct tree_dirs *d, const char *name, const char *want)
{
	char path[PATH_MAX + 64], value[64];
	ssize_t n;

	snprintf(path, sizeof(path), "%s/upper/%s", d->s.path, name);
	n = getxattr(path, mode_xattr_for_option(2), value, sizeof(value) - 1);
	assert_true(n > 0);
	value[n] = '\0';
	assert_string_equal(value, want);
}

/* As for a server that may not chown. */
static void
test_copyup__owner_and_mode_are_stored_in_an_attribute_if_that_is_asked_for(void **state)
{
	struct tree_dirs *d = *state;
	struct stat st;

	tree_put_text(d, "lower/dir/f", "text");
	assert_int_equal(fchownat(d->s.fd, "lower/dir", 7, 8, 0), 0);
	assert_int_equal(fchmodat(d->s.fd, "lower/dir", 03770, 0), 0);
	assert_int_equal(fchownat(d->s.fd, "lower/dir/f", 5, 6, 0), 0);
	assert_int_equal(fchmodat(d->s.fd, "lower/dir/f", 06711, 0), 0);
	tree_mount(d, "volatile,xattr_permissions=2");
	copy_up(d, "dir/f");
	expect_stored(d, "dir", "7:8:3770:dir");
	expect_stored(d, "dir/f", "5:6:6711:file");
	assert_int_equal(fstatat(d->s.fd, "upper/dir/f", &st, 0), 0);
	assert_int_equal(st.st_uid, geteuid());
	assert_int_equal(st.st_mode & 07777, 0755);
	for (unsigned round = 0; round < 2; round++) {
		st = tree_stat(d, "dir/f");
		assert_int_equal(st.st_uid, 5);
		assert_int_equal(st.st_gid, 6);
		assert_int_equal(st.st_mode & 07777, 06711);
		st = tree_stat(d, "dir");
		assert_int_equal(st.st_uid, 7);
		assert_int_equal(st.st_mode & 07777, 03770);
		tree_unmount(d);
		tree_mount(d, "volatile,xattr_permissions=2");
	}
}

static void test_copyup__longest_symlink_keeps_all_of_its_target(void **state)
{
	char target[PATH_MAX], got[PATH_MAX + 1];
	struct tree_dirs *d = *state;
	size_t len = PATH_MAX - 1;

	tree_put_dir(d, "lower");
	memset(target, 't', sizeof(target));
	/* Some file systems take shorter ones only. */
	for (target[len] = '\0'; symlinkat(target, d->s.fd, "lower/link") < 0; target[--len] = '\0')
		assert_int_equal(errno, ENAMETOOLONG);
	tree_mount(d, "volatile");
	copy_up(d, "link");
	assert_int_equal(readlinkat(d->s.fd, "upper/link", got, sizeof(got)), len);
	assert_memory_equal(got, target, len);
}

static void test_copyup__attributes_of_unions_stay_behind(void **state)
{
	struct tree_dirs *d = *state;
	char path[PATH_MAX + 64];

	tree_put_text(d, "lower/dir/f", "x");
	snprintf(path, sizeof(path), "%s/lower/dir", d->s.path);
	assert_int_equal(setxattr(path, "user.fuseoverlayfs.origin", "x", 1, 0), 0);
	assert_int_equal(setxattr(path, "user.mine", "x", 1, 0), 0);
	tree_mount(d, "volatile");
	copy_up(d, "dir");
	snprintf(path, sizeof(path), "%s/upper/dir", d->s.path);
	assert_int_equal(getxattr(path, "user.mine", NULL, 0), 1);
	assert_int_equal(getxattr(path, "user.fuseoverlayfs.origin", NULL, 0), -1);
}

static void test_copyup__unlinked_file_gets_no_name(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", BIG, 1);
	struct inode *i;

	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(remove_file(d->t, d->t->root, "f"), 0);
	assert_int_equal(copyup_inode(d->t, i, NULL), 0);
	assert_int_equal(cow_write(d->t, i, "x", 1, 30000), 0);
	data[30000] = 'x';
	tree_expect_inode(d, i, data, BIG);
	tree_expect_names(d, "", "");
	tree_forget(d, i);
	assert_int_equal(mapfile_count(d->t->map), 0);
	free(data);
}

static void test_copyup__all_names_of_a_lower_hard_link_come_along(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/a", BIG, 1);

	tree_put_text(d, "lower/dir/x", "");
	assert_int_equal(linkat(d->s.fd, "lower/a", d->s.fd, "lower/b", 0), 0);
	assert_int_equal(linkat(d->s.fd, "lower/a", d->s.fd, "lower/dir/c", 0), 0);
	tree_mount(d, "volatile");
	assert_int_equal(cow_write(d->t, tree_get(d, "b"), "x", 1, 100), 0);
	data[100] = 'x';
	for (unsigned round = 0; round < 2; round++) {
		tree_expect(d, "a", data, BIG);
		tree_expect(d, "b", data, BIG);
		tree_expect(d, "dir/c", data, BIG);
		assert_int_equal(tree_stat(d, "a").st_ino, tree_stat(d, "dir/c").st_ino);
		assert_int_equal(tree_stat(d, "a").st_nlink, 3);
		tree_unmount(d);
		tree_mount(d, "volatile");
	}
	assert_true(tree_is_there(d, "upper/dir/c"));
	free(data);
}

static void test_copyup__origin_is_written_once(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	char path[PATH_MAX + 64];
	ssize_t before;

	free(tree_put_pattern(d, "lower/a/f", BIG, 1));
	tree_mount(d, "volatile");
	i = tree_get(d, "a/f");
	assert_int_equal(partial_mark_fix(d->t, i, NULL), 0);
	assert_int_equal(copyup_inode(d->t, i, NULL), 0);
	snprintf(path, sizeof(path), "%s/upper/a/f", d->s.path);
	before = getxattr(path, "user.veneer.partial", NULL, 0);
	assert_int_equal(partial_mark_fix(d->t, i, NULL), 0);
	assert_int_equal(getxattr(path, "user.veneer.partial", NULL, 0), before + 3);
	assert_int_equal(partial_mark_fix(d->t, i, NULL), 0);
	assert_int_equal(getxattr(path, "user.veneer.partial", NULL, 0), before + 3);
}

struct one_inode {
	struct union_fs *t;
	struct inode *i;
};

static void *fix_mark_as_bound(void *arg)
{
	const struct one_inode *o = arg;

	return (void *)(intptr_t)(scratch_be_bound() < 0 ? -EPERM
							 : partial_mark_fix(o->t, o->i, NULL));
}

static void test_copyup__origin_is_written_also_where_the_owner_may_not_read(void **state)
{
	struct tree_dirs *d = *state;
	struct one_inode o;
	char path[PATH_MAX + 64];
	ssize_t before;
	pthread_t thread;
	void *r;

	free(tree_put_pattern(d, "lower/a/f", BIG, 1));
	tree_mount(d, "volatile");
	o = (struct one_inode){ d->t, tree_get(d, "a/f") };
	assert_int_equal(copyup_inode(o.t, o.i, NULL), 0);
	snprintf(path, sizeof(path), "%s/upper/a/f", d->s.path);
	before = getxattr(path, "user.veneer.partial", NULL, 0);
	assert_int_equal(chmod(path, 0), 0);
	assert_int_equal(pthread_create(&thread, NULL, fix_mark_as_bound, &o), 0);
	assert_int_equal(pthread_join(thread, &r), 0);
	assert_int_equal((intptr_t)r, 0);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(getxattr(path, "user.veneer.partial", NULL, 0), before + 3);
	tree_forget(d, o.i);
}

static int copy_it_up(void *arg)
{
	const struct one_inode *o = arg;

	return copyup_inode(o->t, o->i, NULL);
}

static void test_copyup__times_that_cannot_be_set_are_an_error(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;

	tree_put_text(d, "lower/f", "text");
	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(
		scratch_run_denied(SYS_utimensat, EIO, copy_it_up, &(struct one_inode){ d->t, i }),
		-EIO);
	assert_false(tree_is_there(d, "upper/f"));
	tree_forget(d, i);
}

static void test_copyup__size_that_cannot_be_set_is_an_error(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", BIG, 1);
	struct inode *i;

	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(
		scratch_run_denied(SYS_ftruncate, EIO, copy_it_up, &(struct one_inode){ d->t, i }),
		-EIO);
	assert_false(tree_is_there(d, "upper/f"));
	tree_expect_inode(d, i, data, BIG);
	assert_int_equal(copyup_inode(d->t, i, NULL), 0);
	tree_expect_inode(d, i, data, BIG);
	tree_forget(d, i);
	free(data);
}

/* Room for a file that takes all its content along. */
static void test_copyup__file_at_the_limit_needs_room_for_all_of_it(void **state)
{
	struct tree_dirs *d = *state;
	char *at = tree_put_pattern(d, "lower/at", COPYUP_WHOLE_MAX, 1);
	struct inode *i;

	tree_mount(d, "volatile,size=12K");
	i = tree_get(d, "at");
	assert_int_equal(cow_write(d->t, i, "x", 1, 0), -ENOSPC);
	assert_false(tree_is_there(d, "upper/at"));
	tree_expect_inode(d, i, at, COPYUP_WHOLE_MAX);
	tree_forget(d, i);
	free(at);
}

#define TOUCHED_MAX 8

static struct {
	const struct inode *v[TOUCHED_MAX];
	unsigned n;
} touched;

static void note_touched(struct union_fs *t, struct inode *i)
{
	(void)t;
	assert_true(touched.n < TOUCHED_MAX);
	touched.v[touched.n++] = i;
}

static unsigned times_touched(const struct inode *i)
{
	unsigned times = 0;

	for (unsigned k = 0; k < touched.n; k++)
		times += touched.v[k] == i;
	return times;
}

static void test_copyup__kernel_hears_of_the_file_and_of_each_names_directory(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i, *dir;

	tree_put_text(d, "lower/dir/a", "linked");
	assert_int_equal(linkat(d->s.fd, "lower/dir/a", d->s.fd, "lower/dir/b", 0), 0);
	assert_int_equal(linkat(d->s.fd, "lower/dir/a", d->s.fd, "lower/c", 0), 0);
	tree_put_text(d, "lower/dir/alone", "alone");
	tree_mount(d, "volatile");
	dir = tree_get(d, "dir");
	assert_int_equal(copyup_inode(d->t, dir, NULL), 0);
	d->t->on_touched = note_touched;
	i = tree_get(d, "c");
	touched.n = 0;
	assert_int_equal(copyup_inode(d->t, i, NULL), 0);
	assert_int_equal(touched.n, 4);
	assert_int_equal(times_touched(i), 1);
	assert_int_equal(times_touched(dir), 2);
	assert_int_equal(times_touched(d->t->root), 1);
	tree_forget(d, i);
	i = tree_get(d, "dir/alone");
	touched.n = 0;
	assert_int_equal(copyup_inode(d->t, i, NULL), 0);
	assert_int_equal(touched.n, 2);
	assert_int_equal(times_touched(i), 1);
	assert_int_equal(times_touched(dir), 1);
	tree_forget(d, i);
	tree_forget(d, dir);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_copyup__large_file_becomes_a_shell_with_all_its_attributes),
		row(test_copyup__change_of_attributes_copies_no_data_and_the_first_write_all),
		row(test_copyup__content_comes_along_up_to_the_limit_and_not_beyond),
		row(test_copyup__whole_copies_when_that_is_asked_for),
		row(test_copyup__small_file_goes_up_with_its_first_write),
		row(test_copyup__directories_of_a_path_come_first_and_keep_their_times),
		row(test_copyup__links_and_special_files_are_made_again),
		row(test_copyup__lower_file_at_descriptor_0_is_copied),
		row(test_copyup__owner_and_mode_are_stored_in_an_attribute_if_that_is_asked_for),
		row(test_copyup__longest_symlink_keeps_all_of_its_target),
		row(test_copyup__attributes_of_unions_stay_behind),
		row(test_copyup__unlinked_file_gets_no_name),
		row(test_copyup__all_names_of_a_lower_hard_link_come_along),
		row(test_copyup__origin_is_written_once),
		row(test_copyup__origin_is_written_also_where_the_owner_may_not_read),
		row(test_copyup__times_that_cannot_be_set_are_an_error),
		row(test_copyup__size_that_cannot_be_set_is_an_error),
		row(test_copyup__file_at_the_limit_needs_room_for_all_of_it),
		row(test_copyup__kernel_hears_of_the_file_and_of_each_names_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
