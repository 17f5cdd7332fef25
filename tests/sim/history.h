/* SPDX-License-Identifier: Apache-2.0 */
/* The model: what programs were told, and from that, what the next look may find. Owns the objects
 * of the mount as they should be. Everything lies in the arena.
 *
 * Each value that can change (a block, a size, a mode, an attribute, the set of names) is a list of
 * events, the newest last. An fsync drops all but the newest; and the ghosts, as long as nothing
 * else is written to their block: where extents tell which blocks are own, bytes that a dead server
 * wrote and did not record are seen after a power cut. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HISTORY_BLK   4096u
#define HISTORY_BYTES (47u * HISTORY_BLK) /* of a file, at most */
#define HISTORY_NAMES 48u
#define HISTORY_PATH  48u
#define HISTORY_XATTR "user.sim"

/* How sure the state is. */
enum history_doubt {
	HISTORY_NONE, /* the newest */
	HISTORY_LAST_OP, /* before or after the operation that was under way */
	HISTORY_CUT, /* anything since the last sync */
};

enum history_kind { HISTORY_FILE, HISTORY_DIR, HISTORY_SYMLINK };

struct history_event {
	uint64_t op;
	uint64_t value;
	void *bytes; /* of a block: HISTORY_BLK of them; of an attribute: a text */
	bool is_below; /* of a size: every smaller one is as good */
	bool is_found; /* a look found it so */
	bool is_ghost; /* of a write that did not end well; a look found something else */
};

struct history_list {
	struct history_event *e;
	size_t n;
};

struct history_thing {
	enum history_kind kind;
	unsigned number;
	struct history_list mode, xattr, size;
	struct history_list *blocks;
	uint8_t *now; /* HISTORY_BYTES */
	const char *target;
	/* Number of the last event of names that is about it, and of the one before. */
	uint64_t last_names, former_names;
};

struct history_names {
	uint64_t op;
	size_t n;
	struct history_name {
		char path[HISTORY_PATH]; /* "" is the root; "@N": open, without that name */
		struct history_thing *thing;
	} at[HISTORY_NAMES];
};

/* An object as a look finds it. */
struct history_found {
	char path[HISTORY_PATH];
	enum history_kind kind;
	bool is_unreadable;
	mode_t mode;
	uint64_t ino;
	char xattr[32]; /* "": none */
	char target[64];
	uint8_t *bytes;
	uint64_t size;
};

/* --no-ghosts: a write that did not end well is none. */
extern bool history_has_no_ghosts;

struct history;
extern const char *const history_kind_names[];

/* a and b behind one another, as a path; what does not fit is left out. */
void history_path(char ret[HISTORY_PATH], const char *a, const char *b);

struct history *history_new(void);
struct history_thing *history_thing(struct history *h, enum history_kind kind, mode_t mode);
/* It begins with these bytes, for certain. */
void history_fill(struct history_thing *t, const void *bytes, size_t size);
uint64_t history_size(const struct history_thing *t);
const char *history_xattr(const struct history_thing *t); /* "": none */

/* Of names now. */
const struct history_names *history_now(const struct history *h);
struct history_thing *history_at(const struct history *h, const char *path);
/* A copy of the names now, which the caller changes and hands to history_set_names. */
struct history_names *history_edit(const struct history *h);
void history_add(struct history_names *n, const char *path, struct history_thing *t);
void history_remove(struct history_names *n, const char *path);
/* Nothing is open any more. */
void history_close_all(struct history *h);
/* Two names change places. */
void history_swap(struct history_names *n, const char *a, const char *b);
/* Takes over n. */
void history_set_names(struct history *h, uint64_t op, struct history_names *n);
/* The event that came last is about t. */
void history_touch(struct history *h, struct history_thing *t);

void history_write(struct history_thing *t, uint64_t op, uint64_t off, const void *p, size_t len);
/* Likewise, by a copy in pieces: the file may end with any of them. */
void history_copy(struct history_thing *t, uint64_t op, const void *p, size_t len);
void history_truncate(struct history_thing *t, uint64_t op, uint64_t size);
/* Zeros; ends where the file does. */
void history_zero(struct history_thing *t, uint64_t op, uint64_t off, uint64_t len);
/* The file is at least so long. */
void history_grow(struct history_thing *t, uint64_t op, uint64_t end);
void history_set_mode(struct history_thing *t, uint64_t op, mode_t mode);
void history_set_xattr(struct history_thing *t, uint64_t op, const char *value);
void history_synced(struct history *h, struct history_thing *t);
/* By fdatasync(2): bytes and size. */
void history_data_synced(struct history_thing *t);
void history_all_synced(struct history *h);

/* Compare with what was found, and take that for the state from now on. The number of differences
 * from the state that fits best, each said by `say`. op: of the operation that was under way. */
struct history_look {
	const struct history_found *found;
	size_t n;
	enum history_doubt doubt;
	uint64_t op;
	void (*say)(const char *line);
};
unsigned history_check(struct history *h, const struct history_look *look);
