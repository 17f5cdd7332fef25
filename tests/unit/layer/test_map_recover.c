// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "map/mapfile-internal.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/data/cow.h"
#include "veneer/layer/layer.h"
#include "veneer/layer/map_recover.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/layer/source.h"
#include "veneer/map/format.h"
#include "veneer/map/session_epoch.h"

#include <grp.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define BIG (20 * BLK_BYTES)

struct blocks {
	uint64_t bits;
	int result;
};

static int note(void *arg, blk_t blk, blk_t n)
{
	struct blocks *b = arg;

	for (blk_t k = blk; k < blk + n && k < 64; k++)
		b->bits |= (uint64_t)1 << k;
	return b->result;
}

/* A partial file dir/f with blocks 3 and 7 own, and its mark. */
static void make_partial(struct tree_dirs *d, struct partial_xattr *m)
{
	char path[PATH_MAX + 64];
	struct inode *i;

	free(tree_put_pattern(d, "lower/dir/f", BIG, 1));
	tree_mount(d, "volatile");
	i = tree_get(d, "dir/f");
	assert_int_equal(cow_write(d->t, i, "x", 1, 3 * BLK_BYTES + 5), 0);
	assert_int_equal(cow_write(d->t, i, "x", 1, 7 * BLK_BYTES), 0);
	tree_unmount(d);
	snprintf(path, sizeof(path), "%s/upper/dir/f", d->s.path);
	assert_int_equal(source_read_mark(AT_FDCWD, path, m, NULL), 1);
}

static int ask(struct tree_dirs *d, file_id_t id, bool has_true_extents, struct blocks *b)
{
	_cleanup_(closep) int fd = openat(d->s.fd, "upper", O_RDONLY | O_DIRECTORY);
	struct map_recover r;
	int result;

	map_recover_init(&r, fd, "upper", has_true_extents);
	result = r.hook.extents(r.hook.arg, id, note, b);
	map_recover_release(&r);
	return result;
}

static void test_map_recover__allocated_blocks_are_own(void **state)
{
	struct tree_dirs *d = *state;
	struct blocks b = { 0 };
	struct partial_xattr m;
	int r;

	make_partial(d, &m);
	r = ask(d, m.file_id, true, &b);
	if (r == -EOPNOTSUPP)
		skip();
	assert_int_equal(r, 0);
	assert_int_equal(b.bits, 1u << 3 | 1u << 7);
}

static void test_map_recover__callback_that_fails_ends_it(void **state)
{
	struct tree_dirs *d = *state;
	struct blocks b = { .result = -ENOMEM };
	struct partial_xattr m;
	int r;

	make_partial(d, &m);
	r = ask(d, m.file_id, true, &b);
	if (r == -EOPNOTSUPP)
		skip();
	assert_int_equal(r, -ENOMEM);
}

static void test_map_recover__unknown_id_has_no_file(void **state)
{
	struct tree_dirs *d = *state;
	struct blocks b = { 0 };
	struct partial_xattr m;

	make_partial(d, &m);
	assert_int_equal(ask(d, m.file_id + 1, true, &b), -ENOENT);
	assert_int_equal(b.bits, 0);
}

static void test_map_recover__extents_that_lie_are_not_asked(void **state)
{
	struct tree_dirs *d = *state;
	struct blocks b = { 0 };
	struct partial_xattr m;

	make_partial(d, &m);
	assert_int_equal(ask(d, m.file_id, false, &b), -EOPNOTSUPP);
	assert_int_equal(b.bits, 0);
}

static struct layer *open_upper(struct tree_dirs *d)
{
	char path[PATH_MAX + 64];
	struct layer *l;

	snprintf(path, sizeof(path), "%s/upper", d->s.path);
	assert_int_equal(layer_open(path, &l), 0);
	return l;
}

