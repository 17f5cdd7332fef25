// SPDX-License-Identifier: Apache-2.0
/* A map whose layer was copied while a session was open, and one that an older version wrote. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/maps.h"
#include "veneer/base/log.h"
#include "veneer/sys/file.h"

#define TEMP_NAME "map-before"

/* The files of the copy, all alike. */
struct fake_copy {
	blk_t blk, n; /* the blocks that do not read as zeros */
	uint64_t size;
	unsigned asked, asked_extents;
};

static int fake_extents(void *arg, file_id_t id, int (*own)(void *own_arg, blk_t blk, blk_t n),
			void *own_arg)
{
	struct fake_copy *c = arg;

	(void)id;
	c->asked_extents++;
	return own(own_arg, 0, 64);
}

static int fake_contents(void *arg, file_id_t id, int (*own)(void *own_arg, blk_t blk, blk_t n),
			 void *own_arg, uint64_t *ret_size)
{
	struct fake_copy *c = arg;

	(void)id;
	c->asked++;
	*ret_size = c->size;
	return own(own_arg, c->blk, c->n);
}

/* Blocks 0 to 4 are own and were not synced, the last one of zeros. */
static file_id_t make_session(const struct maps_layer *l, unsigned flags)
{
	struct mapfile *mf = maps_open(l, flags, NULL);
	file_id_t id = maps_new_file(mf, MIB);

	assert_int_equal(mapfile_own(mf, id, 0, 4), 0);
	assert_int_equal(mapfile_own_zeros(mf, id, 4, 1), 0);
	mapfile_close(mf);
	return id;
}

/* In place of the map a file with the same bytes. */
static void copy_map(const struct maps_layer *l)
{
	char bytes[16384];
	int fd = openat(l->root, MAPFILE_NAME, O_RDONLY);
	ssize_t n = file_pread(fd, bytes, sizeof(bytes), 0);

	assert_true(n > 0 && n < (ssize_t)sizeof(bytes));
	close(fd);
	assert_int_equal(renameat(l->root, MAPFILE_NAME, l->work, TEMP_NAME), 0);
	fd = openat(l->root, MAPFILE_NAME, O_WRONLY | O_CREAT | O_EXCL, 0644);
	assert_int_equal(file_pwrite(fd, bytes, (size_t)n, 0), 0);
	close(fd);
	assert_int_equal(unlinkat(l->work, TEMP_NAME, 0), 0);
}

static unsigned owned(struct mapfile *mf, file_id_t id)
{
	unsigned found = 0;

	for (blk_t b = 0; b < 32; b++)
		found |= (unsigned)maps_is_own(mf, id, b) << b;
	return found;
}

static void test_mapcopy__copy_of_an_open_session_has_what_its_bytes_prove(void **state)
{
	const struct maps_layer *l = *state;
	struct fake_copy copy = { .blk = 0, .n = 3, .size = MIB };
	struct mapfile_rebuild rebuild = { fake_extents, &copy, fake_contents };
	file_id_t id = make_session(l, MAPFILE_ORDERED);

	copy_map(l);
	session_epoch_for_tests = BOOT_B;
	for (int writes = 0; writes < 2; writes++) {
		struct mapfile *mf =
			maps_open(l, writes ? MAPFILE_ORDERED : MAPFILE_READONLY, &rebuild);

		assert_int_equal(owned(mf, id), 1 << 0 | 1 << 1 | 1 << 2 | 1 << 4);
		mapfile_close(mf);
	}
	assert_int_equal(copy.asked, 2);
	assert_int_equal(copy.asked_extents, 0);
}

/* The same bytes in the file that was there: a power cut. */
static void test_mapcopy__survivor_is_no_copy(void **state)
{
	const struct maps_layer *l = *state;
	struct fake_copy copy = { .blk = 0, .n = 3, .size = MIB };
	struct mapfile_rebuild rebuild = { fake_extents, &copy, fake_contents };
	file_id_t id = make_session(l, MAPFILE_ORDERED);
	struct mapfile *mf;

	session_epoch_for_tests = BOOT_B;
	mf = maps_open(l, MAPFILE_READONLY, &rebuild);
	assert_int_equal(copy.asked, 0);
	assert_int_equal(copy.asked_extents, 1);
	assert_true(maps_is_own(mf, id, 63));
	mapfile_close(mf);
	/* Own holes are not known there. */
	mf = maps_open(l, 0, NULL);
	assert_int_equal(owned(mf, id), 0);
	mapfile_close(mf);
}

