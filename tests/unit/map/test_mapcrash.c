// SPDX-License-Identifier: Apache-2.0
/* The power fails after each write, sync and rename of the map, and what was not synced is lost,
 * torn or out of order: what is read then is the committed state after some record, at least the
 * last one promised. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/disklog.h"
#include "veneer/base/log.h"

#define BLKS	  320u
#define WORDS	  (BLKS / 64u)
#define FILES	  24u
#define STEPS	  36u
#define BOOT_C	  0xccccu
#define GONE_MS	  120000u
#define SECOND_IN 211u

/* The model of a record as the specification has it (doc/SPEC.md, 3.3), with bits. */
struct side {
	uint64_t clip, own[WORDS];
};

struct entry {
	file_id_t id;
	bool is_there, is_gone, may_miss;
	struct side present, committed;
};

struct state {
	struct entry entries[FILES];
	size_t n;
	file_id_t top; /* the highest id that was given */
};

/* The events of one map from the start of a log on. */
struct run {
	struct maps_layer *layer, *shown;
	struct disklog log;
	struct mapfile *mf;
	struct state *history; /* after each record */
	unsigned seed, nstates, nsecond;
	uint64_t boot;
};

static void cut_side(struct side *s, uint64_t size)
{
	if (size >= s->clip)
		return;
	s->clip = size;
	for (blk_t b = (size + BLK_BYTES - 1) / BLK_BYTES; b < BLKS; b++)
		s->own[b / 64] &= ~(1ull << b % 64);
}

static void own_block(struct side *s, blk_t b)
{
	if (b * BLK_BYTES < s->clip)
		s->own[b / 64] |= 1ull << b % 64;
}

static struct entry *state_find(struct state *s, file_id_t id)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->entries[i].is_there && s->entries[i].id == id)
			return &s->entries[i];
	return NULL;
}

static void state_new(struct state *s, file_id_t id, uint64_t clip)
{
	struct entry *e = &s->entries[s->n++];

	assert_true(s->n <= FILES);
	*e = (struct entry){
		.id = id, .is_there = true, .present.clip = clip, .committed.clip = clip
	};
	s->top = id > s->top ? id : s->top;
}

static void state_commit_all(struct state *s)
{
	for (size_t i = 0; i < s->n; i++) {
		s->entries[i].is_there = s->entries[i].is_there && !s->entries[i].is_gone;
		s->entries[i].committed = s->entries[i].present;
	}
}

static void state_apply(struct state *s, const struct record *rec)
{
	struct entry *e = state_find(s, rec->id);

	switch (rec->type) {
	case FORMAT_REC_NEW:
		state_new(s, rec->id, rec->fresh.clip);
		break;
	case FORMAT_REC_OWN_RUN:
		for (blk_t b = rec->run.blk; b < rec->run.blk + rec->run.n && b < BLKS; b++)
			own_block(&e->present, b);
		break;
	case FORMAT_REC_TRUNCATE:
		cut_side(&e->present, rec->truncate.size);
		break;
	case FORMAT_REC_GONE:
		e->is_gone = true;
		break;
	case FORMAT_REC_COMMIT:
		e->committed = e->present;
		break;
	case FORMAT_REC_CLEAN:
		state_commit_all(s);
		break;
	case FORMAT_REC_END: /* ours: a checkpoint begins, and leaves out what is long gone */
		for (size_t i = 0; i < s->n; i++)
			s->entries[i].may_miss = s->entries[i].is_gone;
		break;
	default:
		break;
	}
}

/* Take the present state of the map, all of it committed. */
static void take_one(void *arg, file_id_t id, const struct blkmap *map)
{
	struct state *s = arg;
	bool is_own;

	state_new(s, id, blkmap_clip(map));
	for (blk_t b = 0; b * BLK_BYTES < blkmap_clip(map); b++)
		if (blkmap_run(map, b, 1, &is_own) && is_own)
			own_block(&s->entries[s->n - 1].present, b);
	s->entries[s->n - 1].committed = s->entries[s->n - 1].present;
}

static bool same(struct state *want, struct state *got)
{
	size_t n = 0;

	for (size_t i = 0; i < want->n; i++) {
		struct entry *w = &want->entries[i], *g = state_find(got, w->id);

		if (!w->is_there || (w->may_miss && !g))
			continue;
		n++;
		if (!g || memcmp(&w->committed, &g->committed, sizeof(w->committed)) != 0)
			return false;
	}
	return n == got->n;
}

/* Mostly whole files, some that need a table of their own for their blocks. */
static uint64_t some_clip(struct run *run)
{
	return (uint64_t)rand_r(&run->seed) % BLKS * BLK_BYTES +
	       (uint64_t)rand_r(&run->seed) % BLK_BYTES;
}

static int by_id(const void *a, const void *b)
{
	const struct entry *e = a, *f = b;

	return e->id < f->id ? -1 : e->id > f->id;
}

