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
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/maps.h"
#include "veneer/base/log.h"
#include "veneer/sys/file.h"

/* cmocka puts its own handler in place of ours before each test. */
static struct sigaction guard;

static void test_mapfile__untouched_layer_stays_untouched(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf = maps_open_rw(l);

	assert_int_equal(mapfile_uuid(mf), 0);
	assert_int_equal(mapfile_count(mf), 0);
	assert_int_equal(mapfile_mark_clean(mf), 0);
	assert_int_equal(mapfile_checkpoint(mf, true), 0);
	mapfile_close(mf);
	assert_int_equal(maps_size(l), -1);
}

static void test_mapfile__first_file_costs_one_page(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf = maps_open_rw(l);
	file_id_t id = maps_new_file(mf, MIB);

	assert_int_equal(mapfile_reserve(mf, 1), 0);
	assert_int_equal(mapfile_own(mf, id, 3, 1), 0);
	assert_int_equal(maps_size(l), 4096);
	assert_int_not_equal(mapfile_uuid(mf), 0);
	mapfile_close(mf);
}

static void test_mapfile__reopen_finds_what_was_recorded(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf = maps_open_rw(l);
	file_id_t a = maps_new_file(mf, MIB), b = maps_new_file(mf, 5000),
		  c = maps_new_file(mf, 10 * MIB);
	uint64_t uuid = mapfile_uuid(mf);
	struct maps_state before, after;

	assert_int_equal(mapfile_own(mf, a, 3, 2), 0);
	assert_int_equal(mapfile_own(mf, b, 0, 2), 0);
	assert_int_equal(mapfile_is_complete(mf, b), 1);
	assert_int_equal(mapfile_truncate(mf, a, 4 * BLK_BYTES + 1), 0);
	assert_int_equal(mapfile_file_gone(mf, c), 0);
	assert_int_equal(mapfile_file_gone(mf, c), -ENOENT);
	assert_int_equal(mapfile_own(mf, c, 1, 1), -ENOENT);
	maps_take_state(mf, &before);
	mapfile_close(mf);
	for (unsigned flags = 0; flags <= MAPFILE_READONLY; flags++) {
		mf = maps_open(l, flags, NULL);
		maps_take_state(mf, &after);
		assert_memory_equal(&before, &after, sizeof(before));
		assert_int_equal(mapfile_uuid(mf), uuid);
		mapfile_close(mf);
	}
	mf = maps_open_rw(l);
	assert_int_equal(maps_new_file(mf, 1), c + 1);
	assert_int_equal(mapfile_checkpoint(mf, true), 0);
	assert_int_equal(mapfile_file_gone(mf, c + 1), 0);
	maps_take_state(mf, &after);
	assert_memory_equal(&before, &after, sizeof(before));
	mapfile_close(mf);
	mf = maps_open_rw(l);
	maps_take_state(mf, &after);
	assert_memory_equal(&before, &after, sizeof(before));
	assert_true(maps_work_is_empty(l));
	mapfile_close(mf);
}

static void test_mapfile__readonly_changes_nothing(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf = maps_open_rw(l);
	file_id_t id = maps_new_file(mf, MIB), other;

	mapfile_close(mf);
	mf = maps_open(l, MAPFILE_READONLY, NULL);
	assert_int_equal(mapfile_file_new(mf, 1, &other), -EROFS);
	assert_int_equal(mapfile_own(mf, id, 0, 1), -EROFS);
	assert_int_equal(mapfile_truncate(mf, id, 0), -EROFS);
	assert_int_equal(mapfile_file_gone(mf, id), -EROFS);
	assert_int_equal(mapfile_commit(mf, id, true), -EROFS);
	assert_int_equal(mapfile_checkpoint(mf, true), -EROFS);
	assert_int_equal(mapfile_reserve(mf, 1), -EROFS);
	assert_int_equal(mapfile_mark_clean(mf), 0);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_CLEAN);
	mapfile_close(mf);
}

