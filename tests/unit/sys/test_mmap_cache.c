// SPDX-License-Identifier: Apache-2.0
/* Windows are looked at as those who use them do: by the kernel, in a write to a pipe. */
#include "veneer/sys/mmap_cache.h"

#include "support/counter.h"
#include "support/scratch.h"
#include "veneer/base/stats.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/syscall.h>

#include <cmocka.h>

#define WINDOWS	 40
#define SIZE	 (WINDOWS * MMAP_CACHE_BYTES)
#define THREADS	 16
#define ROUNDS	 300
#define OWNER(n) ((const void *)(uintptr_t)(n))

static struct scratch dir;
static int fd = -1;
static uint64_t hits_before, misses_before, evictions_before;

/* Word i of the file is i. */
static int write_words(int to, size_t size)
{
	static uint32_t words[MMAP_CACHE_BYTES / 4];

	for (uint32_t i = 0; i < size / 4; i += MMAP_CACHE_BYTES / 4) {
		for (uint32_t k = 0; k < MMAP_CACHE_BYTES / 4; k++)
			words[k] = i + k;
		if (pwrite(to, words, MMAP_CACHE_BYTES, i * 4l) != MMAP_CACHE_BYTES)
			return -1;
	}
	return 0;
}

static int group_setup(void **state)
{
	(void)state;
	if (scratch_enter(&dir) < 0)
		return -1;
	fd = openat(dir.fd, "f", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	return fd < 0 ? -1 : write_words(fd, SIZE);
}

static int group_teardown(void **state)
{
	(void)state;
	close(fd);
	scratch_leave(&dir);
	return 0;
}

static int setup(void **state)
{
	(void)state;
	mmap_cache_set_budget(0);
	mmap_cache_set_budget((size_t)SIZE * 2);
	hits_before = counter_total(STATS_WINDOW_HITS);
	misses_before = counter_total(STATS_WINDOW_MISSES);
	evictions_before = counter_total(STATS_WINDOW_EVICTIONS);
	return 0;
}

static int teardown(void **state)
{
	struct mmap_cache_usage u;

	(void)state;
	mmap_cache_set_budget(0);
	mmap_cache_usage(&u);
	assert_int_equal(u.bytes, 0);
	assert_int_equal(u.count, 0);
	return 0;
}

static uint64_t hits(void)
{
	return counter_total(STATS_WINDOW_HITS) - hits_before;
}

static uint64_t misses(void)
{
	return counter_total(STATS_WINDOW_MISSES) - misses_before;
}

static size_t mapped(void)
{
	struct mmap_cache_usage u;

	mmap_cache_usage(&u);
	return u.bytes;
}

static struct mmap_cache_file file_of(int f, unsigned owner)
{
	struct mmap_cache_file file = { .fd = f, .owner = OWNER(owner) };

	fstat(f, &file.st);
	return file;
}

/* The error as text, so that it serves in threads too. */
static const char *check_bytes(const struct mmap_cache_part *part, uint64_t off)
{
	static _Thread_local uint32_t words[MMAP_CACHE_BYTES / 4];
	size_t done = 0;
	int ends[2];

	if (pipe(ends) < 0)
		return "pipe";
	while (done < part->len) {
		size_t n = part->len - done < 4096 ? part->len - done : 4096;

		if (write(ends[1], (char *)part->p + done, n) != (ssize_t)n ||
		    read(ends[0], (char *)words + done, n) != (ssize_t)n)
			break;
		done += n;
	}
	close(ends[0]);
	close(ends[1]);
	for (size_t i = 0; i < done / 4; i++)
		if (words[i] != off / 4 + i)
			return "other bytes";
	return done == part->len ? NULL : "cannot be sent";
}

/* One read, whole. */
static const char *get_from(int f, uint64_t off, size_t len)
{
	struct mmap_cache_file file = file_of(f, 1);
	struct mmap_cache_part parts[8];
	const char *wrong = NULL;
	uint64_t at = off;
	size_t n = 0;

	for (; len; n++) {
		if (mmap_cache_pin(&file, at, len, &parts[n]) < 0) {
			wrong = "not pinned";
			break;
		}
		at += parts[n].len;
		len -= parts[n].len;
	}
	mmap_cache_fill(parts, n);
	for (size_t i = 0, pos = off; i < n; pos += parts[i++].len) {
		if (!wrong)
			wrong = parts[i].result ? "not filled" : check_bytes(&parts[i], pos);
		mmap_cache_unpin(parts[i].w);
	}
	return wrong;
}

static void get(uint64_t off, size_t len)
{
	const char *wrong = get_from(fd, off, len);

	if (wrong)
		fail_msg("%s", wrong);
}

static void test_mmap_cache__second_read_hits(void **state)
{
	(void)state;
	get(0, MMAP_CACHE_BYTES);
	assert_int_equal(misses(), 128);
	assert_int_equal(hits(), 0);
	get(0, MMAP_CACHE_BYTES);
	assert_int_equal(misses(), 128);
	assert_int_equal(hits(), 128);
	assert_int_equal(mapped(), MMAP_CACHE_BYTES);
}

static void test_mmap_cache__partial_hit_fills_only_what_is_missing(void **state)
{
	(void)state;
	get(8 * BLK_BYTES, 4 * BLK_BYTES);
	get(20 * BLK_BYTES, 4 * BLK_BYTES);
	assert_int_equal(misses(), 8);
	/* Three pieces are missing: in front, between and behind. */
	get(0, 32 * BLK_BYTES);
	assert_int_equal(misses(), 32);
	assert_int_equal(hits(), 8);
}

static void test_mmap_cache__read_over_several_windows_is_put_together(void **state)
{
	(void)state;
	get(MMAP_CACHE_BYTES - 1000, 2 * MMAP_CACHE_BYTES + 2000);
	assert_int_equal(mapped(), 4 * MMAP_CACHE_BYTES);
	assert_int_equal(misses(), 1 + 128 + 128 + 1);
}

static void test_mmap_cache__descriptor_is_not_what_it_is_known_by(void **state)
{
	int other = openat(dir.fd, "f", O_RDONLY | O_CLOEXEC);

	(void)state;
	get(0, MMAP_CACHE_BYTES);
	assert_null(get_from(other, 0, MMAP_CACHE_BYTES));
	close(other);
	assert_int_equal(hits(), 128);
	assert_int_equal(mapped(), MMAP_CACHE_BYTES);
}

static void test_mmap_cache__short_file_takes_what_it_is_long(void **state)
{
	int f = openat(dir.fd, "short", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	struct mmap_cache_file file;
	struct mmap_cache_part part;

	(void)state;
	assert_int_equal(write_words(f, MMAP_CACHE_BYTES), 0);
	assert_int_equal(ftruncate(f, 10000), 0);
	assert_null(get_from(f, 4096, 5904));
	assert_int_equal(mapped(), 3 * BLK_BYTES);
	file = file_of(f, 1);
	assert_int_equal(mmap_cache_pin(&file, 4096, 100000, &part), 0);
	assert_int_equal(part.len, 5904);
	mmap_cache_unpin(part.w);
	assert_int_equal(mmap_cache_pin(&file, 10000, 1, &part), -EOPNOTSUPP);
	assert_int_equal(mmap_cache_pin(&file, 20000, 1, &part), -EOPNOTSUPP);
	/* The file grows: the window is too small and makes way. */
	assert_int_equal(write_words(f, MMAP_CACHE_BYTES), 0);
	assert_null(get_from(f, 0, MMAP_CACHE_BYTES));
	assert_int_equal(mapped(), MMAP_CACHE_BYTES);
	close(f);
	unlinkat(dir.fd, "short", 0);
}

static void test_mmap_cache__file_that_takes_the_place_of_another_is_another(void **state)
{
	(void)state;
	/* A file system that gives numbers again gives the one that was just freed. */
	for (unsigned round = 0; round < 20; round++) {
		int f = openat(dir.fd, "again", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
		struct mmap_cache_file file;
		struct mmap_cache_part part;
		char byte = 0;
		int ends[2];

		assert_int_equal(ftruncate(f, MMAP_CACHE_BYTES), 0);
		assert_int_equal(pwrite(f, &round, 1, 0), 1);
		file = file_of(f, 1);
		assert_int_equal(mmap_cache_pin(&file, 0, BLK_BYTES, &part), 0);
		mmap_cache_fill(&part, 1);
		assert_int_equal(pipe(ends), 0);
		assert_int_equal(write(ends[1], part.p, 1), 1);
		assert_int_equal(read(ends[0], &byte, 1), 1);
		assert_int_equal(byte, round);
		close(ends[0]);
		close(ends[1]);
		mmap_cache_unpin(part.w);
		close(f);
		unlinkat(dir.fd, "again", 0);
	}
}

static void test_mmap_cache__budget_is_obeyed_to_the_byte(void **state)
{
	(void)state;
	mmap_cache_set_budget(3 * MMAP_CACHE_BYTES + 100);
	for (unsigned i = 0; i < WINDOWS; i++) {
		get((uint64_t)i * MMAP_CACHE_BYTES, MMAP_CACHE_BYTES);
		assert_true(mapped() <= 3 * MMAP_CACHE_BYTES);
	}
	assert_int_equal(counter_total(STATS_WINDOW_EVICTIONS) - evictions_before, WINDOWS - 3);
	mmap_cache_set_budget(2 * MMAP_CACHE_BYTES - 1);
	assert_int_equal(mapped(), MMAP_CACHE_BYTES);
	mmap_cache_set_budget(MMAP_CACHE_BYTES - 1);
	assert_int_equal(mapped(), 0);
	assert_non_null(get_from(fd, 0, BLK_BYTES));
	assert_int_equal(mapped(), 0);
}

static void test_mmap_cache__pinned_ones_survive_eviction(void **state)
{
	struct mmap_cache_file file = file_of(fd, 1);
	struct mmap_cache_part part, other;

	(void)state;
	mmap_cache_set_budget(2 * MMAP_CACHE_BYTES);
	assert_int_equal(mmap_cache_pin(&file, 0, MMAP_CACHE_BYTES, &part), 0);
	mmap_cache_fill(&part, 1);
	for (unsigned i = 1; i < WINDOWS; i++)
		get((uint64_t)i * MMAP_CACHE_BYTES, MMAP_CACHE_BYTES);
	assert_null(check_bytes(&part, 0));
	mmap_cache_shrink(100);
	assert_int_equal(mapped(), MMAP_CACHE_BYTES);
	assert_null(check_bytes(&part, 0));
	mmap_cache_set_budget(MMAP_CACHE_BYTES);
	assert_int_equal(mmap_cache_pin(&file, MMAP_CACHE_BYTES, 1, &other), -EBUSY);
	mmap_cache_set_budget(0);
	assert_null(check_bytes(&part, 0));
	mmap_cache_unpin(part.w);
	assert_int_equal(mapped(), 0);
}

static void test_mmap_cache__scan_of_ten_budgets_leaves_the_hot_ones(void **state)
{
	uint64_t before;

	(void)state;
	mmap_cache_set_budget(4 * MMAP_CACHE_BYTES);
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < 2; i++)
			get((uint64_t)i * MMAP_CACHE_BYTES, MMAP_CACHE_BYTES);
	for (unsigned i = 2; i < WINDOWS; i++)
		for (unsigned k = 0; k < 4; k++)
			get((uint64_t)i * MMAP_CACHE_BYTES + k * MMAP_CACHE_BYTES / 4,
			    MMAP_CACHE_BYTES / 4);
	before = misses();
	for (unsigned i = 0; i < 2; i++)
		get((uint64_t)i * MMAP_CACHE_BYTES, MMAP_CACHE_BYTES);
	assert_int_equal(misses(), before);
	/* The scan's end is cold again by now, but for what room there was. */
	get(2 * MMAP_CACHE_BYTES, MMAP_CACHE_BYTES);
	assert_int_equal(misses(), before + 128);
}

static void test_mmap_cache__shrink_gives_back_its_share(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 20; i++)
		get((uint64_t)i * MMAP_CACHE_BYTES, MMAP_CACHE_BYTES);
	mmap_cache_shrink(50);
	assert_true(mapped() <= 10 * MMAP_CACHE_BYTES && mapped() >= 9 * MMAP_CACHE_BYTES);
	mmap_cache_shrink(0);
	assert_true(mapped() >= 9 * MMAP_CACHE_BYTES);
	mmap_cache_shrink(100);
	assert_int_equal(mapped(), 0);
}

static void test_mmap_cache__owner_that_goes_takes_its_windows_along(void **state)
{
	struct mmap_cache_file a = file_of(fd, 7), b = file_of(fd, 8);
	struct mmap_cache_part part, pinned;

	(void)state;
	for (unsigned i = 0; i < 10; i++) {
		assert_int_equal(
			mmap_cache_pin(i % 2 ? &a : &b, (uint64_t)i * MMAP_CACHE_BYTES, 1, &part),
			0);
		mmap_cache_unpin(part.w);
	}
	assert_int_equal(mmap_cache_pin(&a, 11 * MMAP_CACHE_BYTES, 8, &pinned), 0);
	mmap_cache_forget(OWNER(7));
	assert_int_equal(mapped(), 6 * MMAP_CACHE_BYTES);
	/* A later pin gets another window. */
	assert_int_equal(mmap_cache_pin(&b, 11 * MMAP_CACHE_BYTES, 8, &part), 0);
	assert_ptr_not_equal(part.w, pinned.w);
	mmap_cache_fill(&pinned, 1);
	assert_null(check_bytes(&pinned, 11 * MMAP_CACHE_BYTES));
	mmap_cache_unpin(pinned.w);
	assert_int_equal(mapped(), 6 * MMAP_CACHE_BYTES);
	mmap_cache_drop(part.w);
	mmap_cache_unpin(part.w);
	assert_int_equal(mapped(), 5 * MMAP_CACHE_BYTES);
	mmap_cache_forget(OWNER(8));
	assert_int_equal(mapped(), 0);
}

static void test_mmap_cache__file_cut_under_it_is_an_error_and_no_signal(void **state)
{
	int f = openat(dir.fd, "cut", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	struct mmap_cache_file file;
	struct mmap_cache_part part, late;
	int ends[2];

	(void)state;
	assert_int_equal(write_words(f, MMAP_CACHE_BYTES), 0);
	file = file_of(f, 1);
	assert_int_equal(mmap_cache_pin(&file, 0, MMAP_CACHE_BYTES, &part), 0);
	assert_int_equal(mmap_cache_pin(&file, 0, MMAP_CACHE_BYTES, &late), 0);
	mmap_cache_fill(&part, 1);
	assert_int_equal(part.result, 0);
	assert_int_equal(ftruncate(f, 0), 0);
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(write(ends[1], part.p, 4096), -1);
	assert_int_equal(errno, EFAULT);
	mmap_cache_unpin(part.w);
	mmap_cache_unpin(late.w);
	mmap_cache_shrink(100);
	/* Cut before it was brought in. */
	assert_int_equal(write_words(f, MMAP_CACHE_BYTES), 0);
	assert_int_equal(mmap_cache_pin(&file, 0, MMAP_CACHE_BYTES, &part), 0);
	assert_int_equal(ftruncate(f, 4096), 0);
	mmap_cache_fill(&part, 1);
	assert_true(part.result < 0);
	mmap_cache_unpin(part.w);
	close(ends[0]);
	close(ends[1]);
	close(f);
	unlinkat(dir.fd, "cut", 0);
}

static pthread_barrier_t start;
static _Atomic unsigned nwrong;

static void *read_one_window(void *arg)
{
	(void)arg;
	pthread_barrier_wait(&start);
	if (get_from(fd, 3 * MMAP_CACHE_BYTES, MMAP_CACHE_BYTES))
		nwrong++;
	return NULL;
}

static void run_threads(void *(*body)(void *))
{
	pthread_t threads[THREADS];

	nwrong = 0;
	pthread_barrier_init(&start, NULL, THREADS);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, body, (void *)i), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&start);
	assert_int_equal(nwrong, 0);
}

