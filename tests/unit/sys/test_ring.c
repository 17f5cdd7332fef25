// SPDX-License-Identifier: Apache-2.0
/* Every behaviour is tried as this kernel has it, and again with io_uring refused. */
#include "veneer/sys/ring.h"

#include "support/scratch.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cmocka.h>

enum { FILE_WORDS = 64 << 10, READS = 200, READ_WORDS = 256 };

static struct scratch dir;
static int fd = -1;
static bool is_again;

/* Word i of the file is i, so each read proves where it came from. */
static int setup(void **state)
{
	uint32_t *words = malloc(FILE_WORDS * 4);

	(void)state;
	assert_int_equal(scratch_enter(&dir), 0);
	fd = openat(dir.fd, "words", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	for (uint32_t i = 0; i < FILE_WORDS; i++)
		words[i] = i;
	assert_int_equal(write(fd, words, FILE_WORDS * 4), FILE_WORDS * 4);
	free(words);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close(fd);
	scratch_leave(&dir);
	return 0;
}

/* Returns what went wrong, so that it serves in threads and children as well. */
static const char *read_scattered(size_t n, unsigned seed)
{
	uint32_t *words = calloc(n * READ_WORDS, 4);
	struct ring_read *reads = calloc(n, sizeof(*reads));
	const char *wrong = NULL;

	for (size_t i = 0; i < n; i++) {
		seed = seed * 1103515245 + 12345;
		reads[i] = (struct ring_read){
			.fd = fd,
			.dst = words + i * READ_WORDS,
			.len = READ_WORDS * 4,
			.off = (seed >> 8) % (FILE_WORDS - READ_WORDS) * 4,
			.result = -1,
		};
	}
	ring_read_all(reads, n);
	for (size_t i = 0; i < n && !wrong; i++) {
		if (reads[i].result != READ_WORDS * 4)
			wrong = "result";
		for (uint32_t j = 0; j < READ_WORDS && !wrong; j++) {
			if (words[i * READ_WORDS + j] != reads[i].off / 4 + j)
				wrong = "content";
		}
	}
	free(reads);
	free(words);
	return wrong;
}

static void test_ring__reads_any_number_at_once(void **state)
{
	static const size_t counts[] = { 0, 1, 2, 63, 64, 65, 128, READS };

	(void)state;
	for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		assert_null(read_scattered(counts[i], i));
}

static void test_ring__is_short_only_at_the_end_of_the_file(void **state)
{
	char bytes[4][4096];
	struct ring_read reads[] = {
		{ .fd = fd, .dst = bytes[0], .len = 4096, .off = FILE_WORDS * 4 - 100 },
		{ .fd = fd, .dst = bytes[1], .len = 4096, .off = FILE_WORDS * 4 },
		{ .fd = fd, .dst = bytes[2], .len = 4096, .off = 0 },
		{ .fd = fd, .dst = bytes[3], .len = 0, .off = 0 },
	};

	(void)state;
	ring_read_all(reads, 4);
	assert_int_equal(reads[0].result, 100);
	assert_int_equal(reads[1].result, 0);
	assert_int_equal(reads[2].result, 4096);
	assert_int_equal(reads[3].result, 0);
}

static void test_ring__errors_stay_with_their_read(void **state)
{
	char bytes[3][64];
	struct ring_read reads[] = {
		{ .fd = -1, .dst = bytes[0], .len = 64 },
		{ .fd = fd, .dst = bytes[1], .len = 64, .off = 400 },
		{ .fd = dir.fd, .dst = bytes[2], .len = 64 },
		{ .fd = fd, .dst = bytes[1], .len = UINT32_MAX, .off = FILE_WORDS * 4 },
	};
	uint32_t word;

	(void)state;
	ring_read_all(reads, 4);
	assert_int_equal(reads[0].result, -EBADF);
	assert_int_equal(reads[1].result, 64);
	memcpy(&word, bytes[1], 4);
	assert_int_equal(word, 100);
	assert_int_equal(reads[2].result, -EISDIR);
	assert_int_equal(reads[3].result, -EINVAL);

	ring_read_all(reads, 1);
	assert_int_equal(reads[0].result, -EBADF);
}

static void *many_batches(void *arg)
{
	const char *wrong = NULL;

	for (unsigned i = 0; i < 50 && !wrong; i++)
		wrong = read_scattered(i, (unsigned)(uintptr_t)arg + i);
	return (void *)wrong;
}

static void test_ring__each_thread_has_its_own(void **state)
{
	pthread_t threads[4];

	(void)state;
	/* Twice: rings of threads that ended are gone. */
	for (int round = 0; round < 2; round++) {
		for (uintptr_t i = 0; i < 4; i++)
			assert_int_equal(
				pthread_create(&threads[i], NULL, many_batches, (void *)(i * 1000)),
				0);
		for (int i = 0; i < 4; i++) {
			void *wrong;

			assert_int_equal(pthread_join(threads[i], &wrong), 0);
			assert_null(wrong);
		}
	}
}

static int count_fds(void)
{
	int n = 0;

	for (int i = 0; i < 256; i++)
		n += fcntl(i, F_GETFD) >= 0;
	return n;
}

static void test_ring__thread_end_closes_its_ring(void **state)
{
	int before = count_fds();
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, many_batches, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(count_fds(), before);
}

static void test_ring__child_of_a_fork_makes_its_own(void **state)
{
	int status;

	(void)state;
	assert_null(read_scattered(10, 1));

	pid_t pid = fork();

	if (pid == 0)
		_exit(read_scattered(100, 2) ? 1 : 0);
	assert_null(read_scattered(100, 3));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_null(read_scattered(100, 4));
}

/* Each second page of the file, so that many areas wait for the disk; the kernel says what is in
 * memory. */
static void test_ring__areas_are_brought_in_together(void **state)
{
	enum { PAGES = FILE_WORDS * 4 / 4096 };
	static struct ring_area areas[PAGES / 2];
	unsigned char in_memory[PAGES];
	char *map = mmap(NULL, PAGES * 4096, PROT_READ, MAP_SHARED, fd, 0);

	(void)state;
	assert_true(map != MAP_FAILED);
	for (int round = 0; round < 2; round++) {
		if (round == 0)
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		for (size_t i = 0; i < PAGES / 2; i++)
			areas[i] = (struct ring_area){ .addr = map + i * 8192,
						       .len = 4096,
						       .result = -1 };
		ring_populate_all(areas, round ? 1 : PAGES / 2);
		assert_int_equal(mincore(map, PAGES * 4096, in_memory), 0);
		for (size_t i = 0; i < (round ? 1 : PAGES / 2); i++) {
			assert_int_equal(areas[i].result, 0);
			assert_true(in_memory[i * 2] & 1);
		}
	}
	munmap(map, PAGES * 4096);
}

static void test_ring__area_that_is_not_to_be_had_is_an_error(void **state)
{
	int f = openat(dir.fd, "cut", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	struct ring_area areas[3];
	char *map;

	(void)state;
	assert_int_equal(ftruncate(f, 2 * 4096), 0);
	map = mmap(NULL, 4 * 4096, PROT_READ, MAP_SHARED, f, 0);
	assert_true(map != MAP_FAILED);
	for (size_t i = 0; i < 3; i++)
		areas[i] = (struct ring_area){ .addr = map + i * 4096, .len = 4096 };
	ring_populate_all(areas, 3);
	assert_int_equal(areas[0].result, 0);
	assert_int_equal(areas[1].result, 0);
	assert_int_equal(areas[2].result, -EFAULT);
	munmap(map, 4 * 4096);
	close(f);
	unlinkat(dir.fd, "cut", 0);
}

static void test_ring__same_without_io_uring(void **state)
{
	(void)state;
	if (is_again)
		return;
	assert_int_equal(scratch_run_self("ENOSYS"), 0);
	assert_int_equal(scratch_run_self("EPERM"), 0);
	assert_int_equal(scratch_run_self("ENOMEM"), 0);
	/* A ring that was made, and then refuses to take anything. */
	assert_int_equal(scratch_run_self("enter"), 0);
}

static int deny(const char *what)
{
	if (!strcmp(what, "enter"))
		return scratch_deny(SYS_io_uring_enter, ENOMEM);
	if (!strcmp(what, "ENOMEM"))
		return scratch_deny(SYS_io_uring_setup, ENOMEM);
	return scratch_deny(SYS_io_uring_setup, strcmp(what, "EPERM") ? ENOSYS : EPERM);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ring__reads_any_number_at_once),
		cmocka_unit_test(test_ring__is_short_only_at_the_end_of_the_file),
		cmocka_unit_test(test_ring__errors_stay_with_their_read),
		cmocka_unit_test(test_ring__each_thread_has_its_own),
		cmocka_unit_test(test_ring__thread_end_closes_its_ring),
		cmocka_unit_test(test_ring__child_of_a_fork_makes_its_own),
		cmocka_unit_test(test_ring__areas_are_brought_in_together),
		cmocka_unit_test(test_ring__area_that_is_not_to_be_had_is_an_error),
		cmocka_unit_test(test_ring__same_without_io_uring),
	};

	is_again = argc > 1;
	if (is_again && deny(argv[1]) < 0)
		return 77;
	return cmocka_run_group_tests(tests, setup, teardown);
}
