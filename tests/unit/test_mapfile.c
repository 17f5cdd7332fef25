// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
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

#include "map/mapfile-internal.h"
#include "veneer/file.h"
#include "veneer/log.h"

#define BOOT_A 0xaaaau
#define BOOT_B 0xbbbbu
#define MIB    (1u << 20)

struct layer {
	char dir[32];
	int root, work;
};

static int setup(void **state)
{
	struct layer *l = calloc(1, sizeof(*l));

	strcpy(l->dir, "/tmp/test-mapfile-XXXXXX");
	if (!mkdtemp(l->dir))
		return -1;
	l->root = open(l->dir, O_RDONLY | O_DIRECTORY);
	mkdirat(l->root, "upper", 0700);
	mkdirat(l->root, "work", 0700);
	l->work = openat(l->root, "work", O_RDONLY | O_DIRECTORY);
	close(l->root);

	char upper[64];

	snprintf(upper, sizeof(upper), "%s/upper", l->dir);
	l->root = open(upper, O_RDONLY | O_DIRECTORY);
	mapload_test_epoch = BOOT_A;
	log_set_level(LOG_LVL_ERROR);
	*state = l;
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static int teardown(void **state)
{
	struct layer *l = *state;

	close(l->root);
	close(l->work);
	nftw(l->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	free(l);
	return 0;
}

static struct mapfile *open_as(const struct layer *l, unsigned flags,
			       const struct mapfile_rebuild *rebuild)
{
	struct mapfile *mf = NULL;

	assert_int_equal(mapfile_open(l->root, l->work, flags, "test", rebuild, &mf), 0);
	return mf;
}

static struct mapfile *open_rw(const struct layer *l)
{
	return open_as(l, 0, NULL);
}

static file_id_t new_file(struct mapfile *mf, uint64_t clip)
{
	file_id_t id = 0;

	assert_int_equal(mapfile_file_new(mf, clip, &id), 0);
	assert_int_not_equal(id, 0);
	return id;
}

static bool is_own(struct mapfile *mf, file_id_t id, blk_t blk)
{
	bool own;
	blk_t n;

	assert_int_equal(mapfile_run(mf, id, blk, 1, &own, &n), 0);
	assert_int_equal(n, 1);
	return own;
}

static uint64_t clip_of(struct mapfile *mf, file_id_t id)
{
	uint64_t clip;

	assert_int_equal(mapfile_clip(mf, id, &clip), 0);
	return clip;
}

static off_t map_size(const struct layer *l)
{
	struct stat st;

	return fstatat(l->root, MAPFILE_NAME, &st, 0) < 0 ? -1 : st.st_size;
}

static bool work_is_empty(const struct layer *l)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/work", l->dir);
	return rmdir(path) == 0;
}

/* cmocka puts its own handler in place of ours before each test. */
static struct sigaction guard;

/* Everything that can be asked, as numbers that can be compared. */
#define STATE_FILES 8
#define STATE_BLKS  300
struct state {
	size_t count;
	uint64_t clip[STATE_FILES];
	uint8_t own[STATE_FILES][STATE_BLKS];
};

static void take_state(struct mapfile *mf, struct state *s)
{
	memset(s, 0, sizeof(*s));
	s->count = mapfile_count(mf);
	for (file_id_t id = 1; id < STATE_FILES; id++) {
		if (mapfile_clip(mf, id, &s->clip[id]) < 0)
			continue;
		s->clip[id]++;
		for (blk_t b = 0; b < STATE_BLKS; b++)
			s->own[id][b] = is_own(mf, id, b);
	}
}

static void test_mapfile__untouched_layer_stays_untouched(void **state)
{
	const struct layer *l = *state;
	struct mapfile *mf = open_rw(l);

	assert_int_equal(mapfile_uuid(mf), 0);
	assert_int_equal(mapfile_count(mf), 0);
	assert_int_equal(mapfile_mark_clean(mf), 0);
	assert_int_equal(mapfile_checkpoint(mf, true), 0);
	mapfile_close(mf);
	assert_int_equal(map_size(l), -1);
}

static void test_mapfile__first_file_costs_one_page(void **state)
{
	const struct layer *l = *state;
	struct mapfile *mf = open_rw(l);
	file_id_t id = new_file(mf, MIB);

	assert_int_equal(mapfile_reserve(mf, 1), 0);
	assert_int_equal(mapfile_own(mf, id, 3, 1), 0);
	assert_int_equal(map_size(l), 4096);
	assert_int_not_equal(mapfile_uuid(mf), 0);
	mapfile_close(mf);
}

static void test_mapfile__reopen_finds_what_was_recorded(void **state)
{
	const struct layer *l = *state;
	struct mapfile *mf = open_rw(l);
	file_id_t a = new_file(mf, MIB), b = new_file(mf, 5000), c = new_file(mf, 10 * MIB);
	uint64_t uuid = mapfile_uuid(mf);
	struct state before, after;

	assert_int_equal(mapfile_own(mf, a, 3, 2), 0);
	assert_int_equal(mapfile_own(mf, b, 0, 2), 0);
	assert_int_equal(mapfile_is_complete(mf, b), 1);
	assert_int_equal(mapfile_truncate(mf, a, 4 * BLK_BYTES + 1), 0);
	assert_int_equal(mapfile_file_gone(mf, c), 0);
	assert_int_equal(mapfile_file_gone(mf, c), -ENOENT);
	assert_int_equal(mapfile_own(mf, c, 1, 1), -ENOENT);
	take_state(mf, &before);
	mapfile_close(mf);
	for (unsigned flags = 0; flags <= MAPFILE_READONLY; flags++) {
		mf = open_as(l, flags, NULL);
		take_state(mf, &after);
		assert_memory_equal(&before, &after, sizeof(before));
		assert_int_equal(mapfile_uuid(mf), uuid);
		mapfile_close(mf);
	}
	mf = open_rw(l);
	assert_int_equal(new_file(mf, 1), c + 1);
	assert_int_equal(mapfile_checkpoint(mf, true), 0);
	assert_int_equal(mapfile_file_gone(mf, c + 1), 0);
	take_state(mf, &after);
	assert_memory_equal(&before, &after, sizeof(before));
	mapfile_close(mf);
	mf = open_rw(l);
	take_state(mf, &after);
	assert_memory_equal(&before, &after, sizeof(before));
	assert_true(work_is_empty(l));
	mapfile_close(mf);
}

static void test_mapfile__readonly_changes_nothing(void **state)
{
	const struct layer *l = *state;
	struct mapfile *mf = open_rw(l);
	file_id_t id = new_file(mf, MIB), other;

	mapfile_close(mf);
	mf = open_as(l, MAPFILE_READONLY, NULL);
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
	struct mapfile *mf = open_rw(*state);
	file_id_t id = new_file(mf, INT64_MAX), none;

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
	struct state at[SCRIPT_STEPS + 1];
};

static void make_image(const struct layer *l, struct image *img)
{
	struct mapfile *mf = open_rw(l);
	file_id_t a = new_file(mf, MIB), b = new_file(mf, 2 * MIB);

	assert_int_equal(mapfile_own(mf, a, 1, 130), 0);
	assert_int_equal(mapfile_own(mf, b, 7, 1), 0);
	assert_int_equal(mapfile_own(mf, b, 9, 1), 0);
	assert_int_equal(mapfile_checkpoint(mf, true), 0);
	for (unsigned i = 0; i <= SCRIPT_STEPS; i++) {
		img->end[i] = mf->journal.tail;
		take_state(mf, &img->at[i]);
		if (i < SCRIPT_STEPS)
			script_step(mf, i);
	}
	img->log = img->end[0];
	mapfile_close(mf);

	int fd = openat(l->root, MAPFILE_NAME, O_RDONLY);

	img->len = (size_t)map_size(l);
	img->bytes = malloc(img->len);
	assert_int_equal(file_pread(fd, img->bytes, img->len, 0), img->len);
	close(fd);
}

static int open_bytes(const struct layer *l, const uint8_t *p, size_t len, unsigned flags,
		      struct mapfile **ret)
{
	int fd = openat(l->root, MAPFILE_NAME, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_int_equal(file_pwrite(fd, p, len, 0), 0);
	close(fd);
	return mapfile_open(l->root, l->work, flags, "test", NULL, ret);
}

static void check_prefix(const struct layer *l, const struct image *img, size_t len, size_t whole,
			 unsigned flags)
{
	struct mapfile *mf;
	struct state got;
	unsigned k = 0;

	assert_int_equal(open_bytes(l, img->bytes, len, flags, &mf), 0);
	while (k < SCRIPT_STEPS && img->end[k + 1] <= whole)
		k++;
	take_state(mf, &got);
	assert_memory_equal(&got, &img->at[k], sizeof(got));
	if (!flags) {
		/* The log goes on right there. */
		file_id_t id = new_file(mf, 5);

		mapfile_close(mf);
		mf = open_rw(l);
		assert_int_equal(clip_of(mf, id), 5);
	}
	mapfile_close(mf);
}

static void test_mapfile__log_cut_at_any_byte_gives_the_records_before(void **state)
{
	const struct layer *l = *state;
	struct image img;

	make_image(l, &img);
	for (size_t len = img.log; len <= img.len;
	     len += len < img.end[SCRIPT_STEPS] + 9 ? 1 : 97) {
		check_prefix(l, &img, len, len, MAPFILE_READONLY);
		check_prefix(l, &img, len, len, 0);
	}
	free(img.bytes);
}

/* Only at the very end may a bad record be one that was never finished; in front of others it is
 * damage, and the blocks that those others made own must not fall back to the old content. */
static void check_flipped(const struct layer *l, const struct image *img, size_t at, unsigned flags)
{
	const size_t end = img->end[SCRIPT_STEPS];
	struct mapfile *mf;

	if (at + 2 * FORMAT_REC_BYTES_MAX < end) {
		assert_int_equal(open_bytes(l, img->bytes, img->len, flags, &mf), -EUCLEAN);
		return;
	}
	int r = open_bytes(l, img->bytes, img->len, flags, &mf);

	if (r == 0)
		mapfile_close(mf);
	else
		assert_true(r == -EUCLEAN && at + FORMAT_REC_BYTES_MAX < end);
	if (r == 0)
		check_prefix(l, img, img->len, at, flags);
}

static void test_mapfile__flipped_byte_ends_the_log_or_is_damage(void **state)
{
	const struct layer *l = *state;
	struct image img;

	log_set_level(-1);
	make_image(l, &img);
	for (size_t at = img.log; at < img.end[SCRIPT_STEPS]; at++) {
		img.bytes[at] ^= 0x40;
		check_flipped(l, &img, at, MAPFILE_READONLY);
		check_flipped(l, &img, at, 0);
		img.bytes[at] ^= 0x40;
	}
	free(img.bytes);
}

static void test_mapfile__damaged_header_or_snapshot_is_refused(void **state)
{
	const struct layer *l = *state;
	struct mapfile *mf;
	struct image img;
	struct format_map_header h;
	const char *why;

	log_set_level(-1);
	make_image(l, &img);
	assert_int_equal(snapshot_header_decode(img.bytes, img.len, &h, &why), 0);

	size_t end = sizeof(h) + h.snapshot_len;

	for (size_t at = 0; at < end; at++) {
		img.bytes[at] ^= 0x10;
		assert_int_equal(open_bytes(l, img.bytes, img.len, 0, &mf), -EUCLEAN);
		img.bytes[at] ^= 0x10;
		assert_int_equal(open_bytes(l, img.bytes, at, MAPFILE_READONLY, &mf), -EUCLEAN);
	}
	free(img.bytes);
}

static void test_mapfile__name_that_is_no_plain_file_is_refused(void **state)
{
	const struct layer *l = *state;
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

/* Extents as a backing file system would tell them. */
struct fake_disk {
	int result;
	blk_t blk, n;
	file_id_t gone;
	unsigned asked;
};

static int fake_extents(void *arg, file_id_t id, int (*own)(void *own_arg, blk_t blk, blk_t n),
			void *own_arg)
{
	struct fake_disk *d = arg;

	d->asked++;
	if (id == d->gone)
		return -ENOENT;
	if (d->result == 0 || d->result == -EOPNOTSUPP)
		own(own_arg, d->blk, d->n);
	return d->result;
}

struct crash {
	file_id_t committed, fresh, cut, gone;
};

/* What a machine that goes down now leaves, had all of it reached the disk. */
static struct crash make_crash(const struct layer *l, bool checkpointed)
{
	struct mapfile *mf = open_rw(l);
	struct crash c = { new_file(mf, MIB), new_file(mf, MIB), new_file(mf, MIB),
			   new_file(mf, MIB) };

	assert_int_equal(mapfile_own(mf, c.committed, 1, 2), 0);
	assert_int_equal(mapfile_commit(mf, c.committed, true), 0);
	assert_int_equal(mapfile_own(mf, c.committed, 2, 4), 0);
	assert_int_equal(mapfile_own(mf, c.fresh, 9, 1), 0);
	assert_int_equal(mapfile_own(mf, c.cut, 10, 10), 0);
	assert_int_equal(mapfile_commit(mf, c.cut, true), 0);
	assert_int_equal(mapfile_own(mf, c.cut, 30, 1), 0);
	assert_int_equal(mapfile_truncate(mf, c.cut, 15 * BLK_BYTES), 0);
	assert_int_equal(mapfile_own(mf, c.cut, 2, 1), 0);
	assert_int_equal(mapfile_own(mf, c.gone, 4, 1), 0);
	assert_int_equal(mapfile_commit(mf, c.gone, true), 0);
	assert_int_equal(mapfile_file_gone(mf, c.gone), 0);
	if (checkpointed)
		assert_int_equal(mapfile_checkpoint(mf, true), 0);
	assert_int_equal(mapfile_count(mf), 3);
	assert_true(is_own(mf, c.committed, 5));
	assert_int_equal(clip_of(mf, c.cut), 15 * BLK_BYTES);
	mapfile_close(mf);
	return c;
}

static void check_committed_only(struct mapfile *mf, const struct crash *c)
{
	assert_int_equal(mapfile_count(mf), 4);
	assert_true(is_own(mf, c->committed, 1));
	assert_true(is_own(mf, c->committed, 2));
	assert_false(is_own(mf, c->committed, 3));
	assert_false(is_own(mf, c->fresh, 9));
	assert_int_equal(clip_of(mf, c->cut), MIB);
	assert_true(is_own(mf, c->cut, 19));
	assert_false(is_own(mf, c->cut, 30));
	assert_false(is_own(mf, c->cut, 2));
	assert_true(is_own(mf, c->gone, 4));
}

static void test_mapfile__unclean_boot_keeps_what_was_committed(void **state)
{
	const struct layer *l = *state;
	struct fake_disk none = { .result = -EOPNOTSUPP, .blk = 40, .n = 5 };
	struct mapfile_rebuild rebuild = { fake_extents, &none };

	for (int checkpointed = 0; checkpointed < 2; checkpointed++) {
		struct crash c = make_crash(l, checkpointed);
		struct mapfile *mf = open_rw(l);

		assert_true(is_own(mf, c.committed, 5));
		mapfile_close(mf);
		mapload_test_epoch = BOOT_B;
		mf = open_as(l, MAPFILE_READONLY, NULL);
		check_committed_only(mf, &c);
		mapfile_close(mf);
		mf = open_as(l, MAPFILE_READONLY, &rebuild);
		check_committed_only(mf, &c);
		assert_false(is_own(mf, c.fresh, 41));
		mapfile_close(mf);

		mf = open_as(l, 0, NULL);
		check_committed_only(mf, &c);
		file_id_t id = new_file(mf, 1);

		assert_true(id > FORMAT_LOST_IDS);
		assert_int_equal(mapfile_file_gone(mf, id), 0);
		mapfile_close(mf);
		mf = open_as(l, 0, NULL);
		check_committed_only(mf, &c);
		mapfile_close(mf);
		mapload_test_epoch = BOOT_A;
		unlinkat(l->root, MAPFILE_NAME, 0);
	}
}

static void test_mapfile__unclean_boot_takes_blocks_from_extents(void **state)
{
	const struct layer *l = *state;
	struct crash c = make_crash(l, true);
	struct fake_disk disk = { .blk = 40, .n = 5, .gone = c.gone };
	struct mapfile_rebuild rebuild = { fake_extents, &disk };

	mapload_test_epoch = BOOT_B;
	for (int i = 0; i < 3; i++) {
		struct mapfile *mf = open_as(l, i == 0 ? MAPFILE_READONLY : 0, &rebuild);

		assert_int_equal(mapfile_count(mf), 3);
		assert_true(is_own(mf, c.committed, 2));
		assert_false(is_own(mf, c.committed, 3));
		assert_true(is_own(mf, c.committed, 40));
		assert_true(is_own(mf, c.fresh, 44));
		assert_false(is_own(mf, c.fresh, 45));
		assert_int_equal(mapfile_pending(mf, c.fresh), MAPFILE_CLEAN);
		mapfile_close(mf);
	}
	/* Asked by the reader and by the first writer, whose checkpoint the second one trusts. */
	assert_int_equal(disk.asked, 8);
}

static void test_mapfile__extents_of_a_copied_layer_are_not_asked(void **state)
{
	const struct layer *l = *state;
	struct crash c = make_crash(l, false);
	struct fake_disk disk = { .blk = 0, .n = 256 };
	struct mapfile_rebuild rebuild = { fake_extents, &disk };
	uint8_t bytes[8192];
	int fd = openat(l->root, MAPFILE_NAME, O_RDONLY);
	ssize_t len = file_pread(fd, bytes, sizeof(bytes), 0);

	close(fd);
	fd = openat(l->root, "copy", O_WRONLY | O_CREAT, 0644);
	assert_int_equal(file_pwrite(fd, bytes, (size_t)len, 0), 0);
	close(fd);
	assert_int_equal(renameat(l->root, "copy", l->root, MAPFILE_NAME), 0);
	mapload_test_epoch = BOOT_B;

	struct mapfile *mf = open_as(l, 0, &rebuild);

	assert_int_equal(disk.asked, 0);
	check_committed_only(mf, &c);
	mapfile_close(mf);
}

static void test_mapfile__failing_extents_fail_the_open_and_change_nothing(void **state)
{
	const struct layer *l = *state;
	struct fake_disk disk = { .result = -EIO };
	struct mapfile_rebuild rebuild = { fake_extents, &disk };
	struct mapfile *mf;
	struct crash c = make_crash(l, false);

	mapload_test_epoch = BOOT_B;
	assert_int_equal(mapfile_open(l->root, l->work, 0, "test", &rebuild, &mf), -EIO);
	disk.result = -EOPNOTSUPP;
	mf = open_as(l, 0, &rebuild);
	check_committed_only(mf, &c);
	mapfile_close(mf);
}

static void test_mapfile__clean_mark_lets_the_next_boot_trust_all(void **state)
{
	const struct layer *l = *state;
	struct mapfile *mf = open_rw(l);
	file_id_t id = new_file(mf, MIB);

	assert_int_equal(mapfile_own(mf, id, 3, 1), 0);
	assert_int_equal(mapfile_mark_clean(mf), 0);
	mapfile_close(mf);
	mapload_test_epoch = BOOT_B;
	mf = open_rw(l);
	assert_true(is_own(mf, id, 3));
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_CLEAN);
	assert_int_equal(mapfile_own(mf, id, 4, 1), 0);
	assert_int_equal(new_file(mf, 1), id + 1);
	mapfile_close(mf);
	mapload_test_epoch = BOOT_A;
	mf = open_rw(l);
	assert_true(is_own(mf, id, 3));
	assert_false(is_own(mf, id, 4));
	mapfile_close(mf);
}

static void test_mapfile__lost_ids_can_be_entered_again_and_no_others(void **state)
{
	const struct layer *l = *state;
	struct crash c = make_crash(l, false);
	struct fake_disk disk = { .blk = 40, .n = 5 };
	struct mapfile_rebuild rebuild = { fake_extents, &disk };
	file_id_t lost = c.gone + 1;

	mapload_test_epoch = BOOT_B;
	for (int i = 0; i < 2; i++) {
		struct mapfile *mf = open_as(l, i == 0 ? MAPFILE_READONLY : 0, NULL);

		assert_int_equal(mapfile_file_adopt(mf, c.fresh, MIB, &rebuild), -EEXIST);
		assert_int_equal(mapfile_file_adopt(mf, FORMAT_LOST_IDS + 99, MIB, &rebuild),
				 -ENOENT);
		assert_int_equal(mapfile_file_adopt(mf, lost, MIB, &rebuild), 0);
		assert_int_equal(mapfile_file_adopt(mf, lost + 1, MIB, NULL), 0);
		assert_true(is_own(mf, lost, 44));
		assert_false(is_own(mf, lost + 1, 44));
		assert_int_equal(mapfile_count(mf), 6);
		mapfile_close(mf);
	}

	struct mapfile *mf = open_rw(l);

	assert_true(is_own(mf, lost, 44));
	assert_int_equal(mapfile_file_gone(mf, lost), 0);
	mapfile_close(mf);
	mf = open_as(l, 0, NULL);
	assert_int_equal(mapfile_file_adopt(mf, lost, MIB, &rebuild), -ENOENT);
	mapfile_close(mf);
}

static void test_mapfile__pending_says_what_a_sync_needs(void **state)
{
	struct mapfile *mf = open_rw(*state);
	file_id_t id = new_file(mf, MIB), other = new_file(mf, MIB);

	assert_int_equal(mapfile_pending(mf, id), MAPFILE_MUST_SYNC);
	assert_int_equal(mapfile_commit(mf, id, true), 0);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_CLEAN);
	assert_int_equal(mapfile_own(mf, id, 1, 1), 0);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_OWN_ONLY);
	assert_int_equal(mapfile_commit(mf, id, false), 0);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_CLEAN);
	assert_int_equal(mapfile_truncate(mf, id, 5), 0);
	assert_int_equal(mapfile_commit(mf, other, true), 0);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_MUST_SYNC);
	assert_int_equal(mapfile_commit(mf, id, false), 0);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_MUST_SYNC);
	assert_int_equal(mapfile_commit(mf, id, true), 0);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_CLEAN);
	mapfile_close(mf);
	mf = open_rw(*state);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_MUST_SYNC);
	mapfile_close(mf);
}

