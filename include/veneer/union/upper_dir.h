/* SPDX-License-Identifier: Apache-2.0 */
/* The mirror of one upper directory in memory: its names and whiteouts, so that a lookup needs no
 * system call and a listing has stable positions. No other process changes the upper, so the mirror
 * is authoritative. Its lock is internal and never held over I/O. */
#pragma once

#include "veneer/base/types.h"
#include "veneer/layer/dir_listing.h"

struct upper_dir;

/* The state of one name; a copy, valid when it was taken. */
struct upper_dir_entry {
	uint64_t ino; /* st_ino as shown, if is_ino_known; else the upper's own number */
	/* Position, of 30 bits: entries are listed in this order and never move. Another server
	 * gives the same name the same position, except perhaps for two names of one hash. */
	uint64_t seq;
	uint8_t type; /* DT_*; meaningless for a whiteout */
	bool is_whiteout;
	bool is_ino_known;
	/* the lower directory has the name too, which decides its place in the listing */
	bool is_below;
};

struct upper_dir *upper_dir_new(void);
void upper_dir_free(struct upper_dir *d);

/* Enter or replace a name. An existing name keeps its seq. 0 or -ENOMEM. */
int upper_dir_set(struct upper_dir *d, const char *name, const struct upper_dir_entry *e);
/* Call before an operation that cannot be undone: from now on upper_dir_set of this name cannot
 * fail. *ret_is_new: the name was not there; until it is set, or removed by the caller after a
 * failure, it is a whiteout. 0 or -ENOMEM. */
int upper_dir_reserve(struct upper_dir *d, const char *name, bool is_below, bool *ret_is_new);
void upper_dir_remove(struct upper_dir *d, const char *name);
bool upper_dir_find(struct upper_dir *d, const char *name, struct upper_dir_entry *ret);
/* The first entry with seq >= *seq that is neither a whiteout nor is_below; its name is copied into
 * name (NAME_MAX + 1 bytes). False at the end. */
bool upper_dir_next(struct upper_dir *d, uint64_t *seq, char *name, struct upper_dir_entry *ret);
/* Call fn for every name, including whiteouts, until it returns non-zero; the lock is held. */
int upper_dir_each(struct upper_dir *d,
		   int (*fn)(void *arg, const char *name, const struct upper_dir_entry *e),
		   void *arg);
size_t upper_dir_count(struct upper_dir *d);
/* The difference between the visible subdirectories and those of the lower directory: those here,
 * less the lower ones that a name or whiteout here covers. Calls is_dir_below once per changed
 * name, with the lock held, so it must do no I/O. */
ssize_t upper_dir_subdirs(struct upper_dir *d, bool (*is_dir_below)(void *arg, const char *name),
			  void *arg);
/* The group that new entries inherit. True: it is known, *ret_gid; (gid_t)-1 for none. False: read
 * the directory, then call upper_dir_note_group with *ret_seen, which does nothing if the group was
 * forgotten meanwhile. No lock. */
bool upper_dir_group(const struct upper_dir *d, gid_t *ret_gid, uint64_t *ret_seen);
void upper_dir_note_group(struct upper_dir *d, uint64_t seen, gid_t gid);
/* Call after each change of owner or mode, or attempt. */
void upper_dir_forget_group(struct upper_dir *d);
/* Changes with every upper_dir_set and upper_dir_remove. */
uint64_t upper_dir_version(struct upper_dir *d);
/* The object of a name in the directory has changed: increments the version. */
void upper_dir_touch(struct upper_dir *d);
/* Does the directory have a default ACL? False until noted; no lock. */
void upper_dir_note_default_acl(struct upper_dir *d, bool has_one);
bool upper_dir_has_default_acl(const struct upper_dir *d);
