// SPDX-License-Identifier: Apache-2.0
/* Limits: what a map may claim and cost, and what becomes of a change that finds none left. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/maps.h"
#include "veneer/base/log.h"

static void set_map_size(const struct maps_layer *l, off_t size)
{
	int fd = openat(l->root, MAPFILE_NAME, O_RDWR);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
	close(fd);
}

/* A file may claim 8 TB and hold a page. */
static void test_mapfile_load__longer_file_than_a_writer_leaves_is_damage(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf = maps_open_rw(l);
	file_id_t id = maps_new_file(mf, MIB);
	off_t tail = (off_t)mf->journal.tail;
	clock_t start = clock();

	log_set_level(-1);
	mapfile_close(mf);
	for (unsigned flags = 0; flags <= MAPFILE_READONLY; flags++) {
		const off_t sizes[] = { 8ll << 40, tail + JOURNAL_SLACK_BYTES + 1 };

		for (int i = 0; i < 2; i++) {
			set_map_size(l, sizes[i]);
			if (flags && i == 0) {
				assert_int_equal(
					mapfile_open(l->root, -1, flags, "test", NULL, &mf),
					-EUCLEAN);
				continue;
			}
			/* But zeros are no records: nothing is lost. */
			mf = maps_open(l, flags, NULL);
			assert_int_equal(mf->now.n_mended, 1);
			assert_int_equal(maps_clip(mf, id), MIB);
			mapfile_close(mf);
		}
		set_map_size(l, tail + JOURNAL_SLACK_BYTES);
		mf = maps_open(l, flags, NULL);
		assert_int_equal(maps_clip(mf, id), MIB);
		mapfile_close(mf);
	}
	assert_true(clock() - start < 2 * CLOCKS_PER_SEC);
}

static void test_mapfile_load__reader_refuses_a_map_that_grows_too_long(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf = maps_open_rw(l), *reader;
	file_id_t id = maps_new_file(mf, MIB);

	log_set_level(-1);
	reader = maps_open(l, MAPFILE_READONLY, NULL);
	set_map_size(l, (off_t)MAPFILE_BYTES_MAX + 1);
	assert_int_equal(mapfile_refresh(reader), -EUCLEAN);
	assert_int_equal(maps_clip(reader, id), MIB);
	mapfile_close(reader);
	mapfile_close(mf);
}

/* The map takes no more blocks than a reader accepts, but forgetting, committing and closing always
 * work. */
static void test_mapfile_load__full_map_takes_no_more_blocks(void **state)
{
	struct mapfile *mf = maps_open_rw(*state);
	file_id_t id = maps_new_file(mf, MIB), other;
	uint64_t tail = mf->journal.tail;

	assert_int_equal(mapfile_own(mf, id, 1, 1), 0);
	mf->journal.tail = MAPFILE_BYTES_MAX;
	assert_int_equal(mapfile_reserve(mf, 1), -ENOSPC);
	assert_int_equal(mapfile_file_new(mf, MIB, &other), -ENOSPC);
	mf->journal.tail = tail + 40;
#ifndef VENEER_INVARIANTS /* which see that bytes is not the truth */
	mf->now.table.bytes += TABLE_BYTES_BASE + (1 << 20);
	assert_int_equal(mapfile_reserve(mf, 1), -ENOSPC);
#endif
	assert_int_equal(mapfile_commit(mf, id, true), 0);
	assert_int_equal(mapfile_truncate(mf, id, 1), 0);
	assert_int_equal(mapfile_file_gone(mf, id), 0);
	assert_int_equal(mapfile_mark_clean(mf), 0);
	mapfile_close(mf);
}

#define LIFE_FILES  20u
#define LIFE_WRITES 100000u

static uint64_t life_clip(unsigned i)
{
	static const uint64_t clips[] = { 100000, 40ull << 20, 1ull << 30, 1ull << 40, 1ull << 44 };

	return clips[i % 5];
}

static void live(struct mapfile *mf, file_id_t id[LIFE_FILES], bool checkpoints)
{
	for (unsigned i = 0; i < LIFE_FILES; i++)
		id[i] = maps_new_file(mf, life_clip(i));
	for (unsigned n = 0; n < LIFE_WRITES; n++) {
		unsigned i = (unsigned)rand() % LIFE_FILES;
		blk_t end = (maps_clip(mf, id[i]) + BLK_BYTES - 1) / BLK_BYTES;
		blk_t blk = ((blk_t)rand() << 31 | (blk_t)rand()) % (end + 1);

		assert_int_equal(mapfile_reserve(mf, 1), 0);
		assert_int_equal(mapfile_own(mf, id[i], blk, 1), 0);
		if (n % 20 == 0)
			assert_int_equal(mapfile_commit(mf, id[i], n % 7000 == 0), 0);
		if (n % 200 == 0)
			assert_int_equal(mapfile_truncate(mf, id[i], maps_clip(mf, id[i]) / 8 * 7),
					 0);
		if (n % 5000 == 0) {
			assert_int_equal(mapfile_file_gone(mf, id[i]), 0);
			id[i] = maps_new_file(mf, life_clip(i));
		}
		if (n % 10000 == 0)
			assert_int_equal(mapfile_mark_clean(mf), 0);
		if (checkpoints && n % 1000 == 0 && mapfile_wants_checkpoint(mf))
			assert_int_equal(mapfile_checkpoint(mf, false), 0);
	}
}