static void test_map_recover__entering_again_takes_only_what_may_have_been_lost(void **state)
{
	struct tree_dirs *d = *state;
	struct mapfile *map;
	struct layer *l;
	struct partial_xattr m;

	make_partial(d, &m);
	l = open_upper(d);
	assert_int_equal(layer_map(l, &map), 0);

	_cleanup_(closep) int fd = openat(l->rootfd, "dir/f", O_RDONLY);

	/* The file is known. */
	assert_int_equal(map_recover_enter(l, map, &m, fd), 0);
	assert_int_equal(map_recover_enter(l, map, &m, -EACCES), -EACCES);
	/* No unclean boot lost this one. */
	m.file_id += 5;
	assert_int_equal(map_recover_enter(l, map, &m, fd), -ENOENT);
	m.uuid_low++;
	assert_int_equal(map_recover_enter(l, map, &m, fd), -ENOENT);
	layer_unref(l);
}

static void test_map_recover__file_whose_record_was_lost_keeps_its_lower_bytes(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/dir/f", BIG, 1);
	struct inode *i;

	session_epoch_for_tests = 0xaaaa;
	tree_mount(d, "volatile");
	i = tree_get(d, "dir/f");
	assert_int_equal(cow_write(d->t, i, "x", 1, 3 * BLK_BYTES), 0);
	tree_unmount(d);
	session_epoch_for_tests = 0xbbbb;
	tree_mount(d, "volatile");
	/* Both are right: where extents tell the truth the write is there, elsewhere the old byte
	 * is. */
	i = tree_get(d, "dir/f");
	if (!d->t->can.has_true_extents) {
		tree_expect_inode(d, i, data, BIG);
	} else {
		data[3 * BLK_BYTES] = 'x';
		tree_expect_inode(d, i, data, BIG);
	}
	assert_int_equal(cow_write(d->t, i, "y", 1, 5 * BLK_BYTES), 0);
	data[5 * BLK_BYTES] = 'y';
	tree_expect_inode(d, i, data, BIG);
	tree_unmount(d);
	tree_mount(d, "volatile");
	tree_expect(d, "dir/f", data, BIG);
	tree_unmount(d);
	session_epoch_for_tests = 0;
	free(data);
}

/* A marked file with two blocks, the first one at blk. */
static void put_marked(int dirfd, const char *name, file_id_t id, blk_t blk)
{
	struct partial_xattr m = { .file_id = id, .uuid_low = 1, .lower_size = BIG };
	char data[2 * BLK_BYTES];
	struct buf value = { 0 };
	int fd = openat(dirfd, name, O_WRONLY | O_CREAT, 0600);

	memset(data, 'x', sizeof(data));
	assert_true(fd >= 0);
	assert_int_equal(partial_xattr_encode(&m, &value), 0);
	assert_int_equal(fsetxattr(fd, FORMAT_PARTIAL_ATTR, value.data, value.len, 0), 0);
	assert_int_equal(pwrite(fd, data, sizeof(data), (off_t)(blk * BLK_BYTES)), sizeof(data));
	assert_int_equal(ftruncate(fd, BIG), 0);
	buf_release(&value);
	close(fd);
}

#define DEEP_LEVELS 5000

struct deep_scan {
	int rootfd, result;
	struct blocks b;
};

static void *scan_deep(void *arg)
{
	struct deep_scan *s = arg;
	struct map_recover r;

	map_recover_init(&r, s->rootfd, "upper", true);
	s->result = r.hook.extents(r.hook.arg, 77, note, &s->b);
	if (s->result == 0 && r.is_partial)
		s->result = -EUCLEAN;
	map_recover_release(&r);
	return NULL;
}

