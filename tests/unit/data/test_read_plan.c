// SPDX-License-Identifier: Apache-2.0
/* Pieces are sent to a file, as they are to the kernel in earnest, and must be what read_file
 * gives. */
#include "veneer/data/read_plan.h"

#include "support/counter.h"
#include "support/tree.h"

#include "veneer/base/stats.h"
#include "veneer/data/cow.h"
#include "veneer/data/read.h"

#include <limits.h>
#include <sys/mman.h>

#define SIZE   (3 * MMAP_CACHE_BYTES + 12345)
#define LARGE  (1u << 20)
#define ROUNDS 60

static struct read_plan p;

/* Returns the bytes; p stays as it was read. */
static ssize_t shared_sb(struct tree_dirs *d, struct inode *i, char *buf, char *out, size_t len,
			 off_t off)
{
	int sink = memfd_create("sink", MFD_CLOEXEC);
	ssize_t n, sent;

	assert_true(sink >= 0);
	memset(buf, 0x5a, len);
	p.niov = 0;
	p.nwindows = 0;
	n = read_plan_read(d->t, i, buf, len, off, &p);
	if (n > 0) {
		assert_true(p.niov > 0 && p.niov < IOV_MAX);
		sent = writev(sink, p.iov, p.niov);
		assert_int_equal(sent, n);
		assert_int_equal(pread(sink, out, len, 0), n);
	}
	close(sink);
	return n;
}

static void expect(struct tree_dirs *d, struct inode *i, const char *data, size_t size, size_t len,
		   off_t off)
{
	char *buf = malloc(len), *out = malloc(len);
	ssize_t n = shared_sb(d, i, buf, out, len, off);
	size_t there = (size_t)off < size ? size - (size_t)off : 0;

	assert_int_equal(n, there < len ? there : len);
	if (n)
		assert_memory_equal(out, data + off, (size_t)n);
	read_plan_release(&p);
	free(buf);
	free(out);
}

static void expect_random(struct tree_dirs *d, struct inode *i, const char *data, size_t size,
			  uint64_t *seed)
{
	expect(d, i, data, size, LARGE, 0);
	expect(d, i, data, size, 2 * LARGE, 0);
	expect(d, i, data, size, LARGE, (off_t)size);
	expect(d, i, data, size, LARGE, (off_t)size - 1);
	expect(d, i, data, size, LARGE, (off_t)size + 100000);
	for (unsigned round = 0; round < ROUNDS; round++) {
		off_t off = (off_t)(tree_random(seed) % (size + 5000));

		expect(d, i, data, size, tree_random(seed) % LARGE + 1,
		       round % 3 ? off : off / 4096 * 4096);
	}
}

static void change(struct tree_dirs *d, struct inode *i, char *data, off_t off, size_t len,
		   uint64_t seed)
{
	char *bytes = malloc(len);

	tree_pattern(bytes, len, seed);
	memcpy(data + off, bytes, len);
	assert_int_equal(cow_write(d->t, i, bytes, len, off), 0);
	free(bytes);
}

static void test_read_plan__lower_file_comes_from_windows(void **state)
{
	struct tree_dirs *d = *state;
	uint64_t hits, seed = tree_seed("pieces");
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1), *buf = malloc(LARGE),
	     *out = malloc(LARGE);
	struct inode *i;

	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(shared_sb(d, i, buf, out, LARGE, 4096), LARGE);
	assert_int_equal(p.nwindows, 3);
	for (size_t k = 0; k < LARGE; k++)
		assert_int_equal((unsigned char)buf[k], 0x5a);
	read_plan_release(&p);
	hits = counter_total(STATS_WINDOW_HITS);
	expect(d, i, data, SIZE, LARGE, 4096);
	assert_int_equal(counter_total(STATS_WINDOW_HITS) - hits, LARGE / 4096);
	expect_random(d, i, data, SIZE, &seed);
	free(data);
	free(buf);
	free(out);
}