static file_id_t some_file(struct run *run)
{
	struct state s = { 0 };

	mapfile_each(run->mf, take_one, &s);
	qsort(s.entries, s.n, sizeof(s.entries[0]), by_id);
	return s.n ? s.entries[(size_t)rand_r(&run->seed) % s.n].id : 0;
}

static void step_new(struct run *run)
{
	struct state s = { 0 };

	mapfile_each(run->mf, take_one, &s);
	if (s.n < 6)
		maps_new_file(run->mf, some_clip(run));
	/* a mark may name the map from now on */
	disklog_promise(0);
}

static void step_own(struct run *run, file_id_t id)
{
	for (int n = rand_r(&run->seed) % 4; n >= 0; n--) {
		blk_t blk = (blk_t)rand_r(&run->seed) % BLKS;

		assert_int_equal(
			mapfile_own(run->mf, id, blk, 1 + (blk_t)rand_r(&run->seed) % (BLKS - blk)),
			0);
	}
	if (rand_r(&run->seed) % 3 == 0)
		assert_int_equal(mapfile_must_sync(run->mf, id), 0);
}

static void step_commit(struct run *run, file_id_t id, bool sync)
{
	assert_int_equal(mapfile_commit(run->mf, id, sync), 0);
	if (sync)
		disklog_promise(run->log.nrecords);
}

static void step_checkpoint(struct run *run)
{
	size_t n;

	if (rand_r(&run->seed) % 3 == 0) {
		disklog_clock_ms += GONE_MS;
		disklog_pseudo(&(struct record){ .type = FORMAT_REC_END });
	}
	n = run->log.nrecords;
	assert_int_equal(mapfile_checkpoint(run->mf, true), 0);
	disklog_promise(n);
	run->log.journal = &run->mf->journal;
}

static void step_clean(struct run *run)
{
	assert_int_equal(mapfile_mark_clean(run->mf), 0);
	disklog_promise(run->log.nrecords);
}

static void step_again(struct run *run)
{
	mapfile_close(run->mf);
	run->mf = maps_open_rw(run->layer);
	run->log.journal = &run->mf->journal;
}

/* A change that may happen while a sync is under way. */
static void step_change(struct run *run)
{
	file_id_t id = some_file(run);

	switch (id ? rand_r(&run->seed) % 10 : 0) {
	case 0:
		step_new(run);
		break;
	case 1:
	case 2:
	case 3:
		step_own(run, id);
		break;
	case 4:
		assert_int_equal(mapfile_truncate(run->mf, id, some_clip(run)), 0);
		break;
	case 5:
		assert_int_equal(mapfile_file_gone(run->mf, id), 0);
		break;
	case 6:
		step_commit(run, id, false);
		break;
	default:
		step_commit(run, id, true);
		break;
	}
}

static void change_meanwhile(void *arg)
{
	struct run *run = arg;
	void (*on_sync)(void *) = run->log.on_sync;

	if (!run->mf || pthread_mutex_trylock(&run->mf->lock) != 0)
		return;
	pthread_mutex_unlock(&run->mf->lock);
	run->log.on_sync = NULL;
	for (int n = rand_r(&run->seed) % 4; n > 0; n--)
		step_change(run);
	run->log.on_sync = on_sync;
}

/* The lock alone does not tell whether a change would wait for the one that syncs. */
static void step_any(struct run *run)
{
	switch (rand_r(&run->seed) % 16) {
	case 0:
		step_clean(run);
		break;
	case 1:
		step_again(run);
		break;
	case 2:
	case 3:
		run->log.on_sync = change_meanwhile;
		step_checkpoint(run);
		run->log.on_sync = NULL;
		break;
	default:
		step_change(run);
	}
}

static void run_record(struct run *run, unsigned nsteps)
{
	session_epoch_for_tests = run->boot;
	disklog_start(&run->log, run->layer);
	run->log.on_sync_arg = run;
	run->mf = NULL;
	run->mf = maps_open_rw(run->layer);
	run->log.journal = &run->mf->journal;
	for (unsigned i = 0; i < nsteps; i++)
		step_any(run);
	disklog_stop();
	mapfile_close(run->mf);
}

/* first is what the map said before the log. */
static void run_replay(struct run *run, const struct state *first)
{
	run->history = calloc(run->log.nrecords + 1, sizeof(*run->history));
	assert_non_null(run->history);
	run->history[0] = *first;
	for (size_t i = 0; i < run->log.nrecords; i++) {
		run->history[i + 1] = run->history[i];
		state_apply(&run->history[i + 1], &run->log.records[i]);
	}
}

static void install(const struct maps_layer *l, const uint8_t *bytes, uint64_t len, bool exists)
{
	int fd;

	unlinkat(l->root, MAPFILE_NAME, 0);
	if (!exists)
		return;
	fd = openat(l->root, MAPFILE_NAME, O_CREAT | O_RDWR | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, len, 0), len);
	close(fd);
}

static void explore(struct run *run);