static void test_mmap_cache__many_readers_of_one_cold_window_fill_it_once(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 5; round++) {
		mmap_cache_shrink(100);
		setup(NULL);
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		run_threads(read_one_window);
		assert_int_equal(misses(), 128);
		assert_int_equal(hits(), (THREADS - 1) * 128);
		assert_int_equal(mapped(), MMAP_CACHE_BYTES);
	}
}

static void *read_at_random(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg + 1;

	pthread_barrier_wait(&start);
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t off;
		size_t len;
		const char *wrong;

		seed = seed * 1103515245 + 12345;
		len = ((seed >> 8) % (2 * MMAP_CACHE_BYTES) & ~3u) + 4;
		seed = seed * 1103515245 + 12345;
		off = (seed >> 4) % (SIZE - len) & ~3ull;
		wrong = get_from(fd, off, len);
		/* The budget is small, and the others' pins may take all of it. */
		if (wrong && strcmp(wrong, "not pinned"))
			nwrong++;
		if (i % 50 == 17)
			mmap_cache_shrink(60);
		if (i % 50 == 29)
			mmap_cache_forget(OWNER(1));
		if (mapped() > 8 * MMAP_CACHE_BYTES)
			nwrong++;
	}
	return NULL;
}

static void test_mmap_cache__threads_in_a_small_budget_see_right_bytes(void **state)
{
	(void)state;
	mmap_cache_set_budget(8 * MMAP_CACHE_BYTES);
	run_threads(read_at_random);
}