static void test_read_plan__small_reads_and_upper_files_use_none(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1), *buf = malloc(LARGE),
	     *out = malloc(LARGE);
	struct inode *i;

	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(shared_sb(d, i, buf, out, 4096, 4096), 4096);
	assert_int_equal(p.nwindows, 0);
	read_plan_release(&p);
	i = tree_make(d, "", "new", 0644);
	assert_int_equal(cow_write(d->t, i, data, SIZE, 0), 0);
	assert_int_equal(shared_sb(d, i, buf, out, LARGE, 4096), LARGE);
	assert_int_equal(p.nwindows, 0);
	assert_memory_equal(out, data + 4096, LARGE);
	read_plan_release(&p);
	free(data);
	free(buf);
	free(out);
}

static void test_read_plan__own_blocks_are_read_and_the_others_are_windows(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1), *buf = malloc(LARGE),
	     *out = malloc(LARGE);
	uint64_t seed = tree_seed("pieces");
	struct inode *i;

	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	change(d, i, data, 100 * BLK_BYTES, BLK_BYTES, 2);
	change(d, i, data, 120 * BLK_BYTES + 100, 3 * BLK_BYTES, 3);
	assert_int_equal(shared_sb(d, i, buf, out, LARGE, 0), LARGE);
	assert_memory_equal(out, data, LARGE);
	/* Five blocks were read, at their own place. */
	for (blk_t b = 0; b < LARGE / BLK_BYTES; b++) {
		bool is_own = b == 100 || (b >= 120 && b <= 123);

		assert_int_equal(buf[b * BLK_BYTES] == 0x5a && buf[b * BLK_BYTES + 1] == 0x5a,
				 !is_own);
	}
	read_plan_release(&p);
	expect_random(d, i, data, SIZE, &seed);
	/* Cut, and grown again: what was below is not to be seen. */
	assert_int_equal(cow_truncate(d->t, i, MMAP_CACHE_BYTES + 777), 0);
	expect_random(d, i, data, MMAP_CACHE_BYTES + 777, &seed);
	assert_int_equal(cow_truncate(d->t, i, SIZE), 0);
	memset(data + MMAP_CACHE_BYTES + 777, 0, SIZE - MMAP_CACHE_BYTES - 777);
	expect_random(d, i, data, SIZE, &seed);
	free(data);
	free(buf);
	free(out);
}

static void test_read_plan__more_segments_than_fit_are_read(void **state)
{
	struct tree_dirs *d = *state;
	const size_t len = 1000 * BLK_BYTES;
	char *data = tree_put_pattern(d, "lower/f", len, 1);
	struct inode *i;

	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	for (unsigned blk = 0; blk < 1000; blk += 2)
		change(d, i, data, (off_t)blk * BLK_BYTES + 5, 10, blk);
	expect(d, i, data, len, len, 0);
	expect(d, i, data, len, LARGE, 0);
	expect(d, i, data, len, len, 2000);
	free(data);
}

static void test_read_plan__stack_of_partial_files(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1);
	uint64_t seed = tree_seed("pieces");

	for (unsigned layer = 0; layer < 3; layer++) {
		struct inode *i;

		tree_mount(d, "volatile");
		i = tree_get(d, "f");
		for (unsigned k = 0; k < 20; k++)
			change(d, i, data, (off_t)(tree_random(&seed) % (SIZE - 9000)),
			       tree_random(&seed) % 9000 + 1, tree_random(&seed));
		expect_random(d, i, data, SIZE, &seed);
		tree_unmount(d);
		tree_freeze(d);
	}
	tree_mount(d, "volatile");
	expect_random(d, tree_get(d, "f"), data, SIZE, &seed);
	free(data);
}

static void test_read_plan__sparse_lower_file(void **state)
{
	struct tree_dirs *d = *state;
	char *data = calloc(1, SIZE);
	uint64_t seed = tree_seed("pieces");
	struct inode *i;
	int fd;

	tree_put_text(d, "lower/f", "");
	fd = openat(d->s.fd, "lower/f", O_RDWR);
	assert_int_equal(ftruncate(fd, SIZE), 0);
	tree_pattern(data + 700000, 5000, 9);
	assert_int_equal(pwrite(fd, data + 700000, 5000, 700000), 5000);
	close(fd);
	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	expect_random(d, i, data, SIZE, &seed);
	change(d, i, data, 10000, 100, 4);
	expect_random(d, i, data, SIZE, &seed);
	free(data);
}