static void test_mapfile__commit_does_not_cover_what_came_after_the_data_sync(void **state)
{
	struct mapfile *mf = open_rw(*state);
	file_id_t id = new_file(mf, MIB);

	assert_int_equal(mapfile_own(mf, id, 1, 1), 0);
	uint64_t change = mapfile_change(mf, id);

	assert_int_equal(mapfile_own(mf, id, 2, 1), 0);
	assert_int_equal(mapfile_commit_since(mf, id, change, true), -EAGAIN);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_MUST_SYNC);
	assert_int_equal(mapfile_commit_since(mf, id, mapfile_change(mf, id), true), 0);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_CLEAN);
	mapfile_close(mf);
}

static void test_mapfile__reader_follows_appends_and_checkpoints(void **state)
{
	const struct layer *l = *state;
	struct mapfile *reader = open_as(l, MAPFILE_READONLY, NULL);

	assert_int_equal(mapfile_refresh(reader), 0);

	struct mapfile *mf = open_rw(l);
	file_id_t id = new_file(mf, 100 * MIB);

	assert_int_equal(mapfile_refresh(reader), 1);
	assert_int_equal(mapfile_refresh(reader), 0);
	for (blk_t b = 0; b < 2000; b += 2) {
		assert_int_equal(mapfile_own(mf, id, b, 1), 0);
		if (b % 100 == 0)
			assert_int_equal(mapfile_refresh(reader), 1);
		if (b == 500)
			assert_int_equal(mapfile_checkpoint(mf, true), 0);
	}
	assert_int_equal(mapfile_refresh(reader), 1);
	assert_true(is_own(reader, id, 1998));
	assert_false(is_own(reader, id, 1997));
	assert_int_equal(mapfile_checkpoint(mf, true), 0);
	assert_int_equal(mapfile_refresh(reader), 1);
	assert_true(is_own(reader, id, 1998));
	assert_false(is_own(reader, id, 1997));
	mapfile_close(reader);
	mapfile_close(mf);
}

