// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/cow.h"
#include "veneer/data/cow_fallocate.h"
#include "veneer/data/cow_fsync.h"
#include "veneer/data/create.h"
#include "veneer/data/materialize.h"
#include "veneer/data/remove.h"
#include "veneer/data/rename.h"
#include "veneer/layer/saved_attrs.h"
#include "veneer/map/format.h"
#include "veneer/sys/file.h"
#include "veneer/sys/xattr.h"
#include "veneer/tools/check.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SIZE	  ((size_t)2 * CHUNK_BYTES + 5000)
#define CALLS_MAX 2000

static const uint8_t capability[20] = { 1, 0, 0, 2, 0x80 };

/* With the sanitizers some of the deaths: a fork costs ten times as much. */
#ifdef __SANITIZE_ADDRESS__
#define STEP 7
#else
#define STEP 1
#endif

static int make_whole(struct union_fs *t, struct inode *i)
{
	struct materialize w;
	int r = materialize_init(&w, t, false);

	r = r ?: materialize_fill_file(&w, i);
	r = r ?: materialize_finish(&w, i);
	materialize_release(&w);
	return r;
}

static void change(struct tree_dirs *d, const char *path, char *data, const char *text, size_t off)
{
	struct inode *i = tree_get(d, path);

	memcpy(data + off, text, strlen(text));
	assert_int_equal(cow_write(d->t, i, text, strlen(text), (off_t)off), 0);
	tree_forget(d, i);
}

static void expect_raw(struct tree_dirs *d, const char *rel, const void *want, size_t len)
{
	char *got = malloc(len + 1);
	int fd = openat(d->s.fd, rel, O_RDONLY);

	assert_true(fd >= 0 && got);
	assert_int_equal(pread(fd, got, len + 1, 0), (ssize_t)len);
	assert_memory_equal(got, want, len);
	close(fd);
	free(got);
}

static void ignore(void *arg, const struct check_finding *f)
{
	(void)arg;
	(void)f;
}

/* But perhaps, after a death, an entry of the map that stands for nothing. */
static void expect_no_damage(struct tree_dirs *d, enum check_mode mode)
{
	struct check_result s = { 0 };
	char path[PATH_MAX + 16];
	struct layer *l;

	snprintf(path, sizeof(path), "%s/upper", d->s.path);
	assert_int_equal(layer_open(path, &l), 0);
	assert_int_equal(check_layer(l, NULL, mode, &(struct check_hooks){ .found = ignore }, &s),
			 0);
	assert_int_equal(s.found, s.repaired);
	assert_true(s.found <= 1);
	layer_unref(l);
}

static void test_materialize__file_in_use_becomes_an_ordinary_one(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1);
	const struct timespec times[2] = { { 1000, 5 }, { 2000, 7 } };
	struct stat before, after;
	struct inode *i;

	tree_mount(d, NULL);
	change(d, "f", data, "new", 700000);
	assert_int_equal(utimensat(d->s.fd, "upper/f", times, 0), 0);
	before = tree_stat(d, "f");
	i = tree_get(d, "f");
	assert_int_equal(make_whole(d->t, i), 1);
	assert_int_equal(i->src.id, 0);
	assert_int_equal(mapfile_count(d->t->map), 0);
	assert_false(tree_is_partial(d, "upper/f"));
	after = tree_stat(d, "f");
	assert_int_equal(after.st_ino, before.st_ino);
	assert_int_equal(after.st_mtim.tv_sec, 2000);
	assert_int_equal(after.st_mtim.tv_nsec, 7);
	assert_int_equal(after.st_atim.tv_sec, 1000);
	assert_int_equal(xattr_get(d->s.fd, "upper/f", SAVED_ATTRS_ATTR, NULL, 0), -ENODATA);
	expect_raw(d, "upper/f", data, SIZE);
	/* A holder of the inode goes on with it. */
	assert_int_equal(cow_write(d->t, i, "more", 4, SIZE - 2), 0);
	assert_int_equal(cow_fsync(d->t, i, false), 0);
	tree_forget(d, i);
	data = realloc(data, SIZE + 2);
	memcpy(data + SIZE - 2, "more", 4);
	tree_expect(d, "f", data, SIZE + 2);
	tree_unmount(d);
	tree_mount(d, NULL);
	assert_int_equal(tree_stat(d, "f").st_ino, before.st_ino);
	tree_expect(d, "f", data, SIZE + 2);
	tree_unmount(d);
	expect_no_damage(d, CHECK_LOOKS);
	free(data);
}

