// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "veneer/map/journal_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define START 128u
#define SEED  77u
#define MANY  5000u /* records, of several windows */

struct log {
	int fd;
	uint64_t off, sum; /* of the next */
	uint64_t offs[MANY + 1];
	unsigned n;
};

static int setup(void **state)
{
	struct log *l = calloc(1, sizeof(*l));

	if (!l)
		return -1;
	l->fd = memfd_create("log", MFD_CLOEXEC);
	l->off = START;
	l->sum = SEED;
	*state = l;
	return l->fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	struct log *l = *state;

	close(l->fd);
	free(l);
	return 0;
}

static void append(struct log *l, unsigned count)
{
	while (count--) {
		const struct record rec = { .type = FORMAT_REC_OWN_RUN,
					    .id = 1,
					    .run = { l->n, 1 } };
		uint8_t bytes[FORMAT_REC_BYTES_MAX];
		const size_t len = record_encode(&rec, l->sum, bytes, &l->sum);

		assert_int_equal(pwrite(l->fd, bytes, len, (off_t)l->off), len);
		l->offs[l->n++] = l->off;
		l->off += len;
		l->offs[l->n] = l->off;
	}
}

static void put(struct log *l, uint64_t off, const void *bytes, size_t len)
{
	assert_int_equal(pwrite(l->fd, bytes, len, (off_t)off), len);
}

static struct journal_reader start(const struct log *l, uint64_t end)
{
	struct journal_reader r;

	assert_int_equal(journal_reader_init(&r, l->fd, START, end, SEED), 0);
	return r;
}

/* Records from here on, each of which must be the next. */
static unsigned count(struct journal_reader *r, unsigned first)
{
	struct record rec;
	unsigned n = first;

	while (journal_reader_next(r, &rec) == 1)
		assert_int_equal(rec.run.blk, n++);
	return n - first;
}

static void test_journal_reader__records_of_many_windows_come_in_order(void **state)
{
	struct log *l = *state;
	struct journal_reader r;

	append(l, MANY);
	assert_true(l->off > 2 * JOURNAL_WINDOW_BYTES);
	r = start(l, UINT64_MAX);
	assert_int_equal(count(&r, 0), MANY);
	assert_int_equal(r.off, l->off);
	assert_int_equal(r.sum, l->sum);
	journal_reader_release(&r);
	journal_reader_release(&r);
}

static void test_journal_reader__no_record_reaches_past_the_end_that_is_given(void **state)
{
	struct log *l = *state;
	struct journal_reader r;

	append(l, 10);
	for (unsigned n = 0; n <= 10; n++) {
		r = start(l, l->offs[n]);
		assert_int_equal(count(&r, 0), n);
		journal_reader_release(&r);
		r = start(l, l->offs[n] + 1);
		assert_int_equal(count(&r, 0), n);
		journal_reader_release(&r);
	}
	r = start(l, 0);
	assert_int_equal(count(&r, 0), 0);
	journal_reader_release(&r);
}

/* Another process writes while it is read. */
static void test_journal_reader__record_that_was_added_since_is_found(void **state)
{
	struct log *l = *state;
	struct journal_reader r = start(l, UINT64_MAX);

	assert_int_equal(count(&r, 0), 0);
	append(l, 1);
	assert_int_equal(count(&r, 0), 1);
	append(l, 3);
	assert_int_equal(count(&r, 1), 3);
	assert_int_equal(count(&r, 4), 0);
	journal_reader_release(&r);
}

static void test_journal_reader__damage_in_the_middle_ends_it_and_is_gone_on_behind(void **state)
{
	struct log *l = *state;
	struct journal_reader r;
	struct record rec;
	const uint8_t bad[4] = { 0xff, 0xee, 0xdd, 0xcc };

	append(l, 20);
	put(l, l->offs[7] + 1, bad, sizeof(bad));
	r = start(l, UINT64_MAX);
	assert_int_equal(count(&r, 0), 7);
	assert_int_equal(r.off, l->offs[7]);
	assert_int_equal(journal_reader_resync(&r), 1);
	assert_int_equal(journal_reader_next(&r, &rec), 1);
	/* The one behind the bad one has a checksum that nobody knows any more. */
	assert_true(rec.run.blk >= 8);
	assert_int_equal(count(&r, (unsigned)rec.run.blk + 1), 19 - rec.run.blk);
	assert_int_equal(journal_reader_resync(&r), 0);
	journal_reader_release(&r);
}