struct writer {
	struct mapfile *mf;
	file_id_t id;
	unsigned parity;
	int failed;
};

#define THREAD_BLKS 20000u
static void *write_blocks(void *arg)
{
	struct writer *w = arg;

	for (blk_t b = w->parity; b < THREAD_BLKS; b += 4) {
		w->failed |= mapfile_own(w->mf, w->id, b, 1);
		if (b % 400 == 0)
			w->failed |= mapfile_commit(w->mf, w->id, b % 4000 == 0);
	}
	return NULL;
}

static void test_mapfile__checkpoints_lose_no_concurrent_append(void **state)
{
	const struct layer *l = *state;
	struct mapfile *mf = open_rw(l);
	static struct writer w[2];
	pthread_t t[2];

	for (unsigned i = 0; i < 2; i++)
		w[i] = (struct writer){ mf, new_file(mf, 1ull << 30), i, 0 };
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i], NULL, write_blocks, &w[i]), 0);
	for (int i = 0; i < 30; i++)
		assert_int_equal(mapfile_checkpoint(mf, true), 0);
	for (int i = 0; i < 2; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(w[i].failed, 0);
	}
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 2; i++)
			for (blk_t b = 0; b < THREAD_BLKS; b++)
				assert_int_equal(is_own(mf, w[i].id, b), b % 4 == w[i].parity);
		mapfile_close(mf);
		mf = open_rw(l);
	}
	mapfile_close(mf);
	assert_true(work_is_empty(l));
}