static void test_materialize__file_with_a_block_missing_stays_partial(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1);
	struct materialize w;
	struct inode *i;

	tree_mount(d, "volatile");
	change(d, "f", data, "new", 0);
	i = tree_get(d, "f");
	assert_int_equal(materialize_init(&w, d->t, false), 0);
	assert_int_equal(materialize_fill(&w, i, 0, 2 * CHUNK_BLKS + 1), 0);
	assert_int_equal(w.bytes, 2 * CHUNK_BYTES);
	assert_int_equal(materialize_finish(&w, i), 0);
	assert_true(tree_is_partial(d, "upper/f"));
	tree_expect(d, "f", data, SIZE);
	/* Once more there is only the rest to do. */
	assert_int_equal(materialize_fill_file(&w, i), 0);
	assert_int_equal(w.bytes, 2 * CHUNK_BYTES + 5000 - BLK_BYTES);
	assert_int_equal(materialize_finish(&w, i), 1);
	assert_int_equal(materialize_finish(&w, i), 1);
	assert_int_equal(materialize_fill_file(&w, i), 0);
	tree_expect(d, "f", data, SIZE);
	materialize_release(&w);
	tree_forget(d, i);
	free(data);
}

/* The bytes of a file, to be freed, that is a long hole below and has bytes where it has none of
 * its own. */
static char *put_holes(struct tree_dirs *d)
{
	char *data = calloc(1, SIZE);
	int fd;

	tree_put(d, "lower/f", "head", 4);
	fd = openat(d->s.fd, "lower/f", O_WRONLY);
	assert_int_equal(ftruncate(fd, SIZE), 0);
	close(fd);
	memcpy(data, "head", 4);
	tree_mount(d, "volatile");
	change(d, "f", data, "new", 600000);
	/* Bytes of a server that died before it recorded them. */
	fd = openat(d->s.fd, "upper/f", O_WRONLY);
	assert_int_equal(pwrite(fd, "dead", 4, 300000), 4);
	close(fd);
	return data;
}

static void test_materialize__holes_below_stay_holes(void **state)
{
	struct tree_dirs *d = *state;
	char *data = put_holes(d);
	struct inode *i = tree_get(d, "f");
	struct stat st;

	errno = EIO;
	assert_int_equal(make_whole(d->t, i), 1);
	tree_forget(d, i);
	assert_int_equal(fstatat(d->s.fd, "upper/f", &st, 0), 0);
	assert_true(st.st_blocks <= 4 * BLK_BYTES / 512);
	expect_raw(d, "upper/f", data, SIZE);
	free(data);
}

struct one_file {
	struct union_fs *t;
	struct inode *i;
};

static int make_it_whole(void *arg)
{
	const struct one_file *f = arg;

	return make_whole(f->t, f->i);
}

static void test_materialize__where_no_holes_are_made_there_are_zeros(void **state)
{
	struct tree_dirs *d = *state;
	char *data = put_holes(d);
	struct one_file f = { d->t, tree_get(d, "f") };

	assert_int_equal(scratch_run_denied(SYS_fallocate, EIO, make_it_whole, &f), -EIO);
	assert_true(tree_is_partial(d, "upper/f"));
	assert_int_equal(scratch_run_denied(SYS_fallocate, EOPNOTSUPP, make_it_whole, &f), 1);
	tree_forget(d, f.i);
	expect_raw(d, "upper/f", data, SIZE);
	free(data);
}

static void test_materialize__cut_grown_and_punched_files_show_the_same(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1);
	struct inode *i;

	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(cow_truncate(d->t, i, 700001), 0);
	assert_int_equal(cow_truncate(d->t, i, SIZE), 0);
	memset(data + 700001, 0, SIZE - 700001);
	assert_int_equal(
		cow_fallocate(d->t, i, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 50000, 100000),
		0);
	memset(data + 50000, 0, 100000);
	tree_expect(d, "f", data, SIZE);
	assert_int_equal(make_whole(d->t, i), 1);
	tree_forget(d, i);
	expect_raw(d, "upper/f", data, SIZE);
	free(data);
}

/* As a server leaves it that dies between the two. */
static void test_materialize__cut_that_the_map_never_heard_of_leaves_an_ordinary_file(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1);
	struct inode *i;
	int fd;

	tree_mount(d, "volatile");
	change(d, "f", data, "new", 10);
	tree_unmount(d);
	fd = openat(d->s.fd, "upper/f", O_WRONLY);
	assert_int_equal(ftruncate(fd, 3 * BLK_BYTES), 0);
	close(fd);
	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(make_whole(d->t, i), 1);
	assert_false(tree_is_partial(d, "upper/f"));
	tree_expect_inode(d, i, data, 3 * BLK_BYTES);
	tree_forget(d, i);
	expect_raw(d, "upper/f", data, 3 * BLK_BYTES);
	free(data);
}

