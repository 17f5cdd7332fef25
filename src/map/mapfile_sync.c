// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "mapfile-internal.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/invariants.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/base/stats.h"
#include "veneer/map/session_epoch.h"
#include "veneer/sys/file.h"

#define LOG_STEP_BYTES	4096u
#define LOG_LIMIT_BYTES (256u << 10)
#define LOG_MAX_BYTES	(32u << 20)
/* For the records that only forget, commit and close. */
#define LOG_SPARE_BYTES (8u << 20)
#define CATCH_UP_ROUNDS 8
/* Backing file systems commit an unlink within 30 s; until then a crash may undo it. */
#define GONE_KEEP_MS 60000u

uint64_t mapfile_sync_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000u + (uint64_t)ts.tv_nsec / 1000000u;
}

static int random_u64(uint64_t *ret)
{
	uint64_t v = 0;

	while (v == 0)
		if (getrandom(&v, sizeof(v), 0) != sizeof(v))
			return -errno;
	*ret = v;
	return 0;
}

static bool is_volatile(const struct mapfile *mf)
{
	return mf->flags & MAPFILE_VOLATILE;
}

/* A volatile map waits for no journal, and promises nothing. But a mount of the upper after a power
 * cut is to find a map: a name or a mark that the journal had on disk must not lead to one without
 * its bytes. */
static int sync_fd(const struct mapfile *mf, int fd)
{
	return is_volatile(mf) ? file_write_out(fd) : fdatasync(fd) < 0 ? -errno : 0;
}

static int sync_dir(const struct mapfile *mf)
{
	return is_volatile(mf) || fsync(mf->rootfd) == 0 ? 0 : -errno;
}

static int poison(struct mapfile *mf, const char *what, int r) REQUIRES(mf->lock)
{
	if (!mf->is_poisoned)
		log_error("%s: map: %s: %s; no more changes until it is opened again", mf->name,
			  what, strerror(-r));
	mf->is_poisoned = true;
	return -EIO;
}

int mapfile_sync_record(struct mapfile *mf, const struct record *rec)
{
	const char *why;
	int r = journal_reserve(&mf->journal, record_len(rec->type));

	r = r ?: table_apply(&mf->now.table, rec, &why);
	if (r < 0)
		return r == -EUCLEAN ? -EIO : r;
	r = journal_append(&mf->journal, rec);
	if (r < 0)
		return poison(mf, "append", r);
	mf->lsn++;
	stats_add(STATS_MAP_RECORDS, 1);
	INVARIANTS(mapfile_check_invariants(mf));
	return 0;
}

int mapfile_sync_room(const struct mapfile *mf)
{
	const struct table *t = &mf->now.table;

	if (mf->journal.tail + JOURNAL_SLACK_BYTES + LOG_SPARE_BYTES > MAPFILE_BYTES_MAX)
		return -ENOSPC;
	return table_fits(t, t->record_bytes) ? 0 : -ENOSPC;
}

/* A map file on its way into place. */
struct successor {
	int fd;
	char temp[SNAPSHOT_TEMP_BYTES]; /* "" once it has its own name */
	struct format_map_header head;
	struct buf bytes;
	uint64_t sum;
	struct journal journal;
};

static void successor_release(const struct mapfile *mf, struct successor *s)
{
	if (s->temp[0])
		unlinkat(mf->work_fd, s->temp, 0);
	closep(&s->fd);
	journal_release(&s->journal);
	buf_release(&s->bytes);
}

/* Keep the owner of a map that another user could have written, so that its content stays that
 * user's word. A server that may give no files away believes all anyway; for others a failure, as
 * for want of that user's quota, must not make the map theirs. Both are constant. */
static int keep_owner(const struct mapfile *mf, int fd) UNCHECKED_LOCKS
{
	if (mf->now.owner != geteuid() && fchown(fd, mf->now.owner, (gid_t)-1) < 0 &&
	    errno != EPERM && errno != EINVAL)
		return -errno;
	return mf->now.is_others && fchmod(fd, 0664) < 0 ? -errno : 0;
}