/* Where a power cut may leave what nobody wrote, only what was synced counts. */
static void test_mapcopy__copy_from_elsewhere_has_what_was_committed(void **state)
{
	const struct maps_layer *l = *state;
	struct fake_copy copy = { .blk = 0, .n = 3, .size = MIB };
	struct mapfile_rebuild rebuild = { fake_extents, &copy, fake_contents };
	file_id_t id = make_session(l, 0);
	struct mapfile *mf;

	copy_map(l);
	session_epoch_for_tests = BOOT_B;
	mf = maps_open(l, MAPFILE_READONLY, &rebuild);
	assert_int_equal(owned(mf, id), 0);
	assert_int_equal(copy.asked_extents, 0);
	mapfile_close(mf);
}

/* Also after a power cut of its own, when its map is its own: its extents still prove nothing. */
static void test_mapcopy__map_of_a_copy_says_so_for_good(void **state)
{
	const struct maps_layer *l = *state;
	struct fake_copy copy = { .blk = 0, .n = 4, .size = MIB };
	struct mapfile_rebuild rebuild = { fake_extents, &copy, fake_contents };
	file_id_t id = make_session(l, MAPFILE_ORDERED);
	struct mapfile *mf;

	copy_map(l);
	mf = maps_open(l, MAPFILE_ORDERED, &rebuild);
	assert_false(mf->now.is_copy);
	assert_int_equal(mapfile_own(mf, id, 9, 1), 0);
	mapfile_close(mf);
	copy.blk = 9;
	copy.n = 1;
	session_epoch_for_tests = BOOT_B;
	mf = maps_open(l, MAPFILE_ORDERED, &rebuild);
	assert_int_equal(copy.asked_extents, 0);
	assert_true(maps_is_own(mf, id, 9));
	assert_false(maps_is_own(mf, id, 63));
	assert_int_equal(mf->now.head.compat, FORMAT_MAP_ORDERED | FORMAT_MAP_COPIED);
	mapfile_close(mf);
}

static void test_mapcopy__file_that_lacks_synced_blocks_is_damaged(void **state)
{
	const struct maps_layer *l = *state;
	struct fake_copy copy = { .blk = 0, .n = 3, .size = MIB };
	struct mapfile_rebuild rebuild = { fake_extents, &copy, fake_contents };
	struct mapfile *mf = maps_open(l, MAPFILE_ORDERED, NULL);
	file_id_t id = maps_new_file(mf, MIB);

	log_set_level(-1);
	assert_int_equal(mapfile_own(mf, id, 0, 4), 0);
	assert_int_equal(mapfile_commit(mf, id, true), 0);
	mapfile_close(mf);
	copy_map(l);
	session_epoch_for_tests = BOOT_B;
	mf = maps_open(l, MAPFILE_ORDERED, &rebuild);
	assert_int_equal(mapfile_count(mf), 0);
	assert_int_equal(mapfile_file_enter_again(mf, id, MIB, &rebuild), -ENOENT);
	mapfile_close(mf);
}