static void test_read_plan__second_mount_of_the_layer_hits(void **state)
{
	struct tree_dirs *d = *state, *other;
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1), *more;
	void *second = NULL;
	uint64_t misses;
	char from[PATH_MAX], to[PATH_MAX];

	tree_mount(d, "volatile");
	expect(d, tree_get(d, "f"), data, SIZE, SIZE, 0);
	/* Another image: another layer above, and the file under another name; one file on disk. */
	assert_int_equal(tree_setup(&second), 0);
	other = second;
	more = tree_put_pattern(other, "lower/other", 100, 3);
	assert_true(snprintf(from, sizeof(from), "%s/lower/f", d->s.path) < PATH_MAX);
	assert_true(snprintf(to, sizeof(to), "%s/lower/g", other->s.path) < PATH_MAX);
	assert_int_equal(link(from, to), 0);
	tree_mount(other, "volatile");
	change(other, tree_get(other, "g"), data, 5000, 10, 8);
	misses = counter_total(STATS_WINDOW_MISSES);
	expect(other, tree_get(other, "g"), data, SIZE, SIZE, 0);
	assert_int_equal(counter_total(STATS_WINDOW_MISSES), misses);
	tree_unmount(other);
	assert_int_equal(tree_teardown(&second), 0);
	free(data);
	free(more);
}

static void test_read_plan__nothing_stays_mapped_when_the_mounts_are_gone(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1);
	struct mmap_cache_usage u;

	tree_mount(d, "volatile");
	expect(d, tree_get(d, "f"), data, SIZE, SIZE, 0);
	mmap_cache_usage(&u);
	assert_true(u.bytes >= SIZE);
	tree_unmount(d);
	mmap_cache_usage(&u);
	assert_int_equal(u.bytes, 0);
	free(data);
}

static void test_read_plan__lower_cut_behind_our_back(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1), *buf = malloc(LARGE),
	     *out = malloc(LARGE);
	struct inode *i;
	int fd, sink = memfd_create("sink", MFD_CLOEXEC);

	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	p.niov = 0;
	p.nwindows = 0;
	assert_int_equal(read_plan_read(d->t, i, buf, LARGE, 0, &p), LARGE);
	fd = openat(d->s.fd, "lower/f", O_WRONLY);
	assert_int_equal(ftruncate(fd, 100), 0);
	assert_true(writev(sink, p.iov, p.niov) < LARGE);
	read_plan_doubt(&p);
	read_plan_release(&p);
	assert_int_equal(shared_sb(d, i, buf, out, LARGE, 0), 100);
	read_plan_release(&p);
	assert_int_equal(shared_sb(d, i, buf, out, LARGE, 4096), 0);
	read_plan_release(&p);
	assert_int_equal(ftruncate(fd, SIZE), 0);
	memset(data + 100, 0, SIZE - 100);
	expect(d, i, data, SIZE, LARGE, 0);
	close(fd);
	close(sink);
	free(data);
	free(buf);
	free(out);
}

static void test_read_plan__without_room_for_windows_it_reads(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1);
	uint64_t seed = tree_seed("pieces");
	struct mmap_cache_usage u;
	struct inode *i;

	mmap_cache_usage(&u);
	mmap_cache_set_budget(MMAP_CACHE_BYTES);
	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	change(d, i, data, 5000, 10000, 2);
	expect_random(d, i, data, SIZE, &seed);
	mmap_cache_set_budget(0);
	expect_random(d, i, data, SIZE, &seed);
	mmap_cache_set_budget(u.budget);
	free(data);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_read_plan__lower_file_comes_from_windows),
		row(test_read_plan__small_reads_and_upper_files_use_none),
		row(test_read_plan__own_blocks_are_read_and_the_others_are_windows),
		row(test_read_plan__more_segments_than_fit_are_read),
		row(test_read_plan__stack_of_partial_files),
		row(test_read_plan__sparse_lower_file),
		row(test_read_plan__second_mount_of_the_layer_hits),
		row(test_read_plan__nothing_stays_mapped_when_the_mounts_are_gone),
		row(test_read_plan__lower_cut_behind_our_back),
		row(test_read_plan__without_room_for_windows_it_reads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