static void test_mapfile__impossible_numbers_are_refused(void **state)
{
	struct mapfile *mf = maps_open_rw(*state);
	file_id_t id = maps_new_file(mf, INT64_MAX), none;

	assert_int_equal(mapfile_file_new(mf, UINT64_MAX, &none), -EFBIG);
	assert_int_equal(mapfile_own(mf, id, 1ull << 51, 1), -EFBIG);
	assert_int_equal(mapfile_own(mf, id, UINT64_MAX, UINT64_MAX), -EFBIG);
	assert_int_equal(mapfile_own(mf, id, (1ull << 51) - 1, 1), 0);
	mapfile_close(mf);
}

/* A map file with one record of each kind, and the state after each. */
#define SCRIPT_STEPS 12
static void script_step(struct mapfile *mf, unsigned i)
{
	file_id_t id;

	switch (i) {
	case 0:
	case 1:
		assert_int_equal(mapfile_file_new(mf, MIB + i, &id), 0);
		break;
	case 2:
		assert_int_equal(mapfile_own(mf, 3, 5, 1), 0);
		break;
	case 3:
		assert_int_equal(mapfile_own(mf, 4, 0, 200), 0);
		break;
	case 4:
		assert_int_equal(mapfile_commit(mf, 3, false), 0);
		break;
	case 5:
		assert_int_equal(mapfile_truncate(mf, 4, 40000), 0);
		break;
	case 6:
		assert_int_equal(mapfile_own(mf, 4, 2, 9), 0);
		break;
	case 7:
		assert_int_equal(mapfile_file_gone(mf, 1), 0);
		break;
	case 8:
		assert_int_equal(mapfile_own(mf, 2, 250, 20), 0);
		break;
	case 9:
		assert_int_equal(mapfile_file_new(mf, 77, &id), 0);
		break;
	case 10:
		assert_int_equal(mapfile_commit(mf, 4, false), 0);
		break;
	default:
		assert_int_equal(mapfile_truncate(mf, 2, 3), 0);
	}
}

struct image {
	uint8_t *bytes;
	size_t len;
	size_t log; /* offset of the log's part that the script wrote */
	size_t end[SCRIPT_STEPS + 1]; /* of the log after so many steps */
	struct maps_state at[SCRIPT_STEPS + 1];
};

static void make_image(const struct maps_layer *l, struct image *img)
{
	struct mapfile *mf = maps_open_rw(l);
	file_id_t a = maps_new_file(mf, MIB), b = maps_new_file(mf, 2 * MIB);

	assert_int_equal(mapfile_own(mf, a, 1, 130), 0);
	assert_int_equal(mapfile_own(mf, b, 7, 1), 0);
	assert_int_equal(mapfile_own(mf, b, 9, 1), 0);
	assert_int_equal(mapfile_checkpoint(mf, true), 0);
	for (unsigned i = 0; i <= SCRIPT_STEPS; i++) {
		img->end[i] = mf->journal.tail;
		maps_take_state(mf, &img->at[i]);
		if (i < SCRIPT_STEPS)
			script_step(mf, i);
	}
	img->log = img->end[0];
	mapfile_close(mf);

	int fd = openat(l->root, MAPFILE_NAME, O_RDONLY);

	img->len = (size_t)maps_size(l);
	img->bytes = malloc(img->len);
	assert_int_equal(file_pread(fd, img->bytes, img->len, 0), img->len);
	close(fd);
}

static int open_bytes(const struct maps_layer *l, const uint8_t *p, size_t len, unsigned flags,
		      struct mapfile **ret)
{
	/* Without the second copy of the header. */
	unlinkat(l->root, MAPFILE_NAME, 0);

	int fd = openat(l->root, MAPFILE_NAME, O_WRONLY | O_CREAT | O_EXCL, 0644);