static void test_mapcopy__synced_blocks_that_become_zeros_are_not_lost(void **state)
{
	const struct maps_layer *l = *state;
	struct fake_copy copy = { .blk = 0, .n = 2, .size = MIB };
	struct mapfile_rebuild rebuild = { fake_extents, &copy, fake_contents };
	struct mapfile *mf = maps_open(l, MAPFILE_ORDERED, NULL);
	file_id_t id = maps_new_file(mf, MIB);
	uint64_t bytes;

	assert_int_equal(mapfile_own(mf, id, 0, 4), 0);
	assert_int_equal(mapfile_commit(mf, id, true), 0);
	assert_int_equal(mapfile_expect_zeros(mf, id + 1, 0, 1), -ENOENT);
	assert_int_equal(mapfile_expect_zeros(mf, id, 2, 6), 0);
	/* On the disk, before the blocks are zeros. */
	assert_int_not_equal(mapfile_pending(mf, id), MAPFILE_MUST_SYNC);
	bytes = mapfile_log_bytes(mf);
	assert_int_equal(mapfile_expect_zeros(mf, id, 2, 2), 0);
	assert_int_equal(mapfile_expect_zeros(mf, id, 4, 100), 0);
	assert_int_equal(mapfile_expect_zeros(mf, id, MIB / BLK_BYTES, 5), 0);
	assert_int_equal(mapfile_log_bytes(mf), bytes);
	mapfile_close(mf);
	copy_map(l);
	session_epoch_for_tests = BOOT_B;
	mf = maps_open(l, MAPFILE_READONLY, &rebuild);
	assert_int_equal(mapfile_count(mf), 1);
	assert_int_equal(owned(mf, id), 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3);
	mapfile_close(mf);
}

static void test_mapcopy__volatile_map_waits_for_no_zeros(void **state)
{
	struct mapfile *mf = maps_open(*state, MAPFILE_ORDERED | MAPFILE_VOLATILE, NULL);
	file_id_t id = maps_new_file(mf, MIB);

	assert_int_equal(mapfile_own(mf, id, 0, 4), 0);
	assert_int_equal(mapfile_commit(mf, id, true), 0);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_CLEAN);
	assert_int_equal(mapfile_expect_zeros(mf, id, 2, 2), 0);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_MUST_SYNC);
	mapfile_close(mf);
}

static void test_mapcopy__last_block_that_a_file_can_have_becomes_own_and_zeros(void **state)
{
	struct mapfile *mf = maps_open(*state, MAPFILE_ORDERED, NULL);
	file_id_t id = maps_new_file(mf, FORMAT_SIZE_MAX),
		  other = maps_new_file(mf, FORMAT_SIZE_MAX);
	const blk_t last = FORMAT_BLK_END - 1;

	assert_false(maps_is_own(mf, id, last));
	assert_int_equal(mapfile_own_zeros(mf, id, last, 1), 0);
	assert_true(maps_is_own(mf, id, last));
	assert_int_equal(mapfile_own(mf, other, last, 1), 0);
	assert_true(maps_is_own(mf, other, last));
	assert_int_equal(mapfile_own_zeros(mf, id, last, 2), -EFBIG);
	assert_int_equal(mapfile_own(mf, other, last, 2), -EFBIG);
	mapfile_close(mf);
}

static void test_mapcopy__zeros_are_recorded_once_and_outlive_a_checkpoint(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf = maps_open(l, MAPFILE_ORDERED, NULL);
	file_id_t id = maps_new_file(mf, MIB);
	uint64_t bytes;

	assert_int_equal(mapfile_own_zeros(mf, id, 7, 3), 0);
	/* An own block that becomes zeros later, when it is committed. */
	assert_int_equal(mapfile_own(mf, id, 20, 1), 0);
	assert_int_equal(mapfile_commit(mf, id, true), 0);
	assert_int_equal(mapfile_own_zeros(mf, id, 20, 1), 0);
	/* fsync has that on disk, too. */
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_MUST_SYNC);
	for (int round = 0; round < 2; round++) {
		bytes = mapfile_log_bytes(mf);
		assert_int_equal(mapfile_own_zeros(mf, id, 8, 2), 0);
		assert_int_equal(mapfile_own_zeros(mf, id, 20, 1), 0);
		/* No file has so many. */
		assert_int_equal(mapfile_own_zeros(mf, id, FORMAT_BLK_END, 1), -EFBIG);
		assert_int_equal(mapfile_own_zeros(mf, id, 0, FORMAT_BLK_END + 1), -EFBIG);
		/* The file alone speaks there. */
		assert_int_equal(mapfile_own_zeros(mf, id, MIB / BLK_BYTES, 5), 0);
		assert_int_equal(mapfile_log_bytes(mf), bytes);
		assert_int_equal(mapfile_checkpoint(mf, true), 0);
		mapfile_close(mf);
		mf = maps_open(l, MAPFILE_ORDERED, NULL);
	}
	mapfile_close(mf);
}