static int successor_open(const struct mapfile *mf, struct successor *s)
{
	*s = (struct successor){ .fd = -1, .journal.fd = -1 };
	s->fd = snapshot_temp_open(mf->work_fd, s->temp);
	if (s->fd < 0) {
		s->temp[0] = '\0';
		return s->fd;
	}

	int r = keep_owner(mf, s->fd);

	return r ?: snapshot_identify(s->fd, &s->head);
}

/* Under the lock: the bytes of a file with the content of the table now. */
static int successor_build(const struct mapfile *mf, struct successor *s) REQUIRES(mf->lock)
{
	uint64_t nonce = 0, uuid = mf->now.head.uuid;
	int r = random_u64(&nonce);

	if (uuid == 0)
		r = r ?: random_u64(&uuid);
	s->head.uuid = uuid;
	s->head.compat = mf->flags & MAPFILE_ORDERED ? FORMAT_MAP_ORDERED : 0;
	/* The files of an older version are unknown. */
	if (mf->now.head.uuid && (mf->now.is_copy || mf->now.head.compat & FORMAT_MAP_COPIED ||
				  !(mf->now.head.incompat & FORMAT_MAP_ZEROS)))
		s->head.compat |= FORMAT_MAP_COPIED;
	s->head.incompat = FORMAT_MAP_ZEROS;
	/* The generation has to differ, and 0 means none. */
	s->head.generation = mf->now.head.generation + 1 ?: 1;
	r = r ?: snapshot_build(&mf->now.table, &s->head, nonce, &s->bytes, &s->sum);
	/* A log is long-winded, a snapshot may be too terse for its content. */
	return r == 0 && !table_fits(&mf->now.table, s->bytes.len) ? -EFBIG : r;
}

/* waits: for the journal, too. */
static int successor_write(struct successor *s, bool waits)
{
	static const uint8_t zeros[LOG_STEP_BYTES];
	uint64_t tail = s->bytes.len;
	size_t pad = LOG_STEP_BYTES - tail % LOG_STEP_BYTES;
	int r = buf_put(&s->bytes, zeros, pad);

	r = r ?: file_pwrite(s->fd, s->bytes.data, s->bytes.len, 0);
	if (r == 0)
		snapshot_copy_put(s->fd, &s->head, 0, 0);
	r = r ?: !waits ? file_write_out(s->fd) : fsync(s->fd) < 0 ? -errno : 0;
	r = r
		    ?: journal_attach(&s->journal, s->fd, sizeof(s->head) + s->head.snapshot_len,
				      tail, s->sum);
	if (r == 0)
		s->fd = -1;
	return r;
}

/* Under the lock: the successor takes its place. */
static int successor_publish(struct mapfile *mf, struct successor *s) REQUIRES(mf->lock)
{
	int r = snapshot_publish(mf->work_fd, s->temp, mf->rootfd);

	if (r < 0)
		return r;
	s->temp[0] = '\0';
	journal_release(&mf->journal);
	mf->journal = s->journal;
	mf->now.table.record_bytes = mf->journal.tail;
	s->journal = (struct journal){ .fd = -1 };
	mf->now.head = s->head;
	mf->now.is_copy = false;
	mf->is_dir_dirty = true;
	INVARIANTS(table_check_invariants(&mf->now.table, NULL));
	return 0;
}

/* Under the lock: the bytes of a layer's first map, in a session of this boot. */
static int first_build(struct mapfile *mf, uint64_t epoch, struct successor *s) REQUIRES(mf->lock)
{
	int r;

	mf->now.table.epoch = epoch;
	mf->now.table.in_session = true;
	r = successor_build(mf, s);
	mf->now.table.in_session = false;
	return r;
}

/* Marks will name the map's uuid, and a crash that keeps a mark must keep the map, bytes and name.
 * File systems with true extents have a journal that keeps the order of operations. There it is
 * enough that the bytes have left memory before the name is made: the commit of the name waits for
 * them, and the mark's commit is no earlier. */
static bool first_waits(const struct mapfile *mf)
{
	return !is_volatile(mf) && !(mf->flags & MAPFILE_TRUE_EXTENTS);
}

