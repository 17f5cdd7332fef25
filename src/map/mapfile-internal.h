/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a map file object, for the three files that make it up and for their tests:
 * mapfile.c (questions and changes), mapfile_load.c (open, recover, refresh), mapfile_sync.c
 * (sessions, syncs, checkpoints).
 *
 * Invariants:
 * 1. The table is the result of replaying the file's records. table_apply applies each change;
 *    without memory it changes nothing. The record goes into room that was reserved before, under
 *    the same hold of the lock.
 * 2. No change is recorded outside a session. The OPEN of a session that follows a CLEAN is on disk
 *    before the first change is, so that a later boot knows that ids may have been lost. A server
 *    that goes on in a session sees to it again: its OPEN may be that of a killed one.
 * 3. durable_lsn <= lsn; a change with a promise is durable in the file that a crash now would
 *    leave in place, before or after a checkpoint.
 *
 * Lock order: checkpoint_lock, lock. */
#pragma once

#include "journal.h"
#include "snapshot-internal.h"
#include "veneer/base/lock.h"
#include "veneer/map/journal_reader.h"
#include "veneer/map/mapfile.h"
#include "veneer/map/table.h"

/* No reader takes a longer map of a lower layer; a writer stops early enough. */
#define MAPFILE_BYTES_MAX ((uint64_t)256 << 20)

/* The result of reading a map file. fd is -1 when the layer has none. */
struct mapload {
	int fd;
	uint64_t dev, ino;
	struct format_map_header head;
	struct table table;
	struct journal_reader rd; /* stands at the end of the log */
	bool was_unclean; /* reverted, the file itself says otherwise */
	bool is_copy; /* the file is that of a layer elsewhere */
	size_t nlost; /* files of a copy that lack synced data */
	unsigned n_mended; /* bytes of it, or the whole header, were damaged and are known */
	unsigned n_gaps; /* their content is unknown: files next to them have no entry */
	bool is_lost; /* nothing in it can be believed: fd is -1 */
	uid_t owner;
	bool is_others; /* others than its owner may write it */
};

struct mapfile {
	unsigned flags;
	int rootfd, work_fd;
	char *name;
	mutex_t checkpoint_lock; /* one checkpoint at a time */

	mutex_t lock;
	GUARDED_BY(lock) struct mapload now; /* its fd and reader live on only in a read-only map */
	GUARDED_BY(lock) struct journal journal; /* fd -1: no file yet, or read-only */
	GUARDED_BY(lock) struct successor *prepared; /* the first map, made ahead; NULL: none */
	GUARDED_BY(lock) uint64_t lsn; /* changes recorded so far, counted since the open */
	GUARDED_BY(lock) uint64_t durable_lsn;
	/* the rename of the last checkpoint may not be on disk */
	GUARDED_BY(lock) bool is_dir_dirty;
	/* another server of this boot wrote the OPEN, and it may not be on disk */
	GUARDED_BY(lock) bool is_open_doubted;
	GUARDED_BY(lock) bool is_poisoned;
};

/* Read the map of the layer; 0 with fd -1 if there is none. Nothing is written. The caller's own
 * struct; mapfile_load_release in any case but failure. */
int mapfile_load_read(int rootfd, bool is_readonly, const char *name,
		      const struct mapfile_rebuild *rebuild, struct mapload *ret);
void mapfile_load_release(struct mapload *l);
/* Ask the backing file for one file's blocks: 0, with a new map of the caller's, or NULL in it
 * where extents prove nothing; -ENOENT; other -errno. */
int mapfile_load_rebuild_file(const struct mapload *l, const struct mapfile_rebuild *rebuild,
			      file_id_t id, uint64_t clip, struct blkmap **ret);

/* Under the lock: make sure that records may be appended. May write and sync, once a session. */
int mapfile_sync_session(struct mapfile *mf) REQUIRES(mf->lock);
/* Without the lock: have everything recorded so far on disk. 0 or -errno; poisons when it fails. */
int mapfile_sync_flush(struct mapfile *mf);
/* Under the lock: apply and append. The room was reserved. Poisons when the end of the log is
 * unknown; -ENOMEM changes nothing. */
int mapfile_sync_record(struct mapfile *mf, const struct record *rec) REQUIRES(mf->lock);
/* Under the lock: may the map grow? 0, or -ENOSPC when a reader would not take it any more. */
int mapfile_sync_room(const struct mapfile *mf) REQUIRES(mf->lock);
/* Remove the file that mapfile_prepare made and nothing used. */
void mapfile_sync_drop_prepared(struct mapfile *mf) REQUIRES(mf->lock);
uint64_t mapfile_sync_now_ms(void);
/* invariants.h */
const char *mapfile_check_invariants(const struct mapfile *mf) REQUIRES(mf->lock);
