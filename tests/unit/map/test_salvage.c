// SPDX-License-Identifier: Apache-2.0
/* Of a damaged map each file is as it was, or has no entry. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/maps.h"
#include "veneer/base/log.h"
#include "veneer/sys/file.h"
#include "veneer/sys/xattr.h"

#define FILES	     20u
#define SECTOR	     64u
#define HEADER_BYTES sizeof(struct format_map_header)

struct bytes {
	uint8_t *p;
	size_t len, snapshot_end, tail;
};

/* Files 1 to FILES in the snapshot, each with its own blocks; in the log more blocks of file 3. */
static void make_map(const struct maps_layer *l, bool is_clean, struct bytes *ret)
{
	struct mapfile *mf = maps_open_rw(l);

	for (unsigned k = 1; k <= FILES; k++) {
		file_id_t id = maps_new_file(mf, MIB);

		for (unsigned b = 0; b < 4; b++)
			assert_int_equal(mapfile_own(mf, id, k + 20 * b, 1), 0);
		assert_int_equal(mapfile_own_zeros(mf, id, 200, 3), 0);
		assert_int_equal(mapfile_commit(mf, id, false), 0);
	}
	assert_int_equal(mapfile_checkpoint(mf, true), 0);
	ret->snapshot_end = HEADER_BYTES + mf->now.head.snapshot_len;
	for (unsigned b = 100; b < 130; b += 2)
		assert_int_equal(mapfile_own(mf, 3, b, 1), 0);
	if (is_clean)
		assert_int_equal(mapfile_mark_clean(mf), 0);
	ret->tail = mf->journal.tail;
	mapfile_close(mf);

	int fd = openat(l->root, MAPFILE_NAME, O_RDONLY);

	ret->len = (size_t)maps_size(l);
	ret->p = malloc(ret->len);
	assert_int_equal(file_pread(fd, ret->p, ret->len, 0), ret->len);
	close(fd);
}

/* The same file, so that the second copy of its header stays. */
static void write_map(const struct maps_layer *l, const uint8_t *p, size_t len)
{
	int fd = openat(l->root, MAPFILE_NAME, O_WRONLY);

	assert_true(fd >= 0);
	assert_int_equal(file_pwrite(fd, p, len, 0), 0);
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	close(fd);
}

static bool is_as_it_was(struct mapfile *mf, file_id_t id)
{
	for (unsigned b = 0; b < 256; b++) {
		const bool was_own = (b >= id && b < id + 80 && (b - id) % 20 == 0) ||
				     (b >= 200 && b < 203) ||
				     (id == 3 && b >= 100 && b < 130 && b % 2 == 0);

		if (maps_is_own(mf, id, b) != was_own)
			return false;
	}
	return maps_clip(mf, id) == MIB;
}

/* How many have no entry. */
static unsigned count_lost(struct mapfile *mf)
{
	unsigned nlost = 0;
	uint64_t clip;

	for (file_id_t id = 1; id <= FILES; id++) {
		if (mapfile_clip(mf, id, &clip) == -ENOENT)
			nlost++;
		else
			assert_true(is_as_it_was(mf, id));
	}
	return nlost;
}

static bool has_aside(const struct maps_layer *l)
{
	struct stat st;

	return fstatat(l->root, MAPFILE_DAMAGED_NAME, &st, 0) == 0;
}

