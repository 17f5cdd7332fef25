/* SPDX-License-Identifier: Apache-2.0 */
/* The map file of one layer: all block maps of its partial files, durable as a snapshot and a log
 * (doc/SPEC.md has every byte). One struct per layer, shared by every mount that uses the layer;
 * thread-safe, its one lock is inside and is never held across a data read or write.
 *
 * States: READY; POISONED after an append or checkpoint failed in a way that leaves the end of the
 * log unknown: reads go on, every change is -EIO, until reopened. A read-only mapfile refuses
 * changes with -EROFS.
 *
 * The order that callers keep: data into the upper file first, then mapfile_own(). */
#pragma once

#include "veneer/base/types.h"
#include "veneer/map/blkmap.h"

#define MAPFILE_NAME ".wh..wh.veneer"
/* The first map of the layer that was found damaged and had to be written anew. */
#define MAPFILE_DAMAGED_NAME ".wh..wh.veneer.damaged"

struct mapfile;

enum mapfile_flags {
	MAPFILE_READONLY = 1, /* a lower layer, or a ro mount: never write, not even to repair */
	MAPFILE_VOLATILE = 2, /* never sync anything */
	MAPFILE_TRUE_EXTENTS = 4, /* a lost file is entered again by its mark and extents: entering
				   * one needs no sync of the map */
	MAPFILE_ORDERED = 8, /* after a power cut a block that reads as anything but zeros was
				written whole */
};

/* How a boot that ended badly is repaired for one file, asked while opening the map of a layer
 * that was not closed cleanly in an earlier boot. */
struct mapfile_rebuild {
	/* Ask for the file's allocated extents: call own(own_arg, blk, n) for each run of blocks
	 * that the backing file system says are allocated. 0; -ENOENT when no file carries this id
	 * any more; -EOPNOTSUPP when extents cannot be trusted here: only committed records count
	 * then. */
	int (*extents)(void *arg, file_id_t id, int (*own)(void *own_arg, blk_t blk, blk_t n),
		       void *own_arg);
	void *arg;
	/* For the copy of a layer: likewise each run of blocks that do not read as zeros.
	 * *ret_size: of the file. NULL: as -EOPNOTSUPP always. */
	int (*contents)(void *arg, file_id_t id, int (*own)(void *own_arg, blk_t blk, blk_t n),
			void *own_arg, uint64_t *ret_size);
};

/* Open the map of the layer at rootfd. work_fd is a directory on the same file system for the
 * temporary half of a checkpoint (-1 when READONLY). A layer without a map file gives an empty map;
 * the file is created by the first mapfile_file_new. rebuild may be NULL (as -EOPNOTSUPP). Of a
 * damaged map the readable part counts, and files without an entry are damaged. The log names the
 * layer, the rule broken and its offset. For writing it is written anew, and linked to
 * MAPFILE_DAMAGED_NAME before if something is lost; if no part is readable the layer has no map
 * from then on. 0; -EUCLEAN for such a map opened for reading, for a map of a newer version, and
 * for anything but a regular file; other -errno. The last record being torn is not damage but an
 * end. */
int mapfile_open(int rootfd, int work_fd, unsigned flags, const char *name,
		 const struct mapfile_rebuild *rebuild, struct mapfile **ret);
/* Release. Writes nothing: each change was written when it happened. */
void mapfile_close(struct mapfile *mf);

/* Re-read the log of a READONLY map that another process is appending to (or has replaced by a
 * checkpoint); 1 when something changed, 0 when not, or -errno. */
int mapfile_refresh(struct mapfile *mf);

/* Random number of this layer, drawn when its map file is first written; 0 before. */
uint64_t mapfile_uuid(struct mapfile *mf);
/* The only user who could have written the map before it was opened; a map that did not exist is
 * this user's. 0; -EACCES: others could as well. */
int mapfile_owner(struct mapfile *mf, uid_t *ret);
/* Files with an entry. */
size_t mapfile_count(struct mapfile *mf);

/* Of a layer without a map: make one ahead in the work directory, so that the first
 * mapfile_file_new has only to rename it. Off the request path. 0, also when there is nothing to
 * do, or -errno: it is made then as late as ever. */
int mapfile_prepare(struct mapfile *mf);
/* Enter a new partial file of which clip bytes can be seen from below, no block own. 0/-errno. */
int mapfile_file_new(struct mapfile *mf, uint64_t clip, file_id_t *ret_id);
/* Enter again a file that carries this id although the map does not know it: its record was lost in
 * an unclean boot. Its blocks are taken from rebuild, else none is own. Nothing may have written to
 * it since. 0; -EEXIST if it is known; -ENOENT if that id cannot have been lost: the file is
 * damaged. In a read-only map it is entered in memory alone. */
int mapfile_file_enter_again(struct mapfile *mf, file_id_t id, uint64_t clip,
			     const struct mapfile_rebuild *rebuild);
/* Forget a file (unlinked, or complete: an ordinary upper file from now on). -ENOENT if unknown. */
int mapfile_file_gone(struct mapfile *mf, file_id_t id);
/* Changes of the files before `before` (mapfile_now_ms), their removal or that of their marks, are
 * on the disk. So no crash brings back a file that was forgotten before that, and the next
 * checkpoint is without it. */