static void test_mapfile__long_log_asks_for_a_checkpoint(void **state)
{
	const struct layer *l = *state;
	struct mapfile *mf = open_rw(l);
	file_id_t id = new_file(mf, 1ull << 40);

	assert_false(mapfile_wants_checkpoint(mf));
	for (blk_t b = 0; b < 20000; b += 2)
		assert_int_equal(mapfile_own(mf, id, b, 1), 0);
	assert_true(mapfile_wants_checkpoint(mf));
	off_t before = map_size(l);

	assert_int_equal(mapfile_commit(mf, id, false), 0);
	assert_int_equal(mapfile_checkpoint(mf, false), 0);
	assert_false(mapfile_wants_checkpoint(mf));
	assert_true(map_size(l) < before / 10);
	mapfile_close(mf);
	mf = open_rw(l);
	assert_true(is_own(mf, id, 19998));
	mapfile_close(mf);
}

static void test_mapfile__full_disk_fails_early_and_heals(void **state)
{
	const struct layer *l = *state;
	struct mapfile *mf = open_rw(l);
	file_id_t id = new_file(mf, 1ull << 40);
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
	assert_false(is_own(mf, id, b));
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 100, old.rlim_max }), 0);
	assert_int_equal(mapfile_checkpoint(mf, true), -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_true(work_is_empty(l));
	mapfile_close(mf);

	mf = open_rw(l);
	assert_true(is_own(mf, id, b - 2));
	assert_false(is_own(mf, id, b));
	assert_int_equal(mapfile_own(mf, id, b, 1), 0);
	mapfile_close(mf);
}