static void test_mmap_cache__child_starts_with_none(void **state)
{
	struct mmap_cache_file file = file_of(fd, 1);
	struct mmap_cache_part part;
	int status = -1;
	pid_t pid;

	(void)state;
	get(0, MMAP_CACHE_BYTES);
	assert_int_equal(mmap_cache_pin(&file, MMAP_CACHE_BYTES, MMAP_CACHE_BYTES, &part), 0);
	pid = fork();
	if (pid == 0)
		_exit(mapped() == MMAP_CACHE_BYTES && !get_from(fd, 0, MMAP_CACHE_BYTES) &&
				      mapped() == 2 * MMAP_CACHE_BYTES
			      ? 0
			      : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(mapped(), 2 * MMAP_CACHE_BYTES);
	mmap_cache_fill(&part, 1);
	assert_null(check_bytes(&part, MMAP_CACHE_BYTES));
	mmap_cache_unpin(part.w);
}

/* In a program of its own, as what is refused is remembered. */
static int without_populate(void)
{
	struct mmap_cache_part part;
	struct mmap_cache_file file;

	if (group_setup(NULL) < 0 || scratch_deny(SYS_madvise, EINVAL) < 0)
		return 2;
	file = file_of(fd, 1);
	if (mmap_cache_pin(&file, 0, BLK_BYTES, &part) < 0)
		return 3;
	mmap_cache_fill(&part, 1);
	mmap_cache_unpin(part.w);
	if (part.result == 0)
		return 4;
	return mmap_cache_pin(&file, 0, BLK_BYTES, &part) == -EOPNOTSUPP ? 0 : 5;
}

static void test_mmap_cache__old_kernel_has_none(void **state)
{
	(void)state;
	assert_int_equal(scratch_run_self("without-populate"), 0);
}

#define row(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		row(test_mmap_cache__second_read_hits),
		row(test_mmap_cache__partial_hit_fills_only_what_is_missing),
		row(test_mmap_cache__read_over_several_windows_is_put_together),
		row(test_mmap_cache__descriptor_is_not_what_it_is_known_by),
		row(test_mmap_cache__short_file_takes_what_it_is_long),
		row(test_mmap_cache__file_that_takes_the_place_of_another_is_another),
		row(test_mmap_cache__budget_is_obeyed_to_the_byte),
		row(test_mmap_cache__pinned_ones_survive_eviction),
		row(test_mmap_cache__scan_of_ten_budgets_leaves_the_hot_ones),
		row(test_mmap_cache__shrink_gives_back_its_share),
		row(test_mmap_cache__owner_that_goes_takes_its_windows_along),
		row(test_mmap_cache__file_cut_under_it_is_an_error_and_no_signal),
		row(test_mmap_cache__many_readers_of_one_cold_window_fill_it_once),
		row(test_mmap_cache__threads_in_a_small_budget_see_right_bytes),
		row(test_mmap_cache__child_starts_with_none),
		row(test_mmap_cache__old_kernel_has_none),
	};

	if (argc > 1 && !strcmp(argv[1], "without-populate")) {
		int r = without_populate();

		group_teardown(NULL);
		return r;
	}
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