static void test_salvage__gap_in_the_snapshot_costs_the_files_next_to_it(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf;
	struct bytes map;
	unsigned most = 0;

	log_set_level(-1);
	make_map(l, true, &map);
	for (size_t at = HEADER_BYTES; at + SECTOR <= map.snapshot_end; at += 24) {
		uint8_t damaged[65536];
		unsigned nlost;

		memcpy(damaged, map.p, map.len);
		for (unsigned k = 0; k < SECTOR; k++)
			damaged[at + k] = (uint8_t)(k * 7 + at);
		write_map(l, damaged, map.len);
		mf = maps_open(l, MAPFILE_READONLY, NULL);
		nlost = count_lost(mf);
		assert_in_range(nlost, 1, 3);
		most = nlost > most ? nlost : most;
		/* Not even one whose number might be lost gets an entry again. */
		for (file_id_t id = 1; id <= FILES; id++)
			assert_int_not_equal(mapfile_file_enter_again(mf, id, MIB, NULL), 0);
		mapfile_close(mf);
	}
	assert_int_equal(most, 2);
	assert_false(has_aside(l));

	/* For writing it is written anew, and the old one is kept. */
	mf = maps_open_rw(l);
	assert_true(has_aside(l));
	assert_true(maps_new_file(mf, 5) > FILES);
	assert_int_equal(mapfile_mark_clean(mf), 0);
	mapfile_close(mf);
	mf = maps_open(l, MAPFILE_READONLY, NULL);
	assert_int_equal(mf->now.n_gaps + mf->now.n_mended, 0);
	assert_in_range(count_lost(mf), 1, 2);
	mapfile_close(mf);
	free(map.p);
}

/* A sector of another place of the same snapshot, whose records chain among themselves. */
static void test_salvage__records_that_do_not_lead_to_the_end_are_not_believed(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf;
	struct bytes map;

	log_set_level(-1);
	make_map(l, true, &map);
	memcpy(map.p + HEADER_BYTES + 1024, map.p + HEADER_BYTES + 2048, 512);
	write_map(l, map.p, map.len);
	mf = maps_open(l, MAPFILE_READONLY, NULL);
	assert_in_range(count_lost(mf), 2, 5);
	mapfile_close(mf);
	free(map.p);
}

/* It is not known whose records are lost there. */
static void test_salvage__gap_in_the_log_costs_all(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf;
	struct bytes map;

	log_set_level(-1);
	make_map(l, true, &map);
	memset(map.p + map.snapshot_end + 64, 0x5a, SECTOR);
	write_map(l, map.p, map.len);
	assert_int_equal(mapfile_open(l->root, -1, MAPFILE_READONLY, "test", NULL, &mf), -EUCLEAN);
	mf = maps_open_rw(l);
	assert_int_equal(mapfile_count(mf), 0);
	assert_true(has_aside(l));
	assert_int_equal(maps_size(l), -1);
	maps_new_file(mf, MIB);
	mapfile_close(mf);
	free(map.p);
}

static void test_salvage__header_has_a_second_copy(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf;
	struct bytes map;

	log_set_level(-1);
	make_map(l, true, &map);
	memset(map.p, 0, HEADER_BYTES);
	write_map(l, map.p, map.len);
	mf = maps_open(l, MAPFILE_READONLY, NULL);
	assert_int_equal(count_lost(mf), 0);
	mapfile_close(mf);
	mf = maps_open_rw(l);
	assert_int_equal(count_lost(mf), 0);
	assert_false(has_aside(l));
	mapfile_close(mf);
	mf = maps_open(l, MAPFILE_READONLY, NULL);
	assert_int_equal(mf->now.n_mended, 0);
	mapfile_close(mf);
	write_map(l, map.p, map.len);
	xattr_remove(l->root, MAPFILE_NAME, FORMAT_MAP_COPY_ATTR);
	assert_int_equal(mapfile_open(l->root, -1, MAPFILE_READONLY, "test", NULL, &mf), -EUCLEAN);
	free(map.p);
}

/* After a clean close its end is known, in each boot. */
static void test_salvage__cut_map_never_shows_an_older_state(void **state)
{
	const struct maps_layer *l = *state;
	struct bytes map;

	log_set_level(-1);
	make_map(l, true, &map);
	for (unsigned boot = 0; boot < 2; boot++) {
		session_epoch_for_tests = boot ? BOOT_B : BOOT_A;
		for (size_t len = 0; len<map.tail; len += len> map.snapshot_end ? 1 : 13) {
			struct mapfile *mf;

			write_map(l, map.p, len);
			if (mapfile_open(l->root, -1, MAPFILE_READONLY, "test", NULL, &mf) < 0)
				continue;
			/* But for its last byte. */
			assert_true(len == map.tail - 1);
			assert_int_equal(count_lost(mf), 0);
			mapfile_close(mf);
		}
	}
	free(map.p);
}

