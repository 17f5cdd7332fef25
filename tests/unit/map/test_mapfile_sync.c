// SPDX-License-Identifier: Apache-2.0
/* Tests what of a map outlives the machine: sessions, commits, extents, and checkpoints under
 * way. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/maps.h"
#include "support/scratch.h"
#include "veneer/base/log.h"
#include "veneer/sys/file.h"

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

/* The state that a machine that goes down now leaves, had all of it reached the disk. */
static struct crash make_crash(const struct maps_layer *l, bool checkpointed)
{
	struct mapfile *mf = maps_open_rw(l);
	struct crash c = { maps_new_file(mf, MIB), maps_new_file(mf, MIB), maps_new_file(mf, MIB),
			   maps_new_file(mf, MIB) };

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
	assert_true(maps_is_own(mf, c.committed, 5));
	assert_int_equal(maps_clip(mf, c.cut), 15 * BLK_BYTES);
	mapfile_close(mf);
	return c;
}

static void check_committed_only(struct mapfile *mf, const struct crash *c)
{
	assert_int_equal(mapfile_count(mf), 4);
	assert_true(maps_is_own(mf, c->committed, 1));
	assert_true(maps_is_own(mf, c->committed, 2));
	assert_false(maps_is_own(mf, c->committed, 3));
	assert_false(maps_is_own(mf, c->fresh, 9));
	assert_int_equal(maps_clip(mf, c->cut), MIB);
	assert_true(maps_is_own(mf, c->cut, 19));
	assert_false(maps_is_own(mf, c->cut, 30));
	assert_false(maps_is_own(mf, c->cut, 2));
	assert_true(maps_is_own(mf, c->gone, 4));
}

static void test_mapfile_sync__unclean_boot_keeps_what_was_committed(void **state)
{
	const struct maps_layer *l = *state;
	struct fake_disk none = { .result = -EOPNOTSUPP, .blk = 40, .n = 5 };
	struct mapfile_rebuild rebuild = { fake_extents, &none, NULL };

	for (int checkpointed = 0; checkpointed < 2; checkpointed++) {
		struct crash c = make_crash(l, checkpointed);
		struct mapfile *mf = maps_open_rw(l);

		assert_true(maps_is_own(mf, c.committed, 5));
		mapfile_close(mf);
		session_epoch_for_tests = BOOT_B;
		mf = maps_open(l, MAPFILE_READONLY, NULL);
		check_committed_only(mf, &c);
		mapfile_close(mf);
		mf = maps_open(l, MAPFILE_READONLY, &rebuild);
		check_committed_only(mf, &c);
		assert_false(maps_is_own(mf, c.fresh, 41));
		mapfile_close(mf);

		mf = maps_open(l, 0, NULL);
		check_committed_only(mf, &c);
		file_id_t id = maps_new_file(mf, 1);

		assert_true(id > FORMAT_LOST_IDS);
		assert_int_equal(mapfile_file_gone(mf, id), 0);
		mapfile_close(mf);
		mf = maps_open(l, 0, NULL);
		check_committed_only(mf, &c);
		mapfile_close(mf);
		session_epoch_for_tests = BOOT_A;
		unlinkat(l->root, MAPFILE_NAME, 0);
	}
}

static void test_mapfile_sync__a_commit_is_durable_once_the_map_was_synced(void **state)
{
	struct mapfile *mf = maps_open_rw(*state);
	file_id_t id = maps_new_file(mf, MIB);

	assert_int_equal(mapfile_commit(mf, id, true), 0);
	assert_int_equal(mapfile_own(mf, id, 1, 2), 0);
	assert_int_equal(mapfile_commit(mf, id, true), 0);
	assert_true(mapfile_is_durable(mf, id));
	assert_int_equal(mapfile_own(mf, id, 5, 1), 0);
	assert_false(mapfile_is_durable(mf, id));
	assert_int_equal(mapfile_commit(mf, id, false), 0);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_CLEAN);
	assert_false(mapfile_is_durable(mf, id));
	assert_int_equal(mapfile_commit(mf, id, true), 0);
	assert_true(mapfile_is_durable(mf, id));
	assert_int_equal(mapfile_own(mf, id, 7, 2), 0);
	assert_false(mapfile_is_durable(mf, id));
	mapfile_close(mf);
}