/* A disk that shares none is asked once. */
static void test_materialize__blocks_are_shared_where_the_disk_can(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1);
	struct materialize w;
	struct inode *i;
	int from, to, r;

	tree_put_text(d, "probe/f", "");
	from = openat(d->s.fd, "lower/f", O_RDONLY);
	to = openat(d->s.fd, "probe/f", O_RDWR);
	r = file_clone_range(from, to, 0, BLK_BYTES);
	close(from);
	close(to);
	tree_mount(d, "volatile");
	change(d, "f", data, "new", 10);
	i = tree_get(d, "f");
	assert_int_equal(materialize_init(&w, d->t, false), 0);
	assert_false(w.cannot_clone);
	assert_int_equal(materialize_fill_file(&w, i), 0);
	assert_int_equal(w.cannot_clone, r == -EOPNOTSUPP);
	assert_int_equal(w.cloned > 0, r == 0);
	materialize_release(&w);
	tree_expect_inode(d, i, data, SIZE);
	tree_forget(d, i);
	free(data);
}

static void test_materialize__unlinked_file_is_left_alone(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1);
	struct inode *i;

	tree_mount(d, "volatile");
	change(d, "f", data, "new", 0);
	i = tree_get(d, "f");
	assert_int_equal(remove_file(d->t, d->t->root, "f"), 0);
	assert_int_equal(make_whole(d->t, i), 0);
	assert_int_equal(mapfile_count(d->t->map), 1);
	tree_expect_inode(d, i, data, SIZE);
	tree_forget(d, i);
	assert_int_equal(mapfile_count(d->t->map), 0);
	free(data);
}

static void
test_materialize__lower_that_cannot_be_read_is_an_error_and_changes_nothing(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1);
	struct inode *i;
	int fd;

	tree_mount(d, "volatile");
	change(d, "f", data, "new", 0);
	i = tree_get(d, "f");
	fd = openat(d->s.fd, "lower/f", O_WRONLY);
	assert_int_equal(ftruncate(fd, 100000), 0);
	assert_int_equal(make_whole(d->t, i), -EIO);
	/* Not a hole. */
	assert_int_equal(ftruncate(fd, 4), 0);
	close(fd);
	assert_int_equal(make_whole(d->t, i), -EIO);
	assert_true(tree_is_partial(d, "upper/f"));
	assert_int_equal(xattr_get(d->s.fd, "upper/f", SAVED_ATTRS_ATTR, NULL, 0), -ENODATA);
	tree_forget(d, i);
	free(data);
}

/* ---- as a lower layer, by somebody who read the map before ---- */

static void test_materialize__mount_above_reads_on(void **state)
{
	struct tree_dirs *d = *state, above = { .names = "" };
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1);
	char *other = tree_put_pattern(d, "lower/late", SIZE, 2);
	char *third = tree_put_pattern(d, "lower/dir/partial", SIZE, 3);
	struct inode *seen, *i;

	tree_put_dir(d, "upper/dir");
	tree_mount(d, "volatile");
	change(d, "f", data, "new", 700000);
	change(d, "late", other, "new", 700000);
	above.s = d->s;
	{
		char text[PATH_MAX * 3], point[] = "/nowhere", self[] = "veneer", flag[] = "-o";
		char *argv[] = { self, flag, text, point, NULL };
		struct mount_opts opts;

		snprintf(text, sizeof(text), "lowerdir=%s/upper:%s/lower", d->s.path, d->s.path);
		assert_int_equal(options_parse(&(struct options_argv){ 4, argv, "/", true, false },
					       &opts, above.err, sizeof(above.err)),
				 0);
		assert_int_equal(mount_open(&above.m, &opts, above.err, sizeof(above.err)), 0);
		above.t = &above.m.tree;
	}
	seen = tree_get(&above, "f");
	tree_expect_inode(&above, seen, data, SIZE);
	i = tree_get(d, "f");
	assert_int_equal(make_whole(d->t, i), 1);
	tree_forget(d, i);
	i = tree_get(d, "late");
	assert_int_equal(make_whole(d->t, i), 1);
	tree_forget(d, i);
	change(d, "dir/partial", third, "new", 700000);
	/* The last one makes it read the map again, which does not know the first any more. */
	tree_expect(&above, "late", other, SIZE);
	tree_expect(&above, "dir/partial", third, SIZE);
	tree_expect_inode(&above, seen, data, SIZE);
	tree_forget(&above, seen);
	tree_unmount(&above);
	free(data);
	free(other);
	free(third);
}

/* ---- death at each system call ---- */

/* The child, up to its death or its end. */
static void child(struct tree_dirs *d)
{
	struct inode *i;

	if (tree_try_mount(d, "volatile") < 0)
		_exit(2);
	i = tree_look(d, "f");
	if (!i || cow_write(d->t, i, "new", 3, 700000) < 0 ||
	    utimensat(d->s.fd, "upper/f", (struct timespec[]){ { 1000, 5 }, { 2000, 7 } }, 0) < 0)
		_exit(3);
	if (geteuid() == 0 && xattr_set(d->s.fd, "upper/f", "security.capability", capability,
					sizeof(capability), 0) < 0)
		_exit(3);
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	_exit(make_whole(d->t, i) == 1 ? 0 : 4);
}