/* The record of the zeros may be on the disk by then; that they were synced is said by the
 * commit. */
static void test_mapcopy__zeros_in_place_of_what_was_not_synced_wait_for_the_commit(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf = maps_open(l, MAPFILE_ORDERED, NULL);
	file_id_t id = maps_new_file(mf, MIB), other = maps_new_file(mf, MIB);

	assert_int_equal(mapfile_own(mf, id, 20, 1), 0);
	assert_int_equal(mapfile_own_zeros(mf, id, 20, 1), 0);
	assert_int_equal(mapfile_own(mf, other, 0, 1), 0);
	assert_int_equal(mapfile_commit(mf, other, true), 0);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_MUST_SYNC);
	assert_int_equal(mapfile_commit(mf, id, true), 0);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_CLEAN);
	mapfile_close(mf);
}

static void test_mapcopy__map_that_its_group_may_write_does_not_become_everybodys(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf = maps_open_rw(l);
	struct stat st;

	maps_new_file(mf, MIB);
	mapfile_close(mf);
	assert_int_equal(fchmodat(l->root, MAPFILE_NAME, 0660, 0), 0);
	mf = maps_open_rw(l);
	maps_new_file(mf, MIB);
	assert_int_equal(mapfile_checkpoint(mf, true), 0);
	mapfile_close(mf);
	assert_int_equal(fstatat(l->root, MAPFILE_NAME, &st, 0), 0);
	assert_int_equal(st.st_mode & (S_IWGRP | S_IWOTH), S_IWGRP);
}

/* The worked example of doc/SPEC.md, as of another boot. */
static void test_mapcopy__map_of_an_older_version_is_written_anew(void **state)
{
	const struct maps_layer *l = *state;
	char bytes[4096];
	int fd = open("tests/assets/map-v1.map", O_RDONLY);
	ssize_t n = file_pread(fd, bytes, sizeof(bytes), 0);
	struct mapfile *mf;

	assert_true(n > 0);
	close(fd);
	fd = openat(l->root, MAPFILE_NAME, O_WRONLY | O_CREAT, 0644);
	assert_int_equal(file_pwrite(fd, bytes, (size_t)n, 0), 0);
	close(fd);

	mf = maps_open(l, MAPFILE_READONLY, NULL);
	assert_int_equal(owned(mf, 1) & 7, 3);
	mapfile_close(mf);
	mf = maps_open(l, MAPFILE_ORDERED, NULL);
	assert_int_equal(mapfile_uuid(mf), 0x1122334455667788);
	assert_int_equal(mf->now.head.incompat, FORMAT_MAP_ZEROS);
	assert_int_equal(mf->now.head.compat, FORMAT_MAP_ORDERED | FORMAT_MAP_COPIED);
	assert_true(maps_is_own(mf, 1, 0) && maps_is_own(mf, 1, 1));
	/* Of its blocks nobody knows which are zeros: all may be. */
	uint64_t log_bytes = mapfile_log_bytes(mf);

	assert_int_equal(mapfile_own_zeros(mf, 1, 0, 2), 0);
	assert_int_equal(mapfile_log_bytes(mf), log_bytes);
	mapfile_close(mf);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_mapcopy__##name, maps_setup, maps_teardown)
	const struct CMUnitTest tests[] = {
		T(copy_of_an_open_session_has_what_its_bytes_prove),
		T(survivor_is_no_copy),
		T(copy_from_elsewhere_has_what_was_committed),
		T(map_of_a_copy_says_so_for_good),
		T(file_that_lacks_synced_blocks_is_damaged),
		T(synced_blocks_that_become_zeros_are_not_lost),
		T(volatile_map_waits_for_no_zeros),
		T(last_block_that_a_file_can_have_becomes_own_and_zeros),
		T(zeros_are_recorded_once_and_outlive_a_checkpoint),
		T(zeros_in_place_of_what_was_not_synced_wait_for_the_commit),
		T(map_that_its_group_may_write_does_not_become_everybodys),
		T(map_of_an_older_version_is_written_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