/* Under the lock: the file, and nothing in it yet. 1; 0: the layer has a map; -errno. */
static int prepare_begin(struct mapfile *mf, struct successor *s) REQUIRES(mf->lock)
{
	uint64_t epoch;
	int r;

	if (mf->flags & MAPFILE_READONLY || mf->journal.fd >= 0 || mf->prepared)
		return 0;
	r = session_epoch_read(&epoch);
	r = r ?: successor_open(mf, s);
	r = r ?: first_build(mf, epoch, s);
	return r ?: 1;
}

int mapfile_prepare(struct mapfile *mf)
{
	struct successor s = { .fd = -1, .journal.fd = -1 };
	int r;

	{
		LOCK_SCOPE(&mf->lock);
		r = prepare_begin(mf, &s);
	}
	r = r <= 0 ? r : successor_write(&s, first_waits(mf)) ?: 1;
	if (r == 1) {
		LOCK_SCOPE(&mf->lock);
		/* Meanwhile another may have been needed at once, or made ahead. */
		if (mf->journal.fd < 0 && !mf->prepared && (mf->prepared = malloc(sizeof(s)))) {
			*mf->prepared = s;
			INVARIANTS(mapfile_check_invariants(mf));
			return 0;
		}
	}
	successor_release(mf, &s);
	return r < 0 ? r : 0;
}

void mapfile_sync_drop_prepared(struct mapfile *mf)
{
	if (mf->prepared)
		successor_release(mf, mf->prepared);
	free(mf->prepared);
	mf->prepared = NULL;
}

/* The layer's first partial file: a map with an opened log, made ahead or now. */
static int map_create(struct mapfile *mf, uint64_t epoch) REQUIRES(mf->lock)
{
	struct successor s = { .fd = -1, .journal.fd = -1 };
	int r = mf->prepared ? successor_publish(mf, mf->prepared) : -ENOENT;

	mapfile_sync_drop_prepared(mf);
	if (r < 0) {
		r = successor_open(mf, &s);
		r = r ?: first_build(mf, epoch, &s);
		r = r ?: successor_write(&s, first_waits(mf));
		r = r ?: successor_publish(mf, &s);
	}
	successor_release(mf, &s);
	if (r < 0)
		return r;
	mf->now.table.epoch = epoch;
	mf->now.table.in_session = true;
	r = first_waits(mf) ? sync_dir(mf) : 0;
	if (r < 0)
		return poison(mf, "sync of the layer", r);
	mf->is_dir_dirty = !first_waits(mf) && !is_volatile(mf);
	INVARIANTS(mapfile_check_invariants(mf));
	return 0;
}

/* Go on in the session of a server that was killed, maybe before its OPEN, or the name of its map,
 * was on disk. */
static int session_confirm(struct mapfile *mf) REQUIRES(mf->lock)
{
	int r = sync_fd(mf, mf->journal.fd);

	if (r == 0 && first_waits(mf))
		r = sync_dir(mf);
	if (r < 0)
		return poison(mf, "sync", r);
	mf->is_open_doubted = false;
	mf->is_dir_dirty = !first_waits(mf) && !is_volatile(mf);
	if (!mf->is_dir_dirty)
		mf->durable_lsn = mf->lsn;
	return 0;
}

int mapfile_sync_session(struct mapfile *mf)
{
	if (mf->flags & MAPFILE_READONLY)
		return -EROFS;
	if (mf->is_poisoned)
		return -EIO;
	if (mf->now.table.in_session)
		return mf->is_open_doubted ? session_confirm(mf) : 0;

	struct record rec = { .type = FORMAT_REC_OPEN };
	int r = session_epoch_read(&rec.open.epoch);

	if (r < 0)
		return r;
	if (mf->journal.fd < 0)
		return map_create(mf, rec.open.epoch);

	r = random_u64(&rec.open.nonce);
	r = r ?: journal_reserve(&mf->journal, FORMAT_REC_BYTES_MAX);
	r = r ?: mapfile_sync_record(mf, &rec);
	if (r < 0)
		return r;
	r = sync_fd(mf, mf->journal.fd);
	if (r == 0 && mf->is_dir_dirty)
		r = sync_dir(mf);
	if (r < 0)
		return poison(mf, "sync", r);
	mf->is_dir_dirty = false;
	mf->durable_lsn = mf->lsn;
	return 0;
}