static void test_mapfile_sync__a_cut_is_one_until_its_commit_is_on_disk(void **state)
{
	struct mapfile *mf = maps_open_rw(*state);
	file_id_t id = maps_new_file(mf, MIB);

	assert_int_equal(mapfile_is_cut(mf, id + 1), -ENOENT);
	assert_int_equal(mapfile_own(mf, id, 1, 2), 0);
	assert_int_equal(mapfile_is_cut(mf, id), 0);
	assert_int_equal(mapfile_truncate(mf, id, 2 * BLK_BYTES), 0);
	assert_int_equal(mapfile_is_cut(mf, id), 1);
	assert_int_equal(mapfile_commit(mf, id, false), 0);
	assert_int_equal(mapfile_is_cut(mf, id), 1);
	assert_int_equal(mapfile_commit(mf, id, true), 0);
	assert_int_equal(mapfile_is_cut(mf, id), 0);
	/* A block that only became own asks for no sync. */
	assert_int_equal(mapfile_own(mf, id, 4, 1), 0);
	assert_int_equal(mapfile_commit(mf, id, false), 0);
	assert_int_equal(mapfile_is_cut(mf, id), 0);
	mapfile_close(mf);
}

static void test_mapfile_sync__unclean_boot_takes_blocks_from_extents(void **state)
{
	const struct maps_layer *l = *state;
	struct crash c = make_crash(l, true);
	struct fake_disk disk = { .blk = 40, .n = 5, .gone = c.gone };
	struct mapfile_rebuild rebuild = { fake_extents, &disk, NULL };

	session_epoch_for_tests = BOOT_B;
	for (int i = 0; i < 3; i++) {
		struct mapfile *mf = maps_open(l, i == 0 ? MAPFILE_READONLY : 0, &rebuild);

		assert_int_equal(mapfile_count(mf), 3);
		assert_true(maps_is_own(mf, c.committed, 2));
		assert_false(maps_is_own(mf, c.committed, 3));
		assert_true(maps_is_own(mf, c.committed, 40));
		assert_true(maps_is_own(mf, c.fresh, 44));
		assert_false(maps_is_own(mf, c.fresh, 45));
		assert_int_equal(mapfile_pending(mf, c.fresh), MAPFILE_CLEAN);
		mapfile_close(mf);
	}
	/* Asked by the reader and by the first writer, whose checkpoint the second one trusts. */
	assert_int_equal(disk.asked, 8);
}

static void test_mapfile_sync__extents_of_a_copied_layer_are_not_asked(void **state)
{
	const struct maps_layer *l = *state;
	struct crash c = make_crash(l, false);
	struct fake_disk disk = { .blk = 0, .n = 256 };
	struct mapfile_rebuild rebuild = { fake_extents, &disk, NULL };
	uint8_t bytes[8192];
	int fd = openat(l->root, MAPFILE_NAME, O_RDONLY);
	ssize_t len = file_pread(fd, bytes, sizeof(bytes), 0);

	close(fd);
	fd = openat(l->root, "copy", O_WRONLY | O_CREAT, 0644);
	assert_int_equal(file_pwrite(fd, bytes, (size_t)len, 0), 0);
	close(fd);
	assert_int_equal(renameat(l->root, "copy", l->root, MAPFILE_NAME), 0);
	session_epoch_for_tests = BOOT_B;

	struct mapfile *mf = maps_open(l, 0, &rebuild);

	assert_int_equal(disk.asked, 0);
	check_committed_only(mf, &c);
	mapfile_close(mf);
}

