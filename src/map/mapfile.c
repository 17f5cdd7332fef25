// SPDX-License-Identifier: Apache-2.0
#include "veneer/map/mapfile.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "mapfile-internal.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/invariants.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/sys/file.h"
#include "veneer/sys/path.h"

/* A write makes blocks own in a few runs, each one record; more is not worth reserving. */
#define RESERVE_RUNS_MAX    32u
#define RESERVE_SLACK_BYTES (3 * FORMAT_REC_BYTES_MAX)

static void mapfile_closep(struct mapfile **mf)
{
	mapfile_close(*mf);
}

static void blkmap_freep(struct blkmap **m)
{
	blkmap_free(*m);
}

static int mark_unsynced(void *arg, struct table_file *f)
{
	f->must_lsn = f->commit_lsn = *(uint64_t *)arg;
	f->must_commit = f->pend || f->cut;
	/* When that was nobody knows; it may not be on disk yet. */
	f->gone_ms = mapfile_sync_now_ms();
	return 0;
}

static int doubt_zeros(void *arg, struct table_file *f)
{
	return table_doubt_zeros(arg, f);
}

/* Set a damaged map aside: another tool may recover more of it later. */
static int mapfile_set_aside(const struct mapfile *mf) REQUIRES(mf->lock)
{
	if (linkat(mf->rootfd, MAPFILE_NAME, mf->rootfd, MAPFILE_DAMAGED_NAME, 0) < 0 &&
	    errno != EEXIST)
		return -errno;
	return !mf->now.is_lost || unlinkat(mf->rootfd, MAPFILE_NAME, 0) == 0 ? 0 : -errno;
}

/* The first mount of a copy, or of a map that an older version wrote, writes it anew: its header
 * has to hold for all records from now on. Data that the new file takes for committed is on the
 * disk before. */
static int mapfile_write_anew(struct mapfile *mf)
{
	struct mapload *l = &mf->now;
	const bool is_old = !(l->head.incompat & FORMAT_MAP_ZEROS);
	const bool is_other = l->is_copy || is_old ||
			      !(l->head.compat & FORMAT_MAP_ORDERED) !=
				      !(mf->flags & MAPFILE_ORDERED);
	int r = 0;

	if (!is_other && !l->was_unclean && !l->n_mended && !l->n_gaps)
		return 0;
	if ((l->is_copy || l->table.in_session) && !(mf->flags & MAPFILE_VOLATILE) &&
	    syncfs(mf->rootfd) < 0)
		r = -errno;
	if (r == 0 && is_old)
		r = table_each(&l->table, doubt_zeros, &l->table);
	r = r ?: mapfile_checkpoint(mf, true);
	if (r == 0 || l->was_unclean)
		return r;
	log_warn("%s: map: not written anew, it stays as it is: %s", mf->name, strerror(-r));
	return 0;
}

/* Go on with the log that was read. */
static int mapfile_take_over(struct mapfile *mf) REQUIRES(mf->lock)
{
	struct mapload *l = &mf->now;

	if (mf->flags & MAPFILE_READONLY)
		return 0;
	l->table.is_trusted = true;

	int r = l->is_lost || l->n_gaps ? mapfile_set_aside(mf) : 0;

	if (l->fd < 0 || r < 0)
		return r;
	r = journal_attach(&mf->journal, l->fd, sizeof(l->head) + l->head.snapshot_len, l->rd.off,
			   l->rd.sum);

	if (r < 0)
		return r;
	l->fd = -1;
	journal_reader_release(&l->rd);
	/* Records that an earlier process of this boot wrote may be in the page cache only. */
	mf->lsn = 1;
	mf->is_open_doubted = l->table.in_session;
	if (l->table.in_session)
		table_each(&l->table, mark_unsynced, &mf->lsn);
	return mapfile_write_anew(mf);
}

int mapfile_open(int rootfd, int work_fd, unsigned flags, const char *name,
		 const struct mapfile_rebuild *rebuild, struct mapfile **ret)
{
	const bool is_readonly = flags & MAPFILE_READONLY;
	_cleanup_(mapfile_closep) struct mapfile *mf = calloc(1, sizeof(*mf));

	if (!mf)
		return -ENOMEM;
	mf->flags = flags;
	mutex_init(&mf->lock);
	lock_is_private(&mf->lock);
	mf->rootfd = mf->work_fd = mf->journal.fd = mf->now.fd = -1;
	table_init(&mf->now.table);
	mutex_init(&mf->checkpoint_lock);
	mf->name = strdup(name ?: "");
	if (!mf->name)
		return -ENOMEM;
	mf->rootfd = path_open(rootfd, ".", O_RDONLY | O_DIRECTORY, 0);
	if (mf->rootfd < 0)
		return mf->rootfd;
	if (!is_readonly) {
		mf->work_fd = path_open(work_fd, ".", O_RDONLY | O_DIRECTORY, 0);
		if (mf->work_fd < 0)
			return mf->work_fd;
	}

	int r = file_guard_init();

	r = r ?: mapfile_load_read(mf->rootfd, is_readonly, mf->name, rebuild, &mf->now);
	r = r ?: mapfile_take_over(mf);
	if (r < 0)
		return r;
	*ret = steal_ptr(&mf);
	return 0;
}