/* Deeper than any path may be long, with a stack and descriptors for a few levels. */
static void test_map_recover__depth_of_the_tree_costs_neither_stack_nor_descriptors(void **state)
{
	struct tree_dirs *d = *state;
	struct deep_scan s = { .rootfd = openat(d->s.fd, "upper", O_RDONLY | O_DIRECTORY) };
	struct rlimit old, few;
	pthread_attr_t attr;
	pthread_t thread;
	char command[PATH_MAX + 64];
	int fd = dup(s.rootfd);

	for (int i = 0; i < DEEP_LEVELS; i++) {
		int sub;

		assert_int_equal(mkdirat(fd, "deep", 0700), 0);
		if (i % 1000 == 0)
			assert_int_equal(mkdirat(fd, "side", 0700), 0);
		sub = openat(fd, "deep", O_RDONLY | O_DIRECTORY);
		assert_true(sub >= 0);
		close(fd);
		fd = sub;
	}
	put_marked(fd, "f", 77, 4);
	close(fd);

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few = (struct rlimit){ (rlim_t)s.rootfd + 40, old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	pthread_attr_init(&attr);
	assert_int_equal(pthread_attr_setstacksize(&attr, 192 << 10), 0);
	assert_int_equal(pthread_create(&thread, &attr, scan_deep, &s), 0);
	pthread_join(thread, NULL);
	pthread_attr_destroy(&attr);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	snprintf(command, sizeof(command), "rm -rf '%s/upper/deep'", d->s.path);
	assert_int_equal(system(command), 0);
	close(s.rootfd);
	if (s.result == -EOPNOTSUPP)
		skip();
	assert_int_equal(s.result, 0);
	assert_int_equal(s.b.bits, 3u << 4);
}

static void test_map_recover__each_of_many_files_has_its_own_blocks(void **state)
{
	struct tree_dirs *d = *state;
	_cleanup_(closep) int fd = openat(d->s.fd, "upper", O_RDONLY | O_DIRECTORY);
	struct map_recover r;
	char name[32];

	for (unsigned k = 0; k < 300; k++) {
		snprintf(name, sizeof(name), "f%u", k);
		put_marked(fd, name, 1000 - 3 * k, k % 10);
	}
	assert_int_equal(linkat(fd, "f7", fd, "link", 0), 0);
	assert_int_equal(symlinkat("f7", fd, "symlink"), 0);
	assert_int_equal(mkfifoat(fd, "fifo", 0600), 0);
	map_recover_init(&r, fd, "upper", true);
	for (unsigned k = 0; k < 300; k++) {
		struct blocks b = { 0 };
		int e = r.hook.extents(r.hook.arg, 1000 - 3 * k, note, &b);

		if (e == -EOPNOTSUPP)
			skip();
		assert_int_equal(e, 0);
		assert_int_equal(b.bits, (uint64_t)3 << k % 10);
		assert_int_equal(r.hook.extents(r.hook.arg, 1001 - 3 * k, note, &b), -ENOENT);
	}
	assert_false(r.is_partial);
	map_recover_release(&r);
}

/* An unreadable file may be the very file: its entry must stay as it was committed. */
static void test_map_recover__unreadable_file_proves_no_other_absent(void **state)
{
	struct tree_dirs *d = *state;
	_cleanup_(closep) int fd = openat(d->s.fd, "upper", O_RDONLY | O_DIRECTORY);
	struct blocks b = { 0 };
	struct map_recover r;
	int bad;

	put_marked(fd, "good", 5, 2);
	put_marked(fd, "bad", 6, 2);
	bad = openat(fd, "bad", O_WRONLY);
	assert_int_equal(fsetxattr(bad, FORMAT_PARTIAL_ATTR, "?", 1, 0), 0);
	close(bad);
	log_set_level(-1);
	map_recover_init(&r, fd, "upper", true);
	assert_int_equal(r.hook.extents(r.hook.arg, 6, note, &b), -EOPNOTSUPP);
	assert_int_equal(r.hook.extents(r.hook.arg, 5, note, &b), 0);
	assert_int_equal(b.bits, 3u << 2);
	map_recover_release(&r);
	log_set_level(LOG_LVL_INFO);
}

static bool has_bad_holes;

/* In place of the C library's. */
off_t lseek(int fd, off_t off, int whence)
{
	if (!has_bad_holes || whence != SEEK_HOLE)
		return syscall(SYS_lseek, fd, off, whence);
	errno = EIO;
	return -1;
}

static void test_map_recover__error_is_not_the_end_of_a_file(void **state)
{
	struct tree_dirs *d = *state;
	_cleanup_(closep) int fd = openat(d->s.fd, "upper", O_RDONLY | O_DIRECTORY);
	struct blocks b = { 0 };
	struct map_recover r;
	uint64_t size;

	put_marked(fd, "f", 5, 2);
	map_recover_init(&r, fd, "upper", false);
	assert_int_equal(r.hook.contents(r.hook.arg, 5, note, &b, &size), 0);
	assert_int_equal(b.bits, 3u << 2);
	map_recover_release(&r);
	has_bad_holes = true;
	log_set_level(-1);
	map_recover_init(&r, fd, "upper", false);
	assert_true(r.hook.contents(r.hook.arg, 5, note, &b, &size) < 0);
	map_recover_release(&r);
	log_set_level(LOG_LVL_INFO);
	has_bad_holes = false;
}

/* In a process without privileges; 0: the file was not touched. */
static int recover_unreadable(int dirfd, bool is_ours)
{
	struct stat before, after;
	struct blocks b = { 0 };
	struct map_recover r;

	if (fstatat(dirfd, "f", &before, 0) < 0)
		return 1;
	log_set_level(-1);
	map_recover_init(&r, dirfd, "upper", true);
	r.is_ours = is_ours;
	r.hook.extents(r.hook.arg, 5, note, &b);
	map_recover_release(&r);
	if (fstatat(dirfd, "f", &after, 0) < 0 || after.st_mode != before.st_mode)
		return 1;
	return memcmp(&before.st_ctim, &after.st_ctim, sizeof(before.st_ctim)) ? 2 : 0;
}

static void test_map_recover__mode_in_a_lower_layer_is_not_touched(void **state)
{
	struct tree_dirs *d = *state;
	_cleanup_(closep) int fd = openat(d->s.fd, "upper", O_RDONLY | O_DIRECTORY);

	put_marked(fd, "f", 5, 2);
	assert_int_equal(fchmodat(fd, "f", 0, 0), 0);
	if (geteuid() == 0)
		assert_true(fchown(fd, 12345, 12345) == 0 &&
			    fchownat(fd, "f", 12345, 12345, 0) == 0);
	for (int is_ours = 0; is_ours < 2; is_ours++) {
		pid_t pid = fork();
		int status;

		if (pid == 0) {
			if (geteuid() == 0 &&
			    (setgroups(0, NULL) < 0 || setresgid(12345, 12345, 12345) < 0 ||
			     setresuid(12345, 12345, 12345) < 0))
				_exit(3);
			_exit(recover_unreadable(fd, is_ours));
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		/* The test would see it where it is ours. */
		assert_int_equal(WEXITSTATUS(status), is_ours ? 2 : 0);
	}
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_map_recover__allocated_blocks_are_own),
		row(test_map_recover__callback_that_fails_ends_it),
		row(test_map_recover__unknown_id_has_no_file),
		row(test_map_recover__extents_that_lie_are_not_asked),
		row(test_map_recover__entering_again_takes_only_what_may_have_been_lost),
		row(test_map_recover__file_whose_record_was_lost_keeps_its_lower_bytes),
		row(test_map_recover__depth_of_the_tree_costs_neither_stack_nor_descriptors),
		row(test_map_recover__each_of_many_files_has_its_own_blocks),
		row(test_map_recover__unreadable_file_proves_no_other_absent),
		row(test_map_recover__error_is_not_the_end_of_a_file),
		row(test_map_recover__mode_in_a_lower_layer_is_not_touched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