void mapfile_gone_for_good(struct mapfile *mf, uint64_t before);
uint64_t mapfile_now_ms(void);

/* Make sure that changes of up to nblk blocks can be appended, before data is written, so that a
 * full disk is found while nothing has happened yet. 0, -ENOSPC, -EDQUOT, -EIO, -EROFS. */
int mapfile_reserve(struct mapfile *mf, uint64_t nblk);
/* Blocks [blk, blk + n) are own now; their data has been written. 0 or -errno. */
int mapfile_own(struct mapfile *mf, file_id_t id, blk_t blk, blk_t n);
/* Likewise, and they are zeros. Report each block of zeros, also one that was own before: in a copy
 * of the layer an own block of zeros would else count as lost data. */
int mapfile_own_zeros(struct mapfile *mf, file_id_t id, blk_t blk, blk_t n);
/* Own blocks of [blk, blk + n) are about to become zeros. Where one is committed that is on the
 * disk before, unless the map is volatile: without its record it would be one whose data is lost.
 * As mapfile_own. */
int mapfile_expect_zeros(struct mapfile *mf, file_id_t id, blk_t blk, blk_t n);
/* The file was (or is about to be) cut to size bytes. */
int mapfile_truncate(struct mapfile *mf, file_id_t id, uint64_t size);

/* -ENOENT if there is no such file. */
int mapfile_is_complete(struct mapfile *mf, file_id_t id); /* 1, 0 or -errno */
/* Ownership of [blk, blk + max): run length in *ret_n (>= 1). 0 or -ENOENT. */
int mapfile_run(struct mapfile *mf, file_id_t id, blk_t blk, blk_t max, bool *ret_is_own,
		blk_t *ret_n);
int mapfile_clip(struct mapfile *mf, file_id_t id, uint64_t *ret_clip);
/* The next chunk from *chunk on of which some block is own, and which (blkmap_next_chunk). 1, 0 at
 * the end, -ENOENT. */
int mapfile_next_chunk(struct mapfile *mf, file_id_t id, uint64_t *chunk, uint64_t ret_bits[2]);
/* Call fn for each file; the map is locked meanwhile: do not call back. */
void mapfile_each(struct mapfile *mf, void (*fn)(void *arg, file_id_t id, const struct blkmap *map),
		  void *arg);

/* Changes of a file since its last commit, in the calling order of fsync: the caller syncs the
 * file's data, then calls mapfile_commit. */
enum mapfile_pending {
	MAPFILE_CLEAN = 0, /* all of its records are committed */
	MAPFILE_OWN_ONLY =
		1, /* only blocks became own: rebuilt from extents where those are true */
	MAPFILE_MUST_SYNC =
		2, /* creation, truncation or the like: the map itself must reach the disk */
};
enum mapfile_pending mapfile_pending(struct mapfile *mf, file_id_t id);
/* Blocks became own, or were cut off, since the last commit. */
bool mapfile_has_uncommitted(struct mapfile *mf, file_id_t id);
/* A power cut now would leave the map of this file as it is. A file that fsync found
 * MAPFILE_OWN_ONLY is committed, but its records may be in memory only. */
bool mapfile_is_durable(struct mapfile *mf, file_id_t id);
/* Was the file cut, and is that not on disk yet as far as the map knows? 1, 0 or -ENOENT. */
int mapfile_is_cut(struct mapfile *mf, file_id_t id);
/* The file's last change is one that extents cannot tell after an unclean boot (an own hole): only
 * a sync of the map makes it durable. -ENOENT. */
int mapfile_must_sync(struct mapfile *mf, file_id_t id);
/* The number of the file's last change, which mapfile_commit_since compares. Take it before the
 * data sync. */
uint64_t mapfile_change(struct mapfile *mf, file_id_t id);
/* As mapfile_commit, but -EAGAIN (nothing done) if the file was changed after `change` was taken:
 * the blocks that became own meanwhile were not in that data sync, which must not commit them. Take
 * the number and sync the data again, and after a few rounds keep writers out. */
int mapfile_commit_since(struct mapfile *mf, file_id_t id, uint64_t change, bool sync);
/* Append the commit record of a file whose data has just been synced, and sync the map if sync is
 * set and the map is not volatile. The caller has kept writers of that file out since before its
 * data sync; otherwise mapfile_commit_since. 0 or -errno. */
int mapfile_commit(struct mapfile *mf, file_id_t id, bool sync);

/* Write a new snapshot and an empty log, atomically, if the log has outgrown its limit (or force).
 * Appends by other threads go on meanwhile and are not lost. 0 (also when there was nothing to do)
 * or -errno; the old file stays in force after a failure. Called off the request path. */
int mapfile_checkpoint(struct mapfile *mf, bool force);
bool mapfile_wants_checkpoint(struct mapfile *mf);
/* Bytes of records since the last checkpoint; 0 in a read-only map. */
uint64_t mapfile_log_bytes(struct mapfile *mf);

/* Is this object still the last writer of the layer's map? */
bool mapfile_is_current(struct mapfile *mf);
/* The mount is going away and all data has been synced: append and sync the mark that lets the next
 * boot trust every record. No-op on an empty or read-only map. */
int mapfile_mark_clean(struct mapfile *mf);