static void second_crash(struct run *run, const struct state *found)
{
	struct run again = { .layer = run->shown, .seed = run->seed, .boot = BOOT_C };
	void *layer;

	assert_int_equal(maps_setup(&layer), 0);
	again.shown = layer;
	run_record(&again, 3);
	run_replay(&again, found);
	explore(&again);
	run->nstates += again.nstates;
	run->nsecond++;
	maps_teardown(&layer);
	free(again.history);
	disklog_release(&again.log);
}

/* Check that the picture shows one of the states that it may show. */
static void judge(struct run *run, const struct disk *d, const char *how)
{
	struct state got = { 0 };
	struct mapfile *mf = NULL;
	bool fits = false;
	int r;

	session_epoch_for_tests = BOOT_B;
	r = mapfile_open(run->shown->root, -1, MAPFILE_READONLY, "test", NULL, &mf);
	if (r < 0)
		fail_msg("event %zu of %zu, %s: %s", d->at, d->log->n, how, strerror(-r));
	mapfile_each(mf, take_one, &got);
	/* the last write may have been a record's, about to be noted */
	for (size_t i = d->floor; i <= d->upto + 1 && i <= run->log.nrecords && !fits; i++)
		fits = same(&run->history[i], &got);
	if (!fits)
		fail_msg("event %zu of %zu, %s: %zu files, none of the states after records %zu to "
			 "%zu",
			 d->at, d->log->n, how, got.n, d->floor, d->upto);
	if (mf->now.table.next_id <= run->history[d->upto].top)
		fail_msg("event %zu of %zu, %s: an id would be given twice", d->at, d->log->n, how);
	mapfile_close(mf);
	run->nstates++;
	if (run->boot == BOOT_A && rand_r(&run->seed) % SECOND_IN == 0)
		second_crash(run, &got);
}

static void judge_picture(struct run *run, const struct disk *d, int file, enum disk_loss loss,
			  unsigned unit)
{
	static uint8_t bytes[DISKLOG_FILE_BYTES];
	uint64_t len = disk_picture(d, (unsigned)file, loss, unit, &run->seed, bytes);
	char how[64];

	snprintf(how, sizeof(how), "file %d, loss %d, unit %u, %llu bytes", file, (int)loss, unit,
		 (unsigned long long)len);
	install(run->shown, bytes, len, true);
	judge(run, d, how);
}

static void judge_file(struct run *run, const struct disk *d, int file)
{
	if (file < 0) {
		assert_false(d->must_exist);
		install(run->shown, NULL, 0, false);
		judge(run, d, "no map");
		return;
	}
	judge_picture(run, d, file, DISK_NONE_LOST, 4096);
	if (!d->files[file].npending)
		return;
	for (unsigned unit = 512; unit <= 4096; unit *= 8) {
		judge_picture(run, d, file, DISK_ALL_LOST, unit);
		judge_picture(run, d, file, DISK_ONE_LOST, unit);
		judge_picture(run, d, file, DISK_ONE_KEPT, unit);
		judge_picture(run, d, file, DISK_ANY, unit);
		judge_picture(run, d, file, DISK_ANY, unit);
	}
	judge_picture(run, d, file, DISK_TORN, 4096);
	judge_picture(run, d, file, DISK_TORN, 4096);
}

static void explore(struct run *run)
{
	struct disk d;

	disk_init(&d, &run->log);
	do
		for (size_t i = 0; i < d.nnamed; i++)
			judge_file(run, &d, d.named[i]);
	while (disk_step(&d));
	disk_release(&d);
}

static void check_seed(struct maps_layer *l, unsigned seed, unsigned nsteps, unsigned *nstates,
		       unsigned *nsecond)
{
	struct run run = { .layer = l, .seed = seed, .boot = BOOT_A };
	struct state nothing = { 0 };
	void *layer;

	unlinkat(l->root, MAPFILE_NAME, 0);
	assert_int_equal(maps_setup(&layer), 0);
	run.shown = layer;
	run_record(&run, nsteps);
	run_replay(&run, &nothing);
	explore(&run);
	*nstates += run.nstates;
	*nsecond += run.nsecond;
	maps_teardown(&layer);
	free(run.history);
	disklog_release(&run.log);
}

static void test_mapcrash__every_prefix_with_anything_lost(void **state)
{
	const char *given = getenv("VENEER_CRASH_SEED"), *runs = getenv("VENEER_CRASH_RUNS");
	unsigned first = given ? (unsigned)atoi(given) : 1, n = runs ? (unsigned)atoi(runs) : 5;
	unsigned nstates = 0, nsecond = 0;

	for (unsigned seed = first; seed < first + n; seed++) {
		print_message("seed %u\n", seed);
		check_seed(*state, seed, STEPS, &nstates, &nsecond);
	}
	print_message("%u states, %u of them with a second crash in recovery\n", nstates, nsecond);
	assert_true(nstates > 1000 * n && nsecond > n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_mapcrash__every_prefix_with_anything_lost,
						maps_setup, maps_teardown),
	};

	log_set_level(LOG_LVL_ERROR);
	return cmocka_run_group_tests_name("mapcrash", tests, NULL, NULL);
}