/* A copy: of its end nothing is known, but that there is one behind the snapshot. */
static void test_salvage__copy_that_was_cut_in_its_snapshot_has_lost_its_log(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf;
	struct bytes map;

	log_set_level(-1);
	make_map(l, true, &map);
	unlinkat(l->root, MAPFILE_NAME, 0);
	close(openat(l->root, MAPFILE_NAME, O_WRONLY | O_CREAT, 0644));
	for (size_t len = 0; len < map.snapshot_end; len += 37) {
		write_map(l, map.p, len);
		assert_int_equal(mapfile_open(l->root, -1, MAPFILE_READONLY, "test", NULL, &mf),
				 -EUCLEAN);
	}
	free(map.p);
}

/* A file may claim exabytes, and a snapshot as long. */
static void test_salvage__hostile_lengths_cost_nothing(void **state)
{
	const struct maps_layer *l = *state;
	struct format_map_header h;
	struct mapfile *mf;
	struct bytes map;
	const char *why;
	clock_t start;

	log_set_level(-1);
	make_map(l, true, &map);
	assert_int_equal(snapshot_header_decode(map.p, map.len, &h, &why), 0);
	h.snapshot_len = 1ull << 42;
	snapshot_header_encode(&h, map.p);
	write_map(l, map.p, map.len);
	int fd = openat(l->root, MAPFILE_NAME, O_WRONLY);

	assert_int_equal(ftruncate(fd, 2ll << 42), 0);
	close(fd);
	start = clock();
	mf = maps_open_rw(l);
	assert_int_equal(mapfile_count(mf), 0);
	mapfile_close(mf);
	assert_true(clock() - start < CLOCKS_PER_SEC);
	free(map.p);
}

static void test_salvage__torn_record_of_a_killed_server_is_still_an_end(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf;
	struct bytes map;

	make_map(l, false, &map);
	memset(map.p + map.tail - 8, 0, 8);
	write_map(l, map.p, map.len);
	mf = maps_open_rw(l);
	assert_int_equal(mf->now.n_mended + mf->now.n_gaps, 0);
	assert_false(maps_is_own(mf, 3, 128));
	assert_true(maps_is_own(mf, 3, 126));
	mapfile_close(mf);
	free(map.p);
}

static void test_salvage__map_of_a_newer_version_is_left_alone(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf;
	struct bytes map;

	log_set_level(-1);
	make_map(l, true, &map);
	memset(map.p + 8, 2, 1);
	memset(map.p + 100, 0x11, 28);
	write_map(l, map.p, map.len);
	xattr_remove(l->root, MAPFILE_NAME, FORMAT_MAP_COPY_ATTR);
	assert_int_equal(mapfile_open(l->root, l->work, 0, "test", NULL, &mf), -EUCLEAN);
	assert_int_equal(maps_size(l), map.len);
	assert_false(has_aside(l));
	free(map.p);
}

#define T(name) cmocka_unit_test_setup_teardown(test_salvage__##name, maps_setup, maps_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(gap_in_the_snapshot_costs_the_files_next_to_it),
		T(records_that_do_not_lead_to_the_end_are_not_believed),
		T(gap_in_the_log_costs_all),
		T(header_has_a_second_copy),
		T(cut_map_never_shows_an_older_state),
		T(copy_that_was_cut_in_its_snapshot_has_lost_its_log),
		T(hostile_lengths_cost_nothing),
		T(torn_record_of_a_killed_server_is_still_an_end),
		T(map_of_a_newer_version_is_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