static void test_mapfile__bad_page_poisons(void **state)
{
	const struct layer *l = *state;
	struct mapfile *mf = open_rw(l);
	file_id_t id = new_file(mf, MIB), other;
	int fd = openat(l->root, MAPFILE_NAME, O_RDWR);

	log_set_level(-1);
	sigaction(SIGBUS, &guard, NULL);
	assert_int_equal(mapfile_own(mf, id, 1, 1), 0);
	assert_int_equal(ftruncate(fd, 0), 0);
	close(fd);
	assert_int_equal(mapfile_own(mf, id, 2, 1), -EIO);
	assert_int_equal(mapfile_file_new(mf, 1, &other), -EIO);
	assert_int_equal(mapfile_commit(mf, id, true), -EIO);
	assert_int_equal(mapfile_checkpoint(mf, true), -EIO);
	assert_true(is_own(mf, id, 1));
	mapfile_close(mf);
}

static void count_files(void *arg, file_id_t id, const struct blkmap *map)
{
	uint64_t *sum = arg;

	*sum += id * 1000 + blkmap_count(map);
}

static void test_mapfile__each_visits_every_file(void **state)
{
	struct mapfile *mf = open_as(*state, MAPFILE_VOLATILE, NULL);
	file_id_t a = new_file(mf, MIB), b = new_file(mf, MIB), c = new_file(mf, MIB);
	uint64_t sum = 0;

	assert_int_equal(mapfile_own(mf, b, 0, 7), 0);
	assert_int_equal(mapfile_file_gone(mf, c), 0);
	mapfile_each(mf, count_files, &sum);
	assert_int_equal(sum, (a + b) * 1000 + 7);
	mapfile_close(mf);
}