int mapfile_sync_flush(struct mapfile *mf)
{
	for (;;) {
		_cleanup_(closep) int fd = -1;
		uint64_t want, generation;
		bool is_dir_dirty;

		{
			LOCK_SCOPE(&mf->lock);
			if (mf->is_poisoned)
				return -EIO;
			want = mf->lsn;
			generation = mf->now.head.generation;
			is_dir_dirty = mf->is_dir_dirty;
			if (mf->journal.fd < 0 || (mf->durable_lsn >= want && !is_dir_dirty))
				return 0;
			/* A checkpoint may close the old file while we wait for it. */
			fd = fcntl(mf->journal.fd, F_DUPFD_CLOEXEC, 0);
			if (fd < 0)
				return -errno;
		}

		int r = sync_fd(mf, fd);

		if (r == 0 && is_dir_dirty)
			r = sync_dir(mf);
		LOCK_SCOPE(&mf->lock);
		if (r < 0)
			return poison(mf, "sync", r);
		if (generation != mf->now.head.generation)
			continue;
		if (mf->durable_lsn < want)
			mf->durable_lsn = want;
		mf->is_dir_dirty = mf->is_dir_dirty && !is_dir_dirty;
		INVARIANTS(mapfile_check_invariants(mf));
		return 0;
	}
}

static bool gone_is_old(void *arg, const struct table_file *f)
{
	(void)arg;
	return f->is_gone_for_good || mapfile_sync_now_ms() - f->gone_ms > GONE_KEEP_MS;
}

static int note_for_good(void *arg, struct table_file *f)
{
	const uint64_t *before = arg;

	if (f->is_gone && f->gone_ms < *before)
		f->is_gone_for_good = true;
	return 0;
}

void mapfile_gone_for_good(struct mapfile *mf, uint64_t before)
{
	LOCK_SCOPE(&mf->lock);
	table_each(&mf->now.table, note_for_good, &before);
}

uint64_t mapfile_now_ms(void)
{
	return mapfile_sync_now_ms();
}

static bool log_is_long(const struct mapfile *mf) REQUIRES(mf->lock)
{
	uint64_t used = mf->journal.tail - mf->journal.start;

	return mf->journal.fd >= 0 &&
	       (used > LOG_LIMIT_BYTES + mf->now.head.snapshot_len || used > LOG_MAX_BYTES);
}

/* Copy the rest of the old log behind rd to the successor, up to end. */
static int catch_up(struct journal_reader *rd, struct journal *to, uint64_t end)
{
	while (rd->off < end) {
		struct record rec;
		int r = journal_reader_next(rd, &rec);

		if (r <= 0)
			return r < 0 ? r : -EIO;
		r = journal_append(to, &rec);
		if (r < 0)
			return r;
	}
	return 0;
}

static uint64_t log_tail(struct mapfile *mf)
{
	LOCK_SCOPE(&mf->lock);
	return mf->journal.tail;
}

/* Follow the old log without the lock until little is left, then switch under it. */
static int catch_up_and_switch(struct mapfile *mf, struct successor *s, struct journal_reader *rd)
{
	uint64_t synced_tail = s->journal.tail;
	int r = 0;

	for (unsigned i = 0; i < CATCH_UP_ROUNDS && r == 0; i++) {
		uint64_t end = log_tail(mf);

		if (end - rd->off < LOG_STEP_BYTES)
			break;
		r = catch_up(rd, &s->journal, end);
		r = r ?: sync_fd(mf, s->journal.fd);
		synced_tail = s->journal.tail;
	}
	if (r < 0)
		return r;

	LOCK_SCOPE(&mf->lock);
	if (mf->is_poisoned)
		return -EIO;
	r = catch_up(rd, &s->journal, mf->journal.tail);
	/* Of these some may have been promised; the old file, which has them, is about to go. */
	if (r == 0 && s->journal.tail != synced_tail)
		r = sync_fd(mf, s->journal.fd);
	return r ?: successor_publish(mf, s);
}

