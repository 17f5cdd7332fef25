/* SPDX-License-Identifier: Apache-2.0 */
/* The files of one map in memory, and what each record does to them: the same code for replaying a
 * log and for changing a live map, so that they cannot disagree. No lock, no I/O. */
#pragma once

#include "record.h"
#include "veneer/blkmap.h"
#include "veneer/htab.h"

/* One partial file. Its committed state, which alone counts after an unclean boot, is `old` if
 * that is set, else `map` without `pend`. */
struct table_file {
	struct hlink link;
	file_id_t id;
	struct blkmap *map; /* as it is now */
	struct blkmap *pend; /* own since the last commit; NULL: none */
	struct blkmap *old; /* committed state, kept apart by the first truncation; else NULL */
	uint64_t must_lsn; /* a sync must have covered this record; owner's */
	uint64_t change_lsn; /* the last change that a commit would cover; owner's */
	uint64_t gone_ms; /* when it was forgotten; owner's */
	bool is_gone; /* forgotten, but an unclean boot would bring it back */
};

struct table {
	struct htab files; /* gone ones too */
	size_t count; /* files that are not gone */
	file_id_t next_id;
	file_id_t lost_first, lost_end;
	uint64_t epoch; /* of the session the log is in, or last was in */
	bool in_session; /* an OPEN without a CLEAN after it */
	bool is_loading; /* records come from a snapshot: what they say is committed */
};

void table_init(struct table *t);
void table_release(struct table *t);

/* NULL if there is none; a gone one is none. */
struct table_file *table_find(const struct table *t, file_id_t id);
/* Whether the id is taken, be it by a gone file. */
bool table_knows(const struct table *t, file_id_t id);
/* Do what rec says. 0; -ENOMEM (nothing changed); -EUCLEAN with the rule broken in *ret_why. */
int table_apply(struct table *t, const struct record *rec, const char **ret_why);
/* The machine went down: back to what was committed. -ENOMEM leaves it half done. */
int table_revert(struct table *t);
/* Forget gone files for which fn says so (NULL: all). */
void table_sweep(struct table *t, bool (*fn)(void *arg, const struct table_file *f), void *arg);
/* A new file with this map, which is taken over. 0 or -ENOMEM. */
int table_insert(struct table *t, file_id_t id, struct blkmap *map);
/* Drop a file at once. */
void table_remove(struct table *t, struct table_file *f);
/* dst becomes own where src is and `without` (may be NULL) is not; all of one clip. 0/-ENOMEM. */
int table_map_add(struct blkmap *dst, const struct blkmap *src, const struct blkmap *without);
/* Committed state in a new map of the caller's, or NULL on no memory. */
struct blkmap *table_committed(const struct table_file *f);

/* Each file in any order until fn says otherwise than 0; that. fn may not remove. */
int table_each(const struct table *t, int (*fn)(void *arg, struct table_file *f), void *arg);