void mapfile_close(struct mapfile *mf)
{
	if (!mf)
		return;
	lock_is_private(&mf->lock);
	mapfile_sync_drop_prepared(mf);
	journal_release(&mf->journal);
	mapfile_load_release(&mf->now);
	closep(&mf->rootfd);
	closep(&mf->work_fd);
	mutex_destroy(&mf->lock);
	mutex_destroy(&mf->checkpoint_lock);
	free(mf->name);
	free(mf);
}

int mapfile_owner(struct mapfile *mf, uid_t *ret)
{
	LOCK_SCOPE(&mf->lock);
	*ret = mf->now.owner;
	return mf->now.is_others ? -EACCES : 0;
}

uint64_t mapfile_uuid(struct mapfile *mf)
{
	LOCK_SCOPE(&mf->lock);
	return mf->now.head.uuid;
}

size_t mapfile_count(struct mapfile *mf)
{
	LOCK_SCOPE(&mf->lock);
	return mf->now.table.count;
}

/* A session, and room for a record. */
static int mapfile_ready(struct mapfile *mf) REQUIRES(mf->lock)
{
	return mapfile_sync_session(mf) ?: journal_reserve(&mf->journal, FORMAT_REC_BYTES_MAX);
}

/* Record a new entry. Only a sync of the map makes it durable, but where the
 * file's mark and extents tell as much. */
static int mapfile_enter(struct mapfile *mf, file_id_t id, uint64_t clip) REQUIRES(mf->lock)
{
	struct record rec = { .type = FORMAT_REC_NEW, .id = id, .fresh.clip = clip };
	int r = mapfile_sync_record(mf, &rec);

	if (r < 0)
		return r;
	if (!(mf->flags & MAPFILE_TRUE_EXTENTS))
		table_find(&mf->now.table, id)->must_lsn = mf->lsn;
	return 0;
}

int mapfile_file_new(struct mapfile *mf, uint64_t clip, file_id_t *ret_id)
{
	if (clip > FORMAT_SIZE_MAX)
		return -EFBIG;
	LOCK_SCOPE(&mf->lock);

	int r = mapfile_sync_room(mf) ?: mapfile_ready(mf);
	file_id_t id = mf->now.table.next_id;

	if (r == 0 && id >= FORMAT_ID_END)
		r = -ENOSPC;
	r = r ?: mapfile_enter(mf, id, clip);
	if (r == 0)
		*ret_id = id;
	return r;
}

/* Under the lock: commit the pending blocks. They are safe once this record is, not before: the
 * program's own sync of the data is not enough. */
static int mapfile_record_commit(struct mapfile *mf, struct table_file *f) REQUIRES(mf->lock)
{
	struct record rec = { .type = FORMAT_REC_COMMIT, .id = f->id };
	int r = mapfile_ready(mf);

	r = r ?: mapfile_sync_record(mf, &rec);
	if (r < 0)
		return r;
	f->commit_lsn = mf->lsn;
	if (f->must_commit)
		f->must_lsn = mf->lsn;
	f->must_commit = false;
	return 0;
}

/* Record every own run of a rebuilt map. Nobody knows which of them are zeros. */
static int mapfile_own_all(struct mapfile *mf, file_id_t id, const struct blkmap *m)
	REQUIRES(mf->lock)
{
	const bool has_zeros = mf->now.head.incompat & FORMAT_MAP_ZEROS;
	uint64_t clip = blkmap_clip(m);
	blk_t end = clip / BLK_BYTES + (clip % BLK_BYTES != 0);
	blk_t n;

	for (blk_t at = 0; at < end; at += n) {
		bool is_own;

		n = blkmap_run(m, at, end - at, &is_own);
		if (!is_own)
			continue;

		struct record rec = { .type = has_zeros ? FORMAT_REC_ZERO_RUN : FORMAT_REC_OWN_RUN,
				      .id = id,
				      .run = { at, n } };
		int r = journal_reserve(&mf->journal, FORMAT_REC_BYTES_MAX);

		r = r ?: mapfile_sync_record(mf, &rec);
		if (r < 0)
			return r;
	}
	/* The bytes came from the disk. */
	return mapfile_record_commit(mf, table_find(&mf->now.table, id));
}