/* Killed at its n-th system call, instead of it: true; it had fewer. */
static bool die_at(struct tree_dirs *d, unsigned n)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		child(d);
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSTOPPED(status));
	for (unsigned stop = 0; stop + 1 < 2 * n; stop++) {
		assert_int_equal(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status)) {
			assert_int_equal(WEXITSTATUS(status), 0);
			return false;
		}
		assert_true(WIFSTOPPED(status));
	}
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	return true;
}

static void expect_same(struct tree_dirs *d, const char *data, uint64_t ino)
{
	struct stat st;

	st = tree_stat(d, "f");
	assert_int_equal(st.st_ino, ino);
	assert_int_equal(st.st_size, SIZE);
	assert_int_equal(st.st_mtim.tv_sec, 2000);
	assert_int_equal(st.st_mtim.tv_nsec, 7);
	tree_expect(d, "f", data, SIZE);
}

/* A death while a chunk is written takes it away. */
static void expect_capability_or_none(struct tree_dirs *d, bool is_written)
{
	uint8_t got[64];
	ssize_t n;

	if (geteuid() != 0)
		return;
	n = xattr_get(d->s.fd, "upper/f", "security.capability", got, sizeof(got));
	if (n == -ENODATA)
		return;
	assert_false(is_written);
	assert_int_equal(n, sizeof(capability));
	assert_memory_equal(got, capability, sizeof(capability));
}

/* As the owner may with the file while no server runs; then the kernel takes the capability
 * away. */
static void write_raw(struct tree_dirs *d)
{
	int fd = openat(d->s.fd, "upper/f", O_WRONLY);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "new", 3, 700000), 3);
	assert_int_equal(futimens(fd, (struct timespec[]){ { 1000, 5 }, { 2000, 7 } }), 0);
	close(fd);
}

static bool trial(struct tree_dirs *d, unsigned n)
{
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1);
	struct inode *i;
	uint64_t ino;
	bool is_dead, is_written;

	tree_mount(d, "volatile");
	ino = tree_stat(d, "f").st_ino;
	tree_unmount(d);
	is_dead = die_at(d, n);
	is_written = is_dead && n % 2;
	if (is_written)
		write_raw(d);
	memcpy(data + 700000, "new", 3);
	tree_mount(d, "volatile");
	expect_same(d, data, ino);
	expect_capability_or_none(d, is_written);
	i = tree_get(d, "f");
	assert_int_equal(make_whole(d->t, i), 1);
	tree_forget(d, i);
	expect_same(d, data, ino);
	expect_capability_or_none(d, is_written);
	tree_unmount(d);
	assert_int_equal(xattr_get(d->s.fd, "upper/f", SAVED_ATTRS_ATTR, NULL, 0), -ENODATA);
	assert_false(tree_is_partial(d, "upper/f"));
	expect_raw(d, "upper/f", data, SIZE);
	expect_no_damage(d, CHECK_REPAIRS);
	tree_mount(d, "volatile");
	expect_same(d, data, ino);
	tree_unmount(d);
	free(data);
	return is_dead;
}

static void test_materialize__death_at_any_call_shows_the_same(void **state)
{
	unsigned n = 1;
	bool is_dead = true;

	(void)state;
	for (; is_dead && n < CALLS_MAX; n += STEP) {
		struct tree_dirs *d;

		assert_int_equal(tree_setup((void **)&d), 0);
		is_dead = trial(d, n);
		tree_teardown((void **)&d);
	}
	print_message("%u calls\n", n);
	assert_false(is_dead);
	assert_true(n > 30);
}

#define TREE_TEST(f) cmocka_unit_test_setup_teardown(f, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TREE_TEST(test_materialize__file_in_use_becomes_an_ordinary_one),
		TREE_TEST(test_materialize__file_with_a_block_missing_stays_partial),
		TREE_TEST(test_materialize__holes_below_stay_holes),
		TREE_TEST(test_materialize__where_no_holes_are_made_there_are_zeros),
		TREE_TEST(test_materialize__cut_grown_and_punched_files_show_the_same),
		TREE_TEST(
			test_materialize__cut_that_the_map_never_heard_of_leaves_an_ordinary_file),
		TREE_TEST(test_materialize__blocks_are_shared_where_the_disk_can),
		TREE_TEST(test_materialize__unlinked_file_is_left_alone),
		TREE_TEST(
			test_materialize__lower_that_cannot_be_read_is_an_error_and_changes_nothing),
		TREE_TEST(test_materialize__mount_above_reads_on),
		cmocka_unit_test(test_materialize__death_at_any_call_shows_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