static void test_mapfile_sync__failing_extents_fail_the_open_and_change_nothing(void **state)
{
	const struct maps_layer *l = *state;
	struct fake_disk disk = { .result = -EIO };
	struct mapfile_rebuild rebuild = { fake_extents, &disk, NULL };
	struct mapfile *mf;
	struct crash c = make_crash(l, false);

	session_epoch_for_tests = BOOT_B;
	assert_int_equal(mapfile_open(l->root, l->work, 0, "test", &rebuild, &mf), -EIO);
	disk.result = -EOPNOTSUPP;
	mf = maps_open(l, 0, &rebuild);
	check_committed_only(mf, &c);
	mapfile_close(mf);
}

static void test_mapfile_sync__clean_mark_lets_the_next_boot_trust_all(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf = maps_open_rw(l);
	file_id_t id = maps_new_file(mf, MIB);

	assert_int_equal(mapfile_own(mf, id, 3, 1), 0);
	assert_int_equal(mapfile_mark_clean(mf), 0);
	mapfile_close(mf);
	session_epoch_for_tests = BOOT_B;
	mf = maps_open_rw(l);
	assert_true(maps_is_own(mf, id, 3));
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_CLEAN);
	assert_int_equal(mapfile_own(mf, id, 4, 1), 0);
	assert_int_equal(maps_new_file(mf, 1), id + 1);
	mapfile_close(mf);
	session_epoch_for_tests = BOOT_A;
	mf = maps_open_rw(l);
	assert_true(maps_is_own(mf, id, 3));
	assert_false(maps_is_own(mf, id, 4));
	mapfile_close(mf);
}

static void test_mapfile_sync__lost_ids_can_be_entered_again_and_no_others(void **state)
{
	const struct maps_layer *l = *state;
	struct crash c = make_crash(l, false);
	struct fake_disk disk = { .blk = 40, .n = 5 };
	struct mapfile_rebuild rebuild = { fake_extents, &disk, NULL };
	file_id_t lost = c.gone + 1;

	session_epoch_for_tests = BOOT_B;
	for (int i = 0; i < 2; i++) {
		struct mapfile *mf = maps_open(l, i == 0 ? MAPFILE_READONLY : 0, NULL);

		assert_int_equal(mapfile_file_enter_again(mf, c.fresh, MIB, &rebuild), -EEXIST);
		assert_int_equal(mapfile_file_enter_again(mf, FORMAT_LOST_IDS + 99, MIB, &rebuild),
				 -ENOENT);
		assert_int_equal(mapfile_file_enter_again(mf, lost, MIB, &rebuild), 0);
		assert_int_equal(mapfile_file_enter_again(mf, lost + 1, MIB, NULL), 0);
		assert_true(maps_is_own(mf, lost, 44));
		assert_false(maps_is_own(mf, lost + 1, 44));
		assert_int_equal(mapfile_count(mf), 6);
		mapfile_close(mf);
	}

	struct mapfile *mf = maps_open_rw(l);

	assert_true(maps_is_own(mf, lost, 44));
	assert_int_equal(mapfile_file_gone(mf, lost), 0);
	mapfile_close(mf);
	mf = maps_open(l, 0, NULL);
	assert_int_equal(mapfile_file_enter_again(mf, lost, MIB, &rebuild), -ENOENT);
	mapfile_close(mf);
}

static void test_mapfile_sync__pending_says_what_a_sync_needs(void **state)
{
	struct mapfile *mf = maps_open_rw(*state);
	file_id_t id = maps_new_file(mf, MIB), other = maps_new_file(mf, MIB);

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
	mf = maps_open_rw(*state);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_MUST_SYNC);
	mapfile_close(mf);
}

/* Of a hole nothing tells but the map, so fsync must wait for the commit too, also where somebody
 * else's has had the hole itself on disk. */