int mapfile_file_enter_again(struct mapfile *mf, file_id_t id, uint64_t clip,
			     const struct mapfile_rebuild *rebuild)
{
	_cleanup_(blkmap_freep) struct blkmap *m = NULL;

	if (clip > FORMAT_SIZE_MAX)
		return -EUCLEAN;
	{
		LOCK_SCOPE(&mf->lock);
		if (table_find(&mf->now.table, id))
			return -EEXIST;
		if (table_knows(&mf->now.table, id) || id < mf->now.table.lost_first ||
		    id >= mf->now.table.lost_end)
			return -ENOENT;
	}

	int r = mapfile_load_rebuild_file(&mf->now, rebuild, id, clip, &m);

	if (r == 0 && !m)
		m = blkmap_new(clip);
	if (!m)
		return r ?: -ENOMEM;

	LOCK_SCOPE(&mf->lock);
	if (table_knows(&mf->now.table, id))
		return -EEXIST;
	if (mf->flags & MAPFILE_READONLY) {
		r = table_insert(&mf->now.table, id, m);
		if (r == 0)
			(void)steal_ptr(&m);
		return r;
	}
	r = mapfile_ready(mf);
	r = r ?: mapfile_enter(mf, id, clip);
	return r ?: mapfile_own_all(mf, id, m);
}

int mapfile_file_gone(struct mapfile *mf, file_id_t id)
{
	struct record rec = { .type = FORMAT_REC_GONE, .id = id };

	LOCK_SCOPE(&mf->lock);
	if (mf->flags & MAPFILE_READONLY)
		return -EROFS;

	struct table_file *f = table_find(&mf->now.table, id);

	if (!f)
		return -ENOENT;

	int r = mapfile_ready(mf);

	r = r ?: mapfile_sync_record(mf, &rec);
	if (r == 0)
		f->gone_ms = mapfile_sync_now_ms();
	return r;
}

int mapfile_reserve(struct mapfile *mf, uint64_t nblk)
{
	size_t nrec = nblk < RESERVE_RUNS_MAX ? (size_t)nblk : RESERVE_RUNS_MAX;

	LOCK_SCOPE(&mf->lock);

	int r = mapfile_sync_room(mf) ?: mapfile_sync_session(mf);

	return r
		       ?: journal_reserve(&mf->journal,
					  nrec * FORMAT_REC_BYTES_MAX + RESERVE_SLACK_BYTES);
}

int mapfile_own(struct mapfile *mf, file_id_t id, blk_t blk, blk_t n)
{
	struct record rec = { .type = FORMAT_REC_OWN_RUN, .id = id, .run = { blk, n } };

	if (n == 0)
		return 0;
	if (n > FORMAT_BLK_END || blk > FORMAT_BLK_END - n)
		return -EFBIG;
	LOCK_SCOPE(&mf->lock);

	struct table_file *f = table_find(&mf->now.table, id);
	bool is_own;

	if (!f)
		return -ENOENT;
	if (blkmap_run(f->map, blk, n, &is_own) == n && is_own)
		return 0;

	int r = mapfile_ready(mf);

	r = r ?: mapfile_sync_record(mf, &rec);
	if (r == 0)
		f->change_lsn = mf->lsn;
	return r;
}

/* Under the lock. */
static bool knows_zeros(const struct table_file *f, blk_t blk, blk_t n)
{
	bool is_zero;

	return f->zero && blkmap_run(f->zero, blk, n, &is_zero) == n && is_zero;
}

int mapfile_own_zeros(struct mapfile *mf, file_id_t id, blk_t blk, blk_t n)
{
	struct record rec = { .type = FORMAT_REC_ZERO_RUN, .id = id, .run = { blk, n } };

	if (n == 0)
		return 0;
	if (n > FORMAT_BLK_END || blk > FORMAT_BLK_END - n)
		return -EFBIG;
	{
		LOCK_SCOPE(&mf->lock);

		struct table_file *f = table_find(&mf->now.table, id);
		bool is_own;

		if (!f)
			return -ENOENT;
		if (blk >= blkmap_clip(f->map) / BLK_BYTES + (blkmap_clip(f->map) % BLK_BYTES != 0))
			return 0;
		if (blkmap_run(f->map, blk, n, &is_own) == n && is_own && knows_zeros(f, blk, n))
			return 0;
		if (mf->now.head.incompat & FORMAT_MAP_ZEROS) {
			int r = mapfile_ready(mf);

			r = r ?: mapfile_sync_record(mf, &rec);
			/* Only the map can tell zeros that were synced. */
			if (r == 0) {
				f->change_lsn = f->must_lsn = mf->lsn;
				f->must_commit = f->must_commit || f->pend;
			}
			return r;
		}
	}
	return mapfile_own(mf, id, blk, n);
}

