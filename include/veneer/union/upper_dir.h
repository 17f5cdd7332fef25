/* SPDX-License-Identifier: Apache-2.0 */
/* The mirror of one upper directory in memory: its names and whiteouts, so that a lookup costs no
 * system call and a listing has stable positions. The upper is ours alone, so what is here is the
 * truth. Its lock is inside and never held over I/O. */
#pragma once

#include "veneer/base/types.h"
#include "veneer/layer/dir_listing.h"

struct upper_dir;

/* The state of one name; a copy, valid when it was taken. */
struct upper_dir_entry {
	uint64_t ino; /* st_ino as presented, if is_ino_known; else the upper's own number */
	uint64_t seq; /* position, of 30 bits: entries appear in this order and never move, and
		       * another server gives the same to the same name (of two of one hash, perhaps
		       * not) */
	uint8_t type; /* DT_*; meaningless for a whiteout */
	bool is_whiteout;
	bool is_ino_known;
	bool is_below; /* the lower directory has the name too, and so its place in the listing */
};

struct upper_dir *upper_dir_new(void);
void upper_dir_free(struct upper_dir *d);

/* Enter or replace a name. seq is kept when the name was there. 0 or -ENOMEM. */
int upper_dir_set(struct upper_dir *d, const char *name, const struct upper_dir_entry *e);
/* Before something is done that cannot be undone: from now on upper_dir_set of this name cannot
 * fail. Where there was no such name, *ret_is_new says so, and it is a whiteout until it is set or,
 * if nothing comes of it, removed. 0 or -ENOMEM. */
int upper_dir_reserve(struct upper_dir *d, const char *name, bool is_below, bool *ret_is_new);
void upper_dir_remove(struct upper_dir *d, const char *name);
bool upper_dir_find(struct upper_dir *d, const char *name, struct upper_dir_entry *ret);
/* The first entry with seq >= *seq that is neither a whiteout nor is_below; its name is copied into
 * name (NAME_MAX + 1 bytes). False at the end. */
bool upper_dir_next(struct upper_dir *d, uint64_t *seq, char *name, struct upper_dir_entry *ret);
/* Call fn for every name, whiteouts too, until it answers non-zero; the lock is held. */
int upper_dir_each(struct upper_dir *d,
		   int (*fn)(void *arg, const char *name, const struct upper_dir_entry *e),
		   void *arg);
size_t upper_dir_count(struct upper_dir *d);
/* How many more subdirectories there are to see than the lower directory has: those here, less the
 * lower ones that a name or a whiteout here stands before. Asks is_dir_below once for a name that
 * changed, with the lock held: it must know without I/O. */
ssize_t upper_dir_subdirs(struct upper_dir *d, bool (*is_dir_below)(void *arg, const char *name),
			  void *arg);
/* The group that new entries inherit: known: *ret_gid, (gid_t)-1 for none. Else *ret_seen is for
 * the note of what is read of the directory after this call; the note is void if the group was
 * forgotten meanwhile. No lock. */
bool upper_dir_group(const struct upper_dir *d, gid_t *ret_gid, uint64_t *ret_seen);
void upper_dir_note_group(struct upper_dir *d, uint64_t seen, gid_t gid);
/* After each change of owner or mode, tried or done. */
void upper_dir_forget_group(struct upper_dir *d);
/* Changes with every upper_dir_set and upper_dir_remove. */
uint64_t upper_dir_version(struct upper_dir *d);
/* What some name in it leads to is something else now. */
void upper_dir_touch(struct upper_dir *d);
/* Does the directory have a default ACL? False until it is noted; no lock. */
void upper_dir_note_default_acl(struct upper_dir *d, bool has_one);
bool upper_dir_has_default_acl(const struct upper_dir *d);