	assert_int_equal(file_pwrite(fd, p, len, 0), 0);
	close(fd);
	return mapfile_open(l->root, l->work, flags, "test", NULL, ret);
}

static void check_prefix(const struct maps_layer *l, const struct image *img, size_t len,
			 size_t whole, unsigned flags)
{
	struct mapfile *mf;
	struct maps_state got;
	unsigned k = 0;

	assert_int_equal(open_bytes(l, img->bytes, len, flags, &mf), 0);
	while (k < SCRIPT_STEPS && img->end[k + 1] <= whole)
		k++;
	maps_take_state(mf, &got);
	assert_memory_equal(&got, &img->at[k], sizeof(got));
	if (!flags) {
		/* The log goes on right there. */
		file_id_t id = maps_new_file(mf, 5);

		mapfile_close(mf);
		mf = maps_open_rw(l);
		assert_int_equal(maps_clip(mf, id), 5);
	}
	mapfile_close(mf);
}

static void test_mapfile__log_cut_at_any_byte_gives_the_records_before(void **state)
{
	const struct maps_layer *l = *state;
	struct image img;

	make_image(l, &img);
	for (size_t len = img.log; len <= img.len;
	     len += len < img.end[SCRIPT_STEPS] + 9 ? 1 : 97) {
		check_prefix(l, &img, len, len, MAPFILE_READONLY);
		check_prefix(l, &img, len, len, 0);
	}
	free(img.bytes);
}

/* All is as before, and after it was opened for writing the file is whole again. */
static void check_mended(const struct maps_layer *l, const struct image *img, unsigned flags)
{
	struct mapfile *mf;
	struct maps_state got;

	assert_int_equal(open_bytes(l, img->bytes, img->len, flags, &mf), 0);
	maps_take_state(mf, &got);
	assert_memory_equal(&got, &img->at[SCRIPT_STEPS], sizeof(got));
	assert_int_equal(mf->now.n_gaps, 0);
	mapfile_close(mf);
	if (flags)
		return;
	mf = maps_open(l, MAPFILE_READONLY, NULL);
	assert_int_equal(mf->now.n_mended, 0);
	maps_take_state(mf, &got);
	assert_memory_equal(&got, &img->at[SCRIPT_STEPS], sizeof(got));
	mapfile_close(mf);
}

static void test_mapfile__one_damaged_byte_changes_nothing(void **state)
{
	const struct maps_layer *l = *state;
	struct image img;

	log_set_level(-1);
	make_image(l, &img);
	for (size_t at = 0; at < img.len; at += at < img.end[SCRIPT_STEPS] + 200 ? 1 : 251) {
		const uint8_t was = img.bytes[at];

		img.bytes[at] ^= at % 3 ? 0x40 : 0xff;
		check_mended(l, &img, at % 7 ? MAPFILE_READONLY : 0);
		img.bytes[at] = was;
	}
	free(img.bytes);
}

static void test_mapfile__name_that_is_no_plain_file_is_refused(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf;

	log_set_level(-1);
	assert_int_equal(mkfifoat(l->root, MAPFILE_NAME, 0600), 0);
	assert_int_equal(mapfile_open(l->root, l->work, 0, "test", NULL, &mf), -EUCLEAN);
	unlinkat(l->root, MAPFILE_NAME, 0);
	assert_int_equal(symlinkat("/etc/passwd", l->root, MAPFILE_NAME), 0);
	assert_int_equal(mapfile_open(l->root, -1, MAPFILE_READONLY, "test", NULL, &mf), -EUCLEAN);
	unlinkat(l->root, MAPFILE_NAME, 0);
	assert_int_equal(mkdirat(l->root, MAPFILE_NAME, 0700), 0);
	assert_int_equal(mapfile_open(l->root, -1, MAPFILE_READONLY, "test", NULL, &mf), -EUCLEAN);
}

