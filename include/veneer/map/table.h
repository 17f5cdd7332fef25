/* SPDX-License-Identifier: Apache-2.0 */
/* The files of one map in memory, and the effect of each record: the same code for replaying a log
 * and for changing a live map, so that they cannot disagree. No lock, no I/O. */
#pragma once

#include "veneer/base/htab.h"
#include "veneer/map/blkmap.h"
#include "veneer/map/record.h"

/* One partial file. After an unclean boot its committed state alone counts: `map` without `pend`,
 * and above map's clip `cut`, whose clip it has (table_committed). A commit drops both. */
struct table_file {
	struct hlink link;
	file_id_t id;
	struct table_file *dirty_prev, *dirty_next;
	struct blkmap *map; /* as it is now */
	struct blkmap *pend; /* own since the last commit, a part of map; NULL: none */
	struct blkmap *cut; /* committed blocks that truncations took from map; NULL: none was */
	struct blkmap
		*zero; /* own blocks that may read as zeros; of the committed clip. NULL: none */
	uint64_t must_lsn; /* a sync must have covered this record; owner's */
	uint64_t change_lsn; /* the last change that a commit would cover; owner's */
	uint64_t commit_lsn; /* the last commit record; owner's */
	bool must_commit; /* pend or cut hold blocks that only a durable commit keeps; owner's */
	uint64_t gone_ms; /* when it was forgotten; owner's */
	bool is_gone; /* forgotten, but an unclean boot would bring it back */
	bool is_gone_for_good; /* no boot would; owner's */
	bool is_dirty; /* pend, cut or is_gone: on the table's list */
};

/* Limits of a map in memory for so many bytes of records, and of the steps of going back to
 * committed states, a cost that no record pays for. The map of a writer stays far below; a reader
 * takes a map beyond for damaged. */
#define TABLE_BYTES_BASE       (64u << 20)
#define TABLE_BYTES_PER_BYTE   8u
#define TABLE_STEPS_BASE       (1u << 20)
#define TABLE_STEPS_PER_RECORD 64u

struct table {
	struct htab files; /* gone ones too */
	struct table_file *dirty; /* the files that an OPEN or CLEAN looks at */
	size_t count; /* files that are not gone */
	size_t bytes; /* heap bytes of all files */
	uint64_t record_bytes, nrecords, steps; /* the quantities that TABLE_* limit */
	file_id_t next_id;
	file_id_t lost_first, lost_end;
	uint64_t epoch; /* of the session the log is in, or last was in */
	bool in_session; /* an OPEN without a CLEAN after it */
	bool is_loading; /* records come from a snapshot: their content is committed */
	bool is_trusted; /* records are our own: no limits */
};

void table_init(struct table *t);
void table_release(struct table *t);

/* NULL if there is none; a gone one is none. */
struct table_file *table_find(const struct table *t, file_id_t id);
/* Gone ones too. */
struct table_file *table_find_any(const struct table *t, file_id_t id);
/* Whether the id is taken, be it by a gone file. */
bool table_knows(const struct table *t, file_id_t id);
/* Apply rec. 0; -ENOMEM (nothing changed); -EUCLEAN with the rule broken in *ret_why: nothing
 * changed, or the limits are exceeded and the table is of no more use. */
int table_apply(struct table *t, const struct record *rec, const char **ret_why);
/* A reader of so many bytes of records would take the table as it is. */
bool table_fits(const struct table *t, uint64_t record_bytes);
/* The machine went down: back to the committed state. trims: also forget zeros, unless blocks
 * become own yet. -ENOMEM leaves it half done. */
int table_revert(struct table *t, bool trims);
int table_revert_file(struct table *t, struct table_file *f);
/* Close such a session: ids may have been lost. */
void table_lose_ids(struct table *t);
/* Forget gone files for which fn says so (NULL: all). */
void table_sweep(struct table *t, bool (*fn)(void *arg, const struct table_file *f), void *arg);
/* A new file with this map, which is taken over. 0 or -ENOMEM. */
int table_insert(struct table *t, file_id_t id, struct blkmap *map);
/* Drop a file at once. */
void table_remove(struct table *t, struct table_file *f);
/* Commit the blocks of m (of the same clip) as own; which of its blocks are zeros becomes unknown.
 * 0/-ENOMEM. */
int table_own_committed(struct table *t, struct table_file *f, const struct blkmap *m);
/* Forget which own blocks are zeros. 0/-ENOMEM. */
int table_doubt_zeros(struct table *t, struct table_file *f);
/* Blocks of m that may read as zeros, in a new map of the caller's; NULL in it: none. 0/-ENOMEM. */
int table_zeros_in(const struct table_file *f, const struct blkmap *m, struct blkmap **ret);
/* Forget the zeros of blocks that are not own. 0/-ENOMEM. */
int table_trim_zeros(struct table *t, struct table_file *f);
/* The file is a copy, of size bytes, and m (of the committed clip) has the blocks that do not read
 * as zeros. Set the state that these prove and commit it; unless is_ordered, set the committed
 * state. 1; 0 if committed blocks are missing: nothing was done; -ENOMEM. */
int table_settle_copy(struct table *t, struct table_file *f, const struct blkmap *m, uint64_t size,
		      bool is_ordered);
/* Clip of the committed state. */
uint64_t table_committed_clip(const struct table_file *f);
/* Committed state in a new map of the caller's, or NULL on no memory. */
struct blkmap *table_committed(const struct table_file *f);

/* Each file in any order until fn says otherwise than 0; that. fn may not remove. */
int table_each(const struct table *t, int (*fn)(void *arg, struct table_file *f), void *arg);
/* invariants.h; f: the file that changed, or NULL. */
const char *table_check_invariants(const struct table *t, const struct table_file *f);
