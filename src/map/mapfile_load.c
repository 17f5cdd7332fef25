// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mapfile-internal.h"
#include "salvage.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/human_units.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/map/journal_end.h"
#include "veneer/map/session_epoch.h"
#include "veneer/sys/file.h"
#include "veneer/sys/path.h"

#define REPLAY_TRIES 8

static void blkmap_freep(struct blkmap **m)
{
	blkmap_free(*m);
}

static void mapload_releasep(struct mapload **l)
{
	if (*l)
		mapfile_load_release(*l);
}

void mapfile_load_release(struct mapload *l)
{
	journal_reader_release(&l->rd);
	table_release(&l->table);
	closep(&l->fd);
}

static int damage(const char *name, uint64_t off, const char *rule)
{
	log_error("%s: map damaged at offset %llu: %s", name, (unsigned long long)off, rule);
	return -EUCLEAN;
}

/* In a hostile layer the name may be a fifo, which must not stop us, or a device. */
static int map_open(int rootfd, bool is_readonly, const char *name, struct mapload *l)
{
	struct stat st;

	if (fstatat(rootfd, MAPFILE_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISREG(st.st_mode))
		return damage(name, 0, "not a regular file");

	int fd = path_open(rootfd, MAPFILE_NAME,
			   (is_readonly ? O_RDONLY : O_RDWR) | O_NOFOLLOW | O_NONBLOCK, 0);

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	l->fd = fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return damage(name, 0, "not a regular file");
	if (is_readonly && (uint64_t)st.st_size > MAPFILE_BYTES_MAX)
		return damage(name, MAPFILE_BYTES_MAX, "longer than a map may be");
	l->dev = st.st_dev;
	l->ino = st.st_ino;
	l->owner = st.st_uid;
	l->is_others = st.st_mode & (S_IWGRP | S_IWOTH);
	return 1;
}

/* Replay the log behind l->rd. Number of records or -errno. */
static long replay(struct mapload *l, const char *name)
{
	long nrec = 0;

	for (;;) {
		struct record rec;
		const char *why = NULL;
		uint64_t off = l->rd.off;
		int r = journal_reader_next(&l->rd, &rec);

		if (r <= 0)
			return r == 0 ? nrec : r == -EUCLEAN ? damage(name, off, l->rd.why) : r;
		if (rec.type != FORMAT_REC_OPEN && !l->table.in_session)
			return damage(name, off, "change outside a session");
		r = table_apply(&l->table, &rec, &why);
		if (r < 0)
			return r == -EUCLEAN ? damage(name, off, why) : r;
		nrec++;
	}
}

/* Replay to the end. A server that was killed leaves at most its last record torn, so records
 * behind a bad one mean damage; but for a power cut, which may keep later pages and lose earlier
 * ones. A live writer may be adding records behind the one that was not there a moment ago: look
 * again before believing it. */
static int replay_all(struct mapload *l, const char *name)
{
	for (int attempt = 0;; attempt++) {
		long nrec = replay(l, name);
		const char *why;
		int r;

		if (nrec < 0)
			return (int)nrec;
		r = journal_end_check(&l->rd, &l->table, &l->head, &why);
		if (r <= 0)
			return r;
		if (attempt == REPLAY_TRIES)
			return damage(name, l->rd.off, why);
	}
}

static int own_extent(void *arg, blk_t blk, blk_t n)
{
	return blkmap_set(arg, blk, n);
}

/* In a copy of a layer a hole may have become zeros, and zeros a hole: extents prove nothing.
 * Without a birth time the number of the map may be that of another file, elsewhere. */
static bool may_be_copied(const struct mapload *l)
{
	return l->is_copy || !l->head.self_btime_ns || l->head.compat & FORMAT_MAP_COPIED;
}

/* The map says which own blocks are zeros: others that are have lost their data. */
static bool has_contents(const struct mapload *l, const struct mapfile_rebuild *rebuild)
{
	return rebuild && rebuild->contents && l->head.incompat & FORMAT_MAP_ZEROS;
}

/* A block that is not zeros was written whole. */
static bool is_ordered(const struct mapload *l)
{
	return l->head.compat & FORMAT_MAP_ORDERED;
}

int mapfile_load_rebuild_file(const struct mapload *l, const struct mapfile_rebuild *rebuild,
			      file_id_t id, uint64_t clip, struct blkmap **ret)
{
	const bool is_copied = may_be_copied(l);
	uint64_t size;

	*ret = NULL;
	if (!rebuild || (is_copied && !(has_contents(l, rebuild) && is_ordered(l))))
		return 0;

	_cleanup_(blkmap_freep) struct blkmap *m = blkmap_new(clip);
	int r = !m	    ? -ENOMEM
		: is_copied ? rebuild->contents(rebuild->arg, id, own_extent, m, &size)
			    : rebuild->extents(rebuild->arg, id, own_extent, m);

	if (r == -EOPNOTSUPP)
		return 0;
	if (r < 0)
		return r;
	*ret = steal_ptr(&m);
	return 0;
}

struct id_list {
	file_id_t *ids;
	size_t n;
};

static int list_id(void *arg, struct table_file *f)
{
	struct id_list *l = arg;

	l->ids[l->n++] = f->id;
	return 0;
}

static int rebuild_one(struct mapload *l, struct table_file *f,
		       const struct mapfile_rebuild *rebuild)
{
	_cleanup_(blkmap_freep) struct blkmap *m = NULL;
	int r = mapfile_load_rebuild_file(l, rebuild, f->id, blkmap_clip(f->map), &m);

	if (r == -ENOENT) {
		table_remove(&l->table, f);
		return 0;
	}
	r = r ?: (m ? table_own_committed(&l->table, f, m) : 0);
	return r ?: table_trim_zeros(&l->table, f);
}

/* A file of a copy that lacks synced data loses its entry: with its mark alone it is damaged. */
static int settle_one(struct mapload *l, struct table_file *f,
		      const struct mapfile_rebuild *rebuild)
{
	_cleanup_(blkmap_freep) struct blkmap *m = blkmap_new(table_committed_clip(f));
	uint64_t size;
	int r = m ? rebuild->contents(rebuild->arg, f->id, own_extent, m, &size) : -ENOMEM;

	if (r == -EOPNOTSUPP)
		return table_revert_file(&l->table, f);
	if (r == 0)
		r = table_settle_copy(&l->table, f, m, size, is_ordered(l));
	if (r == 1 || (r < 0 && r != -ENOENT))
		return r < 0 ? r : 0;
	l->nlost += r == 0;
	table_remove(&l->table, f);
	return 0;
}

static int each_file(struct mapload *l, const struct mapfile_rebuild *rebuild,
		     int (*fn)(struct mapload *l, struct table_file *f,
			       const struct mapfile_rebuild *rebuild))
{
	_cleanup_(freep) file_id_t *ids = calloc(l->table.files.count + 1, sizeof(*ids));
	struct id_list list = { .ids = ids };
	int r = 0;

	if (!ids)
		return -ENOMEM;
	table_each(&l->table, list_id, &list);
	for (size_t i = 0; i < list.n && r == 0; i++)
		r = fn(l, table_find_any(&l->table, ids[i]), rebuild);
	return r;
}

static int recover_survivor(struct mapload *l, const char *name,
			    const struct mapfile_rebuild *rebuild)
{
	int r = table_revert(&l->table, false);

	r = r ?: each_file(l, rebuild, rebuild_one);
	if (r == 0)
		log_info("%s: not closed cleanly in an earlier boot: as last synced are %s", name,
			 human_units_of(l->table.count, "partial file").text);
	return r;
}

static int recover_copy(struct mapload *l, const char *name, const struct mapfile_rebuild *rebuild)
{
	int r = each_file(l, rebuild, settle_one);

	if (r < 0)
		return r;
	table_lose_ids(&l->table);
	log_info("%s: a copy of a layer that was in use: as %s are %s", name,
		 is_ordered(l) ? "they were copied" : "last synced",
		 human_units_of(l->table.count, "partial file").text);
	if (l->nlost)
		log_error("%s: this copy lacks data that had been synced, and has %s that cannot "
			  "be read: copy the layer "
			  "again (`veneer check` names them)",
			  name, human_units_of(l->nlost, "partial file").text);
	return 0;
}

/* After an unclean earlier boot only the committed state counts, and the blocks that extents add to
 * it. */
static int recover(struct mapload *l, const char *name, const struct mapfile_rebuild *rebuild)
{
	int r = l->table.in_session ? session_epoch_is_of(&l->table) : 1;

	if (r)
		return r < 0 ? r : 0;
	r = l->is_copy && has_contents(l, rebuild) ? recover_copy(l, name, rebuild)
						   : recover_survivor(l, name, rebuild);
	l->was_unclean = r == 0;
	return r;
}

static int read_by_rules(struct mapload *l, const char *name)
{
	struct snapshot_damage bad;
	int r = snapshot_load(l->fd, &l->table, &l->head, &bad);

	if (r < 0)
		return r == -EUCLEAN ? damage(name, bad.off, bad.rule) : r;
	r = snapshot_is_copy(l->fd, &l->head);
	l->is_copy = r == 1;
	if (r < 0)
		return r;
	r = journal_reader_init(&l->rd, l->fd, sizeof(l->head) + l->head.snapshot_len, UINT64_MAX,
				l->head.checksum);
	return r ?: replay_all(l, name);
}

static int read_open_file(struct mapload *l, bool is_readonly, const char *name,
			  const struct mapfile_rebuild *rebuild)
{
	int r = read_by_rules(l, name);

	if (r == -EUCLEAN)
		r = salvage_load(l, name);
	if (r == -EUCLEAN && !is_readonly) {
		log_error("%s: map: nothing in it can be believed: partial files cannot be read, "
			  "but new ones can be made; "
			  "`veneer check --repair` names them",
			  name);
		mapfile_load_release(l);
		/* The next map is another one: under this uuid old marks would name its files. */
		l->head = (struct format_map_header){ 0 };
		l->is_copy = false;
		l->n_mended = l->n_gaps = 0;
		l->is_lost = true;
		l->owner = geteuid();
		l->is_others = false;
		return 0;
	}
	if (r == -EPROTONOSUPPORT)
		r = -EUCLEAN;
	return r ?: recover(l, name, rebuild);
}

int mapfile_load_read(int rootfd, bool is_readonly, const char *name,
		      const struct mapfile_rebuild *rebuild, struct mapload *ret)
{
	struct mapload l = { .fd = -1, .owner = geteuid() };
	_cleanup_(mapload_releasep) struct mapload *undo = &l;

	table_init(&l.table);

	int r = map_open(rootfd, is_readonly, name, &l);

	r = r > 0 ? read_open_file(&l, is_readonly, name, rebuild) : r;
	if (r < 0)
		return r;
	undo = NULL;
	*ret = l;
	return 0;
}

int mapfile_refresh(struct mapfile *mf)
{
	struct stat st;
	struct mapload fresh;

	if (!(mf->flags & MAPFILE_READONLY))
		return 0;
	LOCK_SCOPE(&mf->lock);
	if (fstatat(mf->rootfd, MAPFILE_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if ((uint64_t)st.st_size > MAPFILE_BYTES_MAX)
		return damage(mf->name, MAPFILE_BYTES_MAX, "longer than a map may be");
	if (mf->now.fd >= 0 && st.st_dev == mf->now.dev && st.st_ino == mf->now.ino) {
		long nrec = replay(&mf->now, mf->name);

		return nrec < 0 ? (int)nrec : nrec > 0;
	}

	int r = mapfile_load_read(mf->rootfd, true, mf->name, NULL, &fresh);

	if (r < 0)
		return r;
	mapfile_load_release(&mf->now);
	mf->now = fresh;
	return 1;
}