static void test_mapfile_sync__a_hole_on_disk_waits_for_its_commit(void **state)
{
	struct mapfile *mf = maps_open(*state, MAPFILE_TRUE_EXTENTS, NULL);
	file_id_t id = maps_new_file(mf, MIB), other = maps_new_file(mf, MIB);

	assert_int_equal(mapfile_own(mf, id, 1, 1), 0);
	assert_int_equal(mapfile_must_sync(mf, id), 0);
	assert_int_equal(mapfile_own(mf, other, 1, 1), 0);
	assert_int_equal(mapfile_commit(mf, other, true), 0);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_MUST_SYNC);
	assert_int_equal(mapfile_commit(mf, id, false), 0);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_MUST_SYNC);
	assert_false(mapfile_is_durable(mf, id));
	assert_int_equal(mapfile_commit(mf, id, true), 0);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_CLEAN);
	assert_true(mapfile_is_durable(mf, id));

	/* Blocks that become own after that are as before: the extents tell. */
	assert_int_equal(mapfile_own(mf, id, 2, 1), 0);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_OWN_ONLY);
	mapfile_close(mf);
}

/* The next server of the same boot does not know which of them are holes. */
static void test_mapfile_sync__what_a_killed_server_left_pending_waits_for_its_commit(void **state)
{
	struct mapfile *mf = maps_open(*state, MAPFILE_TRUE_EXTENTS, NULL);
	file_id_t id = maps_new_file(mf, MIB), other = maps_new_file(mf, MIB);

	assert_int_equal(mapfile_own(mf, id, 1, 1), 0);
	assert_int_equal(mapfile_must_sync(mf, id), 0);
	mapfile_close(mf);

	mf = maps_open(*state, MAPFILE_TRUE_EXTENTS, NULL);
	assert_int_equal(mapfile_own(mf, other, 1, 1), 0);
	assert_int_equal(mapfile_commit(mf, other, true), 0);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_MUST_SYNC);
	assert_false(mapfile_is_durable(mf, id));
	mapfile_close(mf);
}

/* A process that makes a file in the map, without any fdatasync(2). Its exit code says how the map
 * answers. */
static int new_file_without_syncs(const struct maps_layer *l)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		struct mapfile *mf = maps_open_rw(l);
		file_id_t id;

		if (scratch_deny(SYS_fdatasync, EIO) < 0)
			_exit(2);
		_exit(mapfile_file_new(mf, MIB, &id) == -EIO);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Without it on disk a boot after a power cut trusts the map, and a mark whose record was lost is
 * damage. */
static void test_mapfile_sync__what_a_killed_server_opened_is_synced_by_the_next(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf = maps_open_rw(l);

	log_set_level(-1);
	maps_new_file(mf, MIB);
	assert_int_equal(mapfile_mark_clean(mf), 0);
	mapfile_close(mf);
	assert_int_equal(new_file_without_syncs(l), 1);
	/* The OPEN is in the log now, and on disk only if this one sees to it. */
	assert_int_equal(new_file_without_syncs(l), 1);
	mf = maps_open_rw(l);
	maps_new_file(mf, MIB);
	assert_int_equal(mapfile_count(mf), 2);
	mapfile_close(mf);
	assert_int_equal(new_file_without_syncs(l), 1);
}

/* The removal may be in memory only: the power cut brings the file back, with its mark. */
static void test_mapfile_sync__what_a_killed_server_forgot_stays_for_a_while(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf = maps_open_rw(l);
	file_id_t id = maps_new_file(mf, MIB);

	assert_int_equal(mapfile_own(mf, id, 3, 1), 0);
	assert_int_equal(mapfile_commit(mf, id, true), 0);
	assert_int_equal(mapfile_file_gone(mf, id), 0);
	mapfile_close(mf);

	mf = maps_open_rw(l);
	assert_int_equal(mapfile_checkpoint(mf, true), 0);
	mapfile_close(mf);
	session_epoch_for_tests = BOOT_B;
	mf = maps_open_rw(l);
	assert_true(maps_is_own(mf, id, 3));
	mapfile_close(mf);
}