/* Record it of the own blocks. *ret_syncs: some of them are committed. */
static int expect_own(struct mapfile *mf, struct table_file *f, blk_t blk, blk_t end,
		      bool *ret_syncs) REQUIRES(mf->lock)
{
	blk_t n;
	int r = 0;

	for (; r == 0 && blk < end; blk += n) {
		struct record rec = { .type = FORMAT_REC_ZERO_RUN, .id = f->id };
		bool is_own, is_pending = false;

		n = blkmap_run(f->map, blk, end - blk, &is_own);
		if (!is_own || knows_zeros(f, blk, n))
			continue;
		if (f->pend)
			n = blkmap_run(f->pend, blk, n, &is_pending);
		*ret_syncs = *ret_syncs || !is_pending;
		rec.run.blk = blk;
		rec.run.n = n;
		r = mapfile_ready(mf);
		r = r ?: mapfile_sync_record(mf, &rec);
		if (r == 0) {
			f->must_lsn = mf->lsn;
			f->must_commit = f->must_commit || is_pending;
		}
	}
	return r;
}

int mapfile_expect_zeros(struct mapfile *mf, file_id_t id, blk_t blk, blk_t n)
{
	bool syncs = false;
	int r;
	{
		LOCK_SCOPE(&mf->lock);

		struct table_file *f = table_find(&mf->now.table, id);
		blk_t end;

		if (!f)
			return -ENOENT;
		end = blkmap_clip(f->map) / BLK_BYTES + (blkmap_clip(f->map) % BLK_BYTES != 0);
		if (!(mf->now.head.incompat & FORMAT_MAP_ZEROS) || blk >= end)
			return 0;
		r = expect_own(mf, f, blk, n < end - blk ? blk + n : end, &syncs);
	}
	return r == 0 && syncs && !(mf->flags & MAPFILE_VOLATILE) ? mapfile_sync_flush(mf) : r;
}

int mapfile_truncate(struct mapfile *mf, file_id_t id, uint64_t size)
{
	struct record rec = { .type = FORMAT_REC_TRUNCATE, .id = id, .truncate.size = size };

	LOCK_SCOPE(&mf->lock);

	struct table_file *f = table_find(&mf->now.table, id);

	if (!f)
		return -ENOENT;
	if (size >= blkmap_clip(f->map))
		return 0;

	int r = mapfile_ready(mf);

	r = r ?: mapfile_sync_record(mf, &rec);
	if (r < 0)
		return r;
	f->change_lsn = f->must_lsn = mf->lsn;
	f->must_commit = true;
	return 0;
}

int mapfile_is_complete(struct mapfile *mf, file_id_t id)
{
	LOCK_SCOPE(&mf->lock);

	const struct table_file *f = table_find(&mf->now.table, id);

	return f ? blkmap_is_complete(f->map) : -ENOENT;
}

int mapfile_run(struct mapfile *mf, file_id_t id, blk_t blk, blk_t max, bool *ret_is_own,
		blk_t *ret_n)
{
	LOCK_SCOPE(&mf->lock);

	const struct table_file *f = table_find(&mf->now.table, id);

	if (!f)
		return -ENOENT;
	*ret_n = blkmap_run(f->map, blk, max, ret_is_own);
	return 0;
}

int mapfile_clip(struct mapfile *mf, file_id_t id, uint64_t *ret_clip)
{
	LOCK_SCOPE(&mf->lock);

	const struct table_file *f = table_find(&mf->now.table, id);

	if (!f)
		return -ENOENT;
	*ret_clip = blkmap_clip(f->map);
	return 0;
}

int mapfile_next_chunk(struct mapfile *mf, file_id_t id, uint64_t *chunk, uint64_t ret_bits[2])
{
	LOCK_SCOPE(&mf->lock);

	const struct table_file *f = table_find(&mf->now.table, id);

	return f ? blkmap_next_chunk(f->map, chunk, ret_bits) : -ENOENT;
}

struct each_call {
	void (*fn)(void *arg, file_id_t id, const struct blkmap *map);
	void *arg;
};