static int checkpoint_prepare(struct mapfile *mf, struct successor *s, struct journal_reader *rd)
{
	int r = successor_open(mf, s);

	if (r < 0)
		return r;
	LOCK_SCOPE(&mf->lock);
	table_sweep(&mf->now.table, gone_is_old, NULL);

	int fd = -1;

	if (mf->journal.fd >= 0) {
		fd = fcntl(mf->journal.fd, F_DUPFD_CLOEXEC, 0);
		if (fd < 0)
			return -errno;
	}
	r = journal_reader_init(rd, fd, mf->journal.tail, UINT64_MAX, mf->journal.sum);
	return r ?: successor_build(mf, s);
}

int mapfile_checkpoint(struct mapfile *mf, bool force)
{
	struct successor s = { .fd = -1, .journal.fd = -1 };
	struct journal_reader rd = { .fd = -1 };

	LOCK_SCOPE(&mf->checkpoint_lock);
	{
		LOCK_SCOPE(&mf->lock);
		if (mf->flags & MAPFILE_READONLY)
			return -EROFS;
		if (mf->is_poisoned)
			return -EIO;
		if (mf->journal.fd < 0 || (!force && !log_is_long(mf)))
			return 0;
	}

	int r = checkpoint_prepare(mf, &s, &rd);

	r = r ?: successor_write(&s, !is_volatile(mf));
	r = r ?: catch_up_and_switch(mf, &s, &rd);
	successor_release(mf, &s);
	closep(&rd.fd);
	journal_reader_release(&rd);
	if (r < 0) {
		log_warn("%s: map: checkpoint failed, the old log goes on: %s", mf->name,
			 strerror(-r));
		return r;
	}
	return mapfile_sync_flush(mf);
}

uint64_t mapfile_log_bytes(struct mapfile *mf)
{
	LOCK_SCOPE(&mf->lock);
	return mf->journal.tail - mf->journal.start;
}

bool mapfile_wants_checkpoint(struct mapfile *mf)
{
	LOCK_SCOPE(&mf->lock);
	return !(mf->flags & MAPFILE_READONLY) && log_is_long(mf);
}

bool mapfile_is_current(struct mapfile *mf)
{
	uint8_t bytes[FORMAT_REC_BYTES_MAX];
	struct stat own, named;
	bool is_end;

	LOCK_SCOPE(&mf->lock);
	if (mf->journal.fd < 0 || fstat(mf->journal.fd, &own) < 0 ||
	    fstatat(mf->rootfd, MAPFILE_NAME, &named, AT_SYMLINK_NOFOLLOW) < 0)
		return false;

	/* Another writer would go on where our log ends. */
	ssize_t n = file_pread(mf->journal.fd, bytes, sizeof(bytes), (off_t)mf->journal.tail);

	is_end = n >= 0;
	for (ssize_t i = 0; i < n; i++)
		is_end = is_end && bytes[i] == 0;
	return is_end && own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

int mapfile_mark_clean(struct mapfile *mf)
{
	struct record rec = { .type = FORMAT_REC_CLEAN };

	/* The mark says that all before it is on disk, so that goes first. */
	int r = mf->flags & MAPFILE_READONLY ? 0 : mapfile_sync_flush(mf);

	if (r < 0 || (mf->flags & MAPFILE_READONLY))
		return r;
	{
		LOCK_SCOPE(&mf->lock);
		if (mf->is_poisoned)
			return -EIO;
		if (mf->journal.fd < 0 || !mf->now.table.in_session)
			return 0;
		r = journal_reserve(&mf->journal, FORMAT_REC_BYTES_MAX);
		r = r ?: mapfile_sync_record(mf, &rec);
	}
	r = r ?: mapfile_sync_flush(mf);
	LOCK_SCOPE(&mf->lock);
	if (r == 0 && !mf->now.table.in_session)
		snapshot_copy_put(mf->journal.fd, &mf->now.head, mf->journal.tail, mf->journal.sum);
	return r;
}
