// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "map/journal.h"
#include "veneer/map/journal_reader.h"
#include "veneer/sys/file.h"

#define SEED  77u
#define START 128u

/* cmocka puts its own handler in place of ours before each test. */
static struct sigaction guard;

static int scratch_file(void)
{
	char name[] = "/tmp/test-journal-XXXXXX";
	int fd = mkstemp(name);

	assert_true(fd >= 0);
	unlink(name);
	sigaction(SIGBUS, &guard, NULL);
	return fd;
}

static struct record own(uint64_t i)
{
	return (struct record){ .type = FORMAT_REC_OWN_RUN, .id = 1, .run = { i, 1 } };
}

static void append(struct journal *j, uint64_t i)
{
	struct record rec = own(i);

	assert_int_equal(journal_append(j, &rec), 0);
}

/* Records that a new reader finds; each must be the one of its number. */
static uint64_t count(int fd)
{
	struct journal_reader r;
	struct record rec;
	uint64_t n = 0;

	assert_int_equal(journal_reader_init(&r, fd, START, UINT64_MAX, SEED), 0);
	while (journal_reader_next(&r, &rec) == 1)
		assert_int_equal(rec.run.blk, n++);
	journal_reader_release(&r);
	return n;
}

static off_t size_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_size;
}

static void test_journal__appended_records_are_seen_by_a_reader_at_once(void **state)
{
	(void)state;
	struct journal j;
	struct journal_reader r;
	struct record rec;
	int fd = scratch_file();

	assert_int_equal(journal_attach(&j, fd, START, START, SEED), 0);
	assert_int_equal(size_of(fd), 4096);
	assert_int_equal(journal_reader_init(&r, fd, START, UINT64_MAX, SEED), 0);
	for (uint64_t i = 0; i < 100000; i++) {
		append(&j, i);
		if (i % 97)
			continue;
		while (r.off < j.tail)
			assert_int_equal(journal_reader_next(&r, &rec), 1);
		assert_int_equal(rec.run.blk, i);
		assert_int_equal(journal_reader_next(&r, &rec), 0);
	}
	assert_int_equal(count(fd), 100000);
	assert_true((uint64_t)size_of(fd) <= j.tail + (1 << 20) + 4096);
	journal_reader_release(&r);
	journal_release(&j);
}

static void test_journal__grows_in_small_steps_at_first(void **state)
{
	(void)state;
	struct journal j;
	int fd = scratch_file();

	assert_int_equal(journal_attach(&j, fd, START, START, SEED), 0);
	for (uint64_t i = 0; i < 150; i++)
		append(&j, i);
	assert_int_equal(size_of(fd), 8192);
	journal_release(&j);
}

static void test_journal__goes_on_behind_a_torn_record(void **state)
{
	(void)state;
	struct journal j;
	int fd = scratch_file(), keep = dup(fd);

	assert_int_equal(journal_attach(&j, fd, START, START, SEED), 0);
	append(&j, 0);
	append(&j, 1);

	uint64_t tail = j.tail, sum = j.sum;

	append(&j, 2);
	journal_release(&j);
	assert_int_equal(file_pwrite(keep, "x", 1, (off_t)tail + 12), 0);
	assert_int_equal(count(keep), 2);
	assert_int_equal(journal_attach(&j, dup(keep), START, tail, sum), 0);
	append(&j, 2);
	append(&j, 3);
	assert_int_equal(count(keep), 4);
	journal_release(&j);
	close(keep);
}

static void test_journal__full_disk_is_found_before_anything_changed(void **state)
{
	(void)state;
	struct rlimit old, small = { 8192, RLIM_INFINITY };
	struct journal j;
	int fd = scratch_file();
	uint64_t n = 0;

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small.rlim_max = old.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(journal_attach(&j, fd, START, START, SEED), 0);

	int r = 0;

	while (r == 0 && n < 1000) {
		struct record rec = own(n);

		r = journal_append(&j, &rec);
		n += r == 0;
	}
	assert_int_equal(r, -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(n, (8192 - START) / 40);
	assert_int_equal(count(fd), n);
	append(&j, n);
	assert_int_equal(count(fd), n + 1);
	journal_release(&j);
}

static void test_journal__file_cut_under_the_mapping_is_an_error(void **state)
{
	(void)state;
	struct journal j;
	struct record rec = own(0);
	int fd = scratch_file();

	assert_int_equal(journal_attach(&j, fd, START, START, SEED), 0);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(journal_append(&j, &rec), -EIO);
	journal_release(&j);
}

static void test_journal__huge_sparse_file_costs_nothing(void **state)
{
	(void)state;
	struct journal j;
	int fd = scratch_file();

	assert_int_equal(ftruncate(fd, 1ll << 42), 0);
	assert_int_equal(count(fd), 0);
	assert_int_equal(journal_attach(&j, fd, START, START, SEED), 0);
	for (uint64_t i = 0; i < 40000; i++)
		append(&j, i);
	assert_int_equal(count(fd), 40000);
	assert_true(j.cap < 1 << 24);
	journal_release(&j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_journal__appended_records_are_seen_by_a_reader_at_once),
		cmocka_unit_test(test_journal__grows_in_small_steps_at_first),
		cmocka_unit_test(test_journal__goes_on_behind_a_torn_record),
		cmocka_unit_test(test_journal__full_disk_is_found_before_anything_changed),
		cmocka_unit_test(test_journal__file_cut_under_the_mapping_is_an_error),
		cmocka_unit_test(test_journal__huge_sparse_file_costs_nothing),
	};

	file_guard_init();
	sigaction(SIGBUS, NULL, &guard);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