static void test_mapfile__full_disk_fails_early_and_heals(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf = maps_open_rw(l);
	file_id_t id = maps_new_file(mf, 1ull << 40);
	struct rlimit old, small;
	blk_t b = 0;
	int r = 0;

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = (struct rlimit){ 16384, old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	while (r == 0 && b < 10000) {
		r = mapfile_reserve(mf, 1) ?: mapfile_own(mf, id, b, 1);
		b += r == 0 ? 2 : 0;
	}
	assert_int_equal(r, -EFBIG);
	assert_true(b > 400);
	assert_false(maps_is_own(mf, id, b));
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 100, old.rlim_max }), 0);
	assert_int_equal(mapfile_checkpoint(mf, true), -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_true(maps_work_is_empty(l));
	mapfile_close(mf);

	mf = maps_open_rw(l);
	assert_true(maps_is_own(mf, id, b - 2));
	assert_false(maps_is_own(mf, id, b));
	assert_int_equal(mapfile_own(mf, id, b, 1), 0);
	mapfile_close(mf);
}

static void test_mapfile__bad_page_poisons(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf = maps_open_rw(l);
	file_id_t id = maps_new_file(mf, MIB), other;
	int fd = openat(l->root, MAPFILE_NAME, O_RDWR), said[2], before = dup(STDERR_FILENO);
	char text[512];
	ssize_t len;

	sigaction(SIGBUS, &guard, NULL);
	assert_int_equal(mapfile_own(mf, id, 1, 1), 0);
	assert_int_equal(ftruncate(fd, 0), 0);
	close(fd);
	assert_int_equal(pipe(said), 0);
	log_set_level(LOG_LVL_ERROR);
	dup2(said[1], STDERR_FILENO);
	close(said[1]);
	assert_int_equal(mapfile_own(mf, id, 2, 1), -EIO);
	dup2(before, STDERR_FILENO);
	close(before);
	len = read(said[0], text, sizeof(text) - 1);
	close(said[0]);
	assert_true(len > 0);
	text[len] = '\0';
	assert_non_null(strstr(text, "no more changes until it is opened again"));
	log_set_level(-1);
	assert_int_equal(mapfile_file_new(mf, 1, &other), -EIO);
	assert_int_equal(mapfile_commit(mf, id, true), -EIO);
	assert_int_equal(mapfile_checkpoint(mf, true), -EIO);
	assert_true(maps_is_own(mf, id, 1));
	mapfile_close(mf);
}

static void count_files(void *arg, file_id_t id, const struct blkmap *map)
{
	uint64_t *sum = arg;

	*sum += id * 1000 + blkmap_count(map);
}

static void test_mapfile__each_visits_every_file(void **state)
{
	struct mapfile *mf = maps_open(*state, MAPFILE_VOLATILE, NULL);
	file_id_t a = maps_new_file(mf, MIB), b = maps_new_file(mf, MIB),
		  c = maps_new_file(mf, MIB);
	uint64_t sum = 0;

	assert_int_equal(mapfile_own(mf, b, 0, 7), 0);
	assert_int_equal(mapfile_file_gone(mf, c), 0);
	mapfile_each(mf, count_files, &sum);
	assert_int_equal(sum, (a + b) * 1000 + 7);
	mapfile_close(mf);
}

#define T(name) cmocka_unit_test_setup_teardown(test_mapfile__##name, maps_setup, maps_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(untouched_layer_stays_untouched),
		T(first_file_costs_one_page),
		T(reopen_finds_what_was_recorded),
		T(readonly_changes_nothing),
		T(impossible_numbers_are_refused),
		T(log_cut_at_any_byte_gives_the_records_before),
		T(one_damaged_byte_changes_nothing),
		T(name_that_is_no_plain_file_is_refused),
		T(full_disk_fails_early_and_heals),
		T(bad_page_poisons),
		T(each_visits_every_file),
	};

	file_guard_init();
	sigaction(SIGBUS, NULL, &guard);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