static void test_journal_reader__one_damaged_byte_is_mended(void **state)
{
	struct log *l = *state;
	struct journal_reader r;
	struct record rec;
	uint8_t byte;

	append(l, 5);
	for (uint64_t off = l->offs[2]; off < l->offs[3]; off++) {
		assert_int_equal(pread(l->fd, &byte, 1, (off_t)off), 1);
		byte ^= 0x40;
		put(l, off, &byte, 1);
		r = start(l, UINT64_MAX);
		assert_int_equal(count(&r, 0), 2);
		assert_int_equal(journal_reader_mend(&r, &rec), 1);
		assert_int_equal(rec.run.blk, 2);
		assert_int_equal(count(&r, 3), 2);
		/* The end of a log is no such record. */
		assert_int_equal(journal_reader_mend(&r, &rec), 0);
		journal_reader_release(&r);
		byte ^= 0x40;
		put(l, off, &byte, 1);
	}
}

static void expect_rest(struct log *l, int wanted)
{
	struct journal_reader r = start(l, UINT64_MAX);
	const char *why = NULL;

	count(&r, 0);
	assert_int_equal(journal_reader_rest(&r, &why), wanted);
	assert_non_null(why);
	journal_reader_release(&r);
}

static void test_journal_reader__rest_that_a_killed_writer_leaves_is_none(void **state)
{
	static const uint8_t torn[FORMAT_REC_BYTES_MAX] = { 9, 9, 9, 9, 9, 9, 9, 9, 9 };
	struct log *l = *state;
	const uint8_t one = 1;

	append(l, 3);
	expect_rest(l, 0);
	/* Room that was reserved. */
	assert_int_equal(ftruncate(l->fd, (off_t)(l->off + JOURNAL_SLACK_BYTES)), 0);
	expect_rest(l, 0);
	put(l, l->off, torn, sizeof(torn));
	expect_rest(l, 0);
	put(l, l->off + JOURNAL_TORN_BYTES + 100, &one, 1);
	expect_rest(l, 1);
	put(l, l->off + JOURNAL_TORN_BYTES + 5000, &one, 1);
	expect_rest(l, 2);
	assert_int_equal(ftruncate(l->fd, (off_t)(l->off + JOURNAL_SLACK_BYTES + 1)), 0);
	expect_rest(l, JOURNAL_TOO_LONG);
}

static void test_journal_reader__good_records_behind_a_bad_one_are_damage(void **state)
{
	static const uint8_t bad[4] = { 0xff, 0xee, 0xdd, 0xcc };
	struct log *l = *state;

	append(l, 5);
	put(l, l->offs[3] + 1, bad, sizeof(bad));
	expect_rest(l, 2);
}

/* A file may claim any length. */
static void test_journal_reader__holes_cost_nothing(void **state)
{
	struct log *l = *state;
	const uint8_t one = 1;

	append(l, 1);
	assert_int_equal(ftruncate(l->fd, (off_t)1 << 44), 0);
	assert_int_equal(journal_reader_stray_bytes(l->fd, l->off), 0);
	put(l, ((uint64_t)1 << 44) - 1, &one, 1);
	assert_int_equal(journal_reader_stray_bytes(l->fd, l->off), 1);
	put(l, (uint64_t)1 << 43, &one, 1);
	assert_int_equal(journal_reader_stray_bytes(l->fd, l->off), 2);
	errno = EIO; /* of an earlier call */
	assert_int_equal(journal_reader_stray_bytes(l->fd, INT64_MAX), 0);
	assert_int_equal(journal_reader_stray_bytes(l->fd, UINT64_MAX), 0);
	assert_int_equal(journal_reader_stray_bytes(-1, 0), -EBADF);
}

static void test_journal_reader__file_that_cannot_be_read_is_an_error(void **state)
{
	struct journal_reader r;
	struct record rec;
	const char *why;

	(void)state;
	assert_int_equal(journal_reader_init(&r, -1, START, UINT64_MAX, SEED), 0);
	assert_int_equal(journal_reader_next(&r, &rec), -EBADF);
	assert_int_equal(journal_reader_mend(&r, &rec), -EBADF);
	assert_int_equal(journal_reader_resync(&r), -EBADF);
	assert_int_equal(journal_reader_rest(&r, &why), -EBADF);
	journal_reader_release(&r);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_journal_reader__records_of_many_windows_come_in_order),
		row(test_journal_reader__no_record_reaches_past_the_end_that_is_given),
		row(test_journal_reader__record_that_was_added_since_is_found),
		row(test_journal_reader__damage_in_the_middle_ends_it_and_is_gone_on_behind),
		row(test_journal_reader__one_damaged_byte_is_mended),
		row(test_journal_reader__rest_that_a_killed_writer_leaves_is_none),
		row(test_journal_reader__good_records_behind_a_bad_one_are_damage),
		row(test_journal_reader__holes_cost_nothing),
		row(test_journal_reader__file_that_cannot_be_read_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