/* The entries are in the log only; a hole dug there would take the extents away that told it
 * before. */
static void test_mapfile_sync__a_file_entered_again_is_not_durable_by_itself(void **state)
{
	const struct maps_layer *l = *state;
	struct crash c = make_crash(l, false);
	struct fake_disk disk = { .blk = 40, .n = 5 };
	struct mapfile_rebuild rebuild = { fake_extents, &disk, NULL };
	file_id_t lost = c.gone + 1;

	session_epoch_for_tests = BOOT_B;

	struct mapfile *mf = maps_open(l, MAPFILE_TRUE_EXTENTS, NULL);

	assert_int_equal(mapfile_file_enter_again(mf, lost, MIB, &rebuild), 0);
	assert_false(mapfile_is_durable(mf, lost));
	assert_int_equal(mapfile_commit(mf, lost, true), 0);
	assert_true(mapfile_is_durable(mf, lost));
	mapfile_close(mf);
}

static void test_mapfile_sync__commit_does_not_cover_what_came_after_the_data_sync(void **state)
{
	struct mapfile *mf = maps_open_rw(*state);
	file_id_t id = maps_new_file(mf, MIB);

	assert_int_equal(mapfile_own(mf, id, 1, 1), 0);
	uint64_t change = mapfile_change(mf, id);

	assert_int_equal(mapfile_own(mf, id, 2, 1), 0);
	assert_int_equal(mapfile_commit_since(mf, id, change, true), -EAGAIN);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_MUST_SYNC);
	assert_int_equal(mapfile_commit_since(mf, id, mapfile_change(mf, id), true), 0);
	assert_int_equal(mapfile_pending(mf, id), MAPFILE_CLEAN);
	mapfile_close(mf);
}

static void test_mapfile_sync__reader_follows_appends_and_checkpoints(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *reader = maps_open(l, MAPFILE_READONLY, NULL);

	assert_int_equal(mapfile_refresh(reader), 0);

	struct mapfile *mf = maps_open_rw(l);
	file_id_t id = maps_new_file(mf, 100 * MIB);

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
	assert_true(maps_is_own(reader, id, 1998));
	assert_false(maps_is_own(reader, id, 1997));
	assert_int_equal(mapfile_checkpoint(mf, true), 0);
	assert_int_equal(mapfile_refresh(reader), 1);
	assert_true(maps_is_own(reader, id, 1998));
	assert_false(maps_is_own(reader, id, 1997));
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

static void test_mapfile_sync__checkpoints_lose_no_concurrent_append(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf = maps_open_rw(l);
	static struct writer w[2];
	pthread_t t[2];

	for (unsigned i = 0; i < 2; i++)
		w[i] = (struct writer){ mf, maps_new_file(mf, 1ull << 30), i, 0 };
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
				assert_int_equal(maps_is_own(mf, w[i].id, b), b % 4 == w[i].parity);
		mapfile_close(mf);
		mf = maps_open_rw(l);
	}
	mapfile_close(mf);
	assert_true(maps_work_is_empty(l));
}

static void test_mapfile_sync__long_log_asks_for_a_checkpoint(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf = maps_open_rw(l);
	file_id_t id = maps_new_file(mf, 1ull << 40);

	assert_false(mapfile_wants_checkpoint(mf));
	for (blk_t b = 0; b < 20000; b += 2)
		assert_int_equal(mapfile_own(mf, id, b, 1), 0);
	assert_true(mapfile_wants_checkpoint(mf));
	off_t before = maps_size(l);

	assert_int_equal(mapfile_commit(mf, id, false), 0);
	assert_int_equal(mapfile_checkpoint(mf, false), 0);
	assert_false(mapfile_wants_checkpoint(mf));
	assert_true(maps_size(l) < before / 10);
	mapfile_close(mf);
	mf = maps_open_rw(l);
	assert_true(maps_is_own(mf, id, 19998));
	mapfile_close(mf);
}