static uint64_t fingerprint(struct mapfile *mf, const file_id_t id[LIFE_FILES])
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < LIFE_FILES; i++) {
		const struct table_file *f = table_find(&mf->now.table, id[i]);

		assert_non_null(f);
		sum = sum * 31 + blkmap_clip(f->map) + blkmap_count(f->map);
	}
	return sum;
}

static void test_mapfile_load__long_and_busy_life_stays_readable(void **state)
{
	const struct maps_layer *l = *state;

	srand(7);
	for (int checkpoints = 0; checkpoints < 2; checkpoints++) {
		struct mapfile *mf = maps_open(l, MAPFILE_VOLATILE, NULL);
		file_id_t id[LIFE_FILES];

		session_epoch_for_tests = BOOT_A;
		live(mf, id, checkpoints);

		uint64_t want = fingerprint(mf, id);
		const struct table *t = &mf->now.table;

		print_message("%zu heap bytes for %llu bytes of records\n", t->bytes,
			      (unsigned long long)t->record_bytes);
		mapfile_close(mf);
		for (unsigned flags = 0; flags <= MAPFILE_READONLY; flags++) {
			mf = maps_open(l, flags, NULL);
			assert_int_equal(fingerprint(mf, id), want);
			mapfile_close(mf);
		}
		session_epoch_for_tests = BOOT_B;
		mf = maps_open(l, MAPFILE_READONLY, NULL);
		mapfile_close(mf);
		mf = maps_open_rw(l);
		mapfile_close(mf);
		mf = maps_open(l, MAPFILE_READONLY, NULL);
		mapfile_close(mf);
		session_epoch_for_tests = BOOT_A;
		unlinkat(l->root, MAPFILE_NAME, 0);
	}
}

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
	__has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || !defined(__GLIBC__)
#define OWN_CALLOC 0
static int callocs_left;
#else
#define OWN_CALLOC 1
static int callocs_left = -1; /* until they fail; below 0: never */
void *__libc_calloc(size_t n, size_t size);

void *calloc(size_t n, size_t size)
{
	if (callocs_left == 0)
		return NULL;
	callocs_left -= callocs_left > 0;
	return __libc_calloc(n, size);
}
#endif

/* Try with one allocation more each time, until it succeeds. */
static void check_without_memory(struct mapfile *mf, unsigned step)
{
	struct maps_state before, after;
	file_id_t id;
	int r = -ENOMEM;

	maps_take_state(mf, &before);
	for (int n = 0; r == -ENOMEM && n < 100; n++) {
		uint64_t tail = mf->journal.tail;

		callocs_left = n;
		r = step == 0	? mapfile_file_new(mf, 300 * BLK_BYTES, &id)
		    : step == 1 ? mapfile_own(mf, 1, 3, 200)
		    : step == 2 ? mapfile_own(mf, 1, 0, 290)
		    : step == 3 ? mapfile_truncate(mf, 1, 2 * BLK_BYTES)
				: mapfile_commit(mf, 1, false);
		callocs_left = -1;
		maps_take_state(mf, &after);
		if (r == -ENOMEM) {
			assert_memory_equal(&before, &after, sizeof(after));
			assert_int_equal(mf->journal.tail, tail);
		}
	}
	assert_int_equal(r, 0);
	assert_false(mf->is_poisoned);
}

static void test_mapfile_load__no_memory_changes_nothing(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf;
	struct maps_state before, after;

	if (!OWN_CALLOC)
		skip();
	mf = maps_open_rw(l);
	maps_new_file(mf, 300 * BLK_BYTES);
	assert_int_equal(mapfile_own(mf, 1, 20, 3), 0);
	assert_int_equal(mapfile_own(mf, 1, 140, 3), 0);
	assert_int_equal(mapfile_commit(mf, 1, false), 0);
	for (unsigned step = 0; step <= 4; step++)
		check_without_memory(mf, step);
	maps_take_state(mf, &before);
	mapfile_close(mf);
	mf = maps_open_rw(l);
	maps_take_state(mf, &after);
	assert_memory_equal(&before, &after, sizeof(after));
	mapfile_close(mf);
}

static void test_mapfile_load__map_without_a_number_left_takes_no_more_files(void **state)
{
	struct mapfile *mf = maps_open_rw(*state);
	file_id_t id = maps_new_file(mf, MIB), other = 0;

	mf->now.table.next_id = FORMAT_ID_END;
	assert_int_equal(mapfile_file_new(mf, MIB, &other), -ENOSPC);
	assert_int_equal(other, 0);
	assert_int_equal(mapfile_count(mf), 1);
	assert_int_equal(mapfile_own(mf, id, 1, 1), 0);
	mapfile_close(mf);
	mf = maps_open_rw(*state);
	assert_true(maps_is_own(mf, id, 1));
	mapfile_close(mf);
}

#define T(name) \
	cmocka_unit_test_setup_teardown(test_mapfile_load__##name, maps_setup, maps_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(longer_file_than_a_writer_leaves_is_damage),
		T(reader_refuses_a_map_that_grows_too_long),
		T(full_map_takes_no_more_blocks),
		T(map_without_a_number_left_takes_no_more_files),
		T(long_and_busy_life_stays_readable),
		T(no_memory_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