static int each_one(void *arg, struct table_file *f)
{
	const struct each_call *c = arg;

	if (!f->is_gone)
		c->fn(c->arg, f->id, f->map);
	return 0;
}

void mapfile_each(struct mapfile *mf, void (*fn)(void *arg, file_id_t id, const struct blkmap *map),
		  void *arg)
{
	struct each_call c = { fn, arg };

	LOCK_SCOPE(&mf->lock);
	table_each(&mf->now.table, each_one, &c);
}

enum mapfile_pending mapfile_pending(struct mapfile *mf, file_id_t id)
{
	LOCK_SCOPE(&mf->lock);

	const struct table_file *f = table_find(&mf->now.table, id);

	if (!f || (mf->flags & MAPFILE_READONLY))
		return MAPFILE_CLEAN;
	/* A change that was applied but not appended must not pass for committed. */
	if (f->must_commit || f->must_lsn > mf->durable_lsn || mf->is_poisoned)
		return MAPFILE_MUST_SYNC;
	return f->pend ? MAPFILE_OWN_ONLY : MAPFILE_CLEAN;
}

bool mapfile_has_uncommitted(struct mapfile *mf, file_id_t id)
{
	LOCK_SCOPE(&mf->lock);

	const struct table_file *f = table_find(&mf->now.table, id);

	return f && (f->pend || f->cut);
}

bool mapfile_is_durable(struct mapfile *mf, file_id_t id)
{
	LOCK_SCOPE(&mf->lock);

	const struct table_file *f = table_find(&mf->now.table, id);

	return !f || (!f->pend && !f->cut && !mf->is_poisoned && f->must_lsn <= mf->durable_lsn &&
		      f->commit_lsn <= mf->durable_lsn);
}

int mapfile_is_cut(struct mapfile *mf, file_id_t id)
{
	LOCK_SCOPE(&mf->lock);

	const struct table_file *f = table_find(&mf->now.table, id);

	/* A commit that had to go with a sync may be of a cut, and wait for that sync. */
	return !f ? -ENOENT
		  : f->cut || (f->commit_lsn > mf->durable_lsn && f->must_lsn >= f->commit_lsn);
}

int mapfile_must_sync(struct mapfile *mf, file_id_t id)
{
	LOCK_SCOPE(&mf->lock);

	struct table_file *f = table_find(&mf->now.table, id);

	if (!f)
		return -ENOENT;
	f->must_lsn = mf->lsn;
	f->must_commit = f->must_commit || f->pend;
	return 0;
}

uint64_t mapfile_change(struct mapfile *mf, file_id_t id)
{
	LOCK_SCOPE(&mf->lock);

	const struct table_file *f = table_find(&mf->now.table, id);

	return f ? f->change_lsn : 0;
}

static int mapfile_append_commit(struct mapfile *mf, file_id_t id, uint64_t change)
{
	LOCK_SCOPE(&mf->lock);
	if (mf->flags & MAPFILE_READONLY)
		return -EROFS;

	struct table_file *f = table_find(&mf->now.table, id);

	if (!f)
		return -ENOENT;
	if (f->change_lsn > change)
		return -EAGAIN;
	return f->pend || f->cut ? mapfile_record_commit(mf, f) : 0;
}

int mapfile_commit_since(struct mapfile *mf, file_id_t id, uint64_t change, bool sync)
{
	int r = mapfile_append_commit(mf, id, change);

	return r ?: sync ? mapfile_sync_flush(mf) : 0;
}

int mapfile_commit(struct mapfile *mf, file_id_t id, bool sync)
{
	return mapfile_commit_since(mf, id, UINT64_MAX, sync);
}

/* ---- invariants ---- */

static int is_counted_wrong(void *arg, struct table_file *f)
{
	const uint64_t lsn = *(const uint64_t *)arg;

	return f->must_lsn > lsn || f->change_lsn > lsn || f->commit_lsn > lsn;
}

const char *mapfile_check_invariants(const struct mapfile *mf)
{
	const bool has_log = mf->journal.fd >= 0;
	uint64_t lsn = mf->lsn;

	if (mf->durable_lsn > lsn)
		return "mapfile: a change is durable after it was recorded";
	if (mf->prepared && has_log)
		return "mapfile: a first map is prepared while there is none";
	if (!(mf->flags & MAPFILE_READONLY) && mf->now.table.in_session && !has_log)
		return "mapfile: a session is in a log";
	if (mf->now.table.files.count <= INVARIANTS_MAX &&
	    table_each(&mf->now.table, is_counted_wrong, &lsn))
		return "mapfile: no file waits for a change to come";
	return journal_check_invariants(&mf->journal);
}