#define T(name) \
	cmocka_unit_test_setup_teardown(test_mapfile_sync__##name, maps_setup, maps_teardown)
static int checkpoint(void *mf)
{
	return mapfile_checkpoint(mf, true);
}

/* The owner is over his quota: the map that he could have written does not become the server's. */
static void test_mapfile_sync__map_keeps_its_owner_or_is_not_written_anew(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf;
	struct stat st;

	if (geteuid() != 0)
		skip();
	log_set_level(-1);
	mf = maps_open_rw(l);
	maps_new_file(mf, MIB);
	mapfile_close(mf);
	if (fchownat(l->root, MAPFILE_NAME, 1000, (gid_t)-1, 0) < 0)
		skip();
	mf = maps_open_rw(l);
	assert_int_equal(scratch_run_denied(SYS_fchown, EDQUOT, checkpoint, mf), -EDQUOT);
	assert_int_equal(fstatat(l->root, MAPFILE_NAME, &st, 0), 0);
	assert_int_equal(st.st_uid, 1000);
	assert_int_equal(mapfile_checkpoint(mf, true), 0);
	assert_int_equal(fstatat(l->root, MAPFILE_NAME, &st, 0), 0);
	assert_int_equal(st.st_uid, 1000);
	mapfile_close(mf);
}

static ino_t only_name_in(int dirfd)
{
	DIR *d = fdopendir(openat(dirfd, ".", O_RDONLY | O_DIRECTORY));
	struct dirent *de;
	ino_t ino = 0;

	assert_non_null(d);
	while ((de = readdir(d))) {
		if (de->d_name[0] == '.')
			continue;
		assert_int_equal(ino, 0);
		ino = de->d_ino;
	}
	closedir(d);
	return ino;
}

/* A map made ahead is renamed, and not seen before; an unneeded one goes. */
static void test_mapfile_sync__map_made_ahead_is_the_first_one(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf = maps_open_rw(l);
	ino_t made;
	struct stat st;

	assert_int_equal(mapfile_prepare(mf), 0);
	assert_int_equal(mapfile_prepare(mf), 0);
	assert_int_equal(maps_size(l), -1);
	assert_int_equal(mapfile_uuid(mf), 0);
	made = only_name_in(l->work);
	maps_new_file(mf, MIB);
	assert_int_equal(fstatat(l->root, MAPFILE_NAME, &st, 0), 0);
	assert_true(st.st_ino == made);
	assert_int_equal(only_name_in(l->work), 0);
	assert_int_equal(mapfile_prepare(mf), 0);
	assert_int_equal(only_name_in(l->work), 0);
	mapfile_close(mf);
	mf = maps_open_rw(l);
	assert_int_equal(mapfile_count(mf), 1);
	assert_int_equal(mapfile_prepare(mf), 0);
	assert_int_equal(only_name_in(l->work), 0);
	mapfile_close(mf);
}

static void test_mapfile_sync__map_made_ahead_that_nobody_needs_goes(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf = maps_open_rw(l);

	assert_int_equal(mapfile_prepare(mf), 0);
	assert_int_not_equal(only_name_in(l->work), 0);
	assert_int_equal(mapfile_mark_clean(mf), 0);
	mapfile_close(mf);
	assert_int_equal(only_name_in(l->work), 0);
	assert_int_equal(maps_size(l), -1);
}

/* Elsewhere the commit of the name waits for the bytes. */
static void
test_mapfile_sync__name_of_the_first_map_is_synced_where_extents_prove_nothing(void **state)
{
	const struct maps_layer *l = *state;
	struct mapfile *mf = maps_open_rw(l);

	maps_new_file(mf, MIB);
	assert_false(mf->is_dir_dirty);
	mapfile_close(mf);
	assert_int_equal(unlinkat(l->root, MAPFILE_NAME, 0), 0);
	mf = maps_open(l, MAPFILE_TRUE_EXTENTS, NULL);
	maps_new_file(mf, MIB);
	assert_true(mf->is_dir_dirty);
	assert_int_equal(mapfile_sync_flush(mf), 0);
	assert_false(mf->is_dir_dirty);
	mapfile_close(mf);
	assert_int_equal(unlinkat(l->root, MAPFILE_NAME, 0), 0);
	mf = maps_open(l, MAPFILE_TRUE_EXTENTS | MAPFILE_VOLATILE, NULL);
	maps_new_file(mf, MIB);
	assert_false(mf->is_dir_dirty);
	mapfile_close(mf);
}

struct denied_map {
	struct mapfile *mf;
	file_id_t id;
};

static int own_one(void *arg)
{
	const struct denied_map *m = arg;

	return mapfile_own(m->mf, m->id, 3, 1);
}

static int make_checkpoint(void *arg)
{
	const struct denied_map *m = arg;

	return mapfile_checkpoint(m->mf, true);
}

static void test_mapfile_sync__session_without_a_random_number_does_not_begin(void **state)
{
	struct denied_map m = { .mf = maps_open_rw(*state) };

	m.id = maps_new_file(m.mf, MIB);
	assert_int_equal(mapfile_mark_clean(m.mf), 0);
	mapfile_close(m.mf);
	m.mf = maps_open_rw(*state);
	assert_int_equal(scratch_run_denied(SYS_getrandom, ENOSYS, own_one, &m), -ENOSYS);
	assert_false(maps_is_own(m.mf, m.id, 3));
	assert_int_equal(own_one(&m), 0);
	assert_true(maps_is_own(m.mf, m.id, 3));
	mapfile_close(m.mf);
}

static void test_mapfile_sync__checkpoint_without_a_descriptor_leaves_the_old_log(void **state)
{
	struct denied_map m = { .mf = maps_open_rw(*state) };
	uint64_t generation;

	m.id = maps_new_file(m.mf, MIB);
	assert_int_equal(own_one(&m), 0);
	generation = m.mf->now.head.generation;
	log_set_level(-1);
	assert_int_equal(scratch_run_denied(SYS_fcntl, EMFILE, make_checkpoint, &m), -EMFILE);
	assert_int_equal(m.mf->now.head.generation, generation);
	assert_int_equal(make_checkpoint(&m), 0);
	assert_int_equal(m.mf->now.head.generation, generation + 1);
	assert_true(maps_is_own(m.mf, m.id, 3));
	mapfile_close(m.mf);
	assert_true(maps_work_is_empty(*state));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(unclean_boot_keeps_what_was_committed),
		T(a_commit_is_durable_once_the_map_was_synced),
		T(a_cut_is_one_until_its_commit_is_on_disk),
		T(unclean_boot_takes_blocks_from_extents),
		T(extents_of_a_copied_layer_are_not_asked),
		T(failing_extents_fail_the_open_and_change_nothing),
		T(clean_mark_lets_the_next_boot_trust_all),
		T(lost_ids_can_be_entered_again_and_no_others),
		T(pending_says_what_a_sync_needs),
		T(a_hole_on_disk_waits_for_its_commit),
		T(what_a_killed_server_left_pending_waits_for_its_commit),
		T(what_a_killed_server_opened_is_synced_by_the_next),
		T(what_a_killed_server_forgot_stays_for_a_while),
		T(a_file_entered_again_is_not_durable_by_itself),
		T(commit_does_not_cover_what_came_after_the_data_sync),
		T(name_of_the_first_map_is_synced_where_extents_prove_nothing),
		T(session_without_a_random_number_does_not_begin),
		T(checkpoint_without_a_descriptor_leaves_the_old_log),
		T(reader_follows_appends_and_checkpoints),
		T(checkpoints_lose_no_concurrent_append),
		T(long_log_asks_for_a_checkpoint),
		T(map_keeps_its_owner_or_is_not_written_anew),
		T(map_made_ahead_is_the_first_one),
		T(map_made_ahead_that_nobody_needs_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