#define T(name) cmocka_unit_test_setup_teardown(test_mapfile__##name, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(untouched_layer_stays_untouched),
		T(first_file_costs_one_page),
		T(reopen_finds_what_was_recorded),
		T(readonly_changes_nothing),
		T(impossible_numbers_are_refused),
		T(log_cut_at_any_byte_gives_the_records_before),
		T(flipped_byte_ends_the_log_or_is_damage),
		T(damaged_header_or_snapshot_is_refused),
		T(name_that_is_no_plain_file_is_refused),
		T(unclean_boot_keeps_what_was_committed),
		T(unclean_boot_takes_blocks_from_extents),
		T(extents_of_a_copied_layer_are_not_asked),
		T(failing_extents_fail_the_open_and_change_nothing),
		T(clean_mark_lets_the_next_boot_trust_all),
		T(lost_ids_can_be_entered_again_and_no_others),
		T(pending_says_what_a_sync_needs),
		T(commit_does_not_cover_what_came_after_the_data_sync),
		T(reader_follows_appends_and_checkpoints),
		T(checkpoints_lose_no_concurrent_append),
		T(long_log_asks_for_a_checkpoint),
		T(full_disk_fails_early_and_heals),
		T(bad_page_poisons),
		T(each_visits_every_file),
	};

	file_guard_init();
	sigaction(SIGBUS, NULL, &guard);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
