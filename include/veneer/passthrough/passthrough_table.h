/* SPDX-License-Identifier: Apache-2.0 */
/* Opens by node id and their way, and the files that are registered with the kernel to be read and
 * written behind our back (FUSE passthrough). One object a mount. Its one lock is inside, innermost
 * (below that of the inode table), guards the open counts and backing fields of all node slots, and
 * is never held over a system call.
 *
 * What the kernel demands of one node id, and answers with EIO if broken: while it is open on a
 * backing file it is open in no other way, and only by one and the same registration; while it is
 * open on pages of the mount it is not open on a backing file. Open without either (direct) goes
 * with pages, and not with a backing file. */
#pragma once

#include "veneer/union/inode.h"
#include "veneer/union/node_table.h"

#define PASSTHROUGH_TABLE_MAX 4096 /* registrations of one mount */

enum passthrough_table_kind {
	PASSTHROUGH_TABLE_NONE = 0,
	PASSTHROUGH_TABLE_LOWER =
		1, /* a lower file: for reading, and only while nothing of it has changed */
	PASSTHROUGH_TABLE_UPPER =
		2, /* an upper file that says all of its bytes itself: for reading and writing */
	PASSTHROUGH_TABLE_FLAT = 3, /* the flat copy of a lower file (flat_copy.h): as LOWER */
	PASSTHROUGH_TABLE_LEFT = 4, /* a flat copy of a dead server, or what was the upper's before
				       a snapshot: for whoever has it open */
	PASSTHROUGH_TABLE_UPPER_READ = 5, /* UPPER of which no open that is left may write; UPPER
					     itself may be written */
};

static inline bool passthrough_table_is_upper(enum passthrough_table_kind kind)
{
	return kind == PASSTHROUGH_TABLE_UPPER || kind == PASSTHROUGH_TABLE_UPPER_READ;
}

/* Is it shown only while nothing of the file has changed? */
static inline bool passthrough_table_is_below(enum passthrough_table_kind kind)
{
	return kind != PASSTHROUGH_TABLE_NONE && !passthrough_table_is_upper(kind);
}

enum passthrough_table_way {
	/* How a file is open; what a handle says, so the numbers stay. */
	PASSTHROUGH_TABLE_WAY_CACHED = 1, /* on pages of the mount */
	PASSTHROUGH_TABLE_WAY_BACKED = 2, /* on the backing file */
	PASSTHROUGH_TABLE_WAY_DIRECT = 3, /* on nothing: each read is asked for */
	/* How it cannot be. */
	PASSTHROUGH_TABLE_WAY_REGISTER, /* on a backing file that must be registered first: ask
					   again with its id */
	PASSTHROUGH_TABLE_WAY_SWITCH, /* not by this node id: its inode needs another one */
	PASSTHROUGH_TABLE_WAY_STALE, /* not by this node id: its inode has another one */
};

struct passthrough_table_ask {
	bool writes;
	bool is_back; /* refused this very node id last time: set by passthrough_table_take */
	bool waits; /* if the answer is SWITCH, it will ask once more */
	enum passthrough_table_kind offer; /* what could be registered now */
	uint32_t caller; /* the thread */
	enum passthrough_table_way
		wish; /* CACHED, BACKED or DIRECT, if nothing speaks against it */
	enum passthrough_table_way otherwise; /* FLAT: the wish if there were no copy */
};

/* The two calls to the kernel; replaced in unit tests. */
struct passthrough_table_device {
	int (*open)(int devfd, int fd); /* a registration's id, or -errno */
	int (*close)(int devfd, uint32_t id);
};

struct passthrough_table;

/* devfd, the session's, is borrowed; device NULL: the kernel. 0 or -ENOMEM. */
int passthrough_table_new(int devfd, const struct passthrough_table_device *device, unsigned max,
			  struct passthrough_table **ret);
/* The connection is gone, and its registrations with it. */
void passthrough_table_free(struct passthrough_table *b);

/* Register a regular file. 0; -EPERM where the kernel does not let us; -ELOOP on a stacked file
 * system; -errno. */
int passthrough_table_register(struct passthrough_table *b, int fd, uint32_t *ret_id);
/* Give back a registration that no slot has. */
void passthrough_table_unregister(struct passthrough_table *b, uint32_t id);

/* The right way for one more open, given the outstanding ones. Pure. */
enum passthrough_table_way passthrough_table_choose(const struct node_slot *s,
						    const struct passthrough_table_ask *ask);
/* Choose, and count the open if it is one of the first three. After a SWITCH the node id is left:
 * no open by it gets pages from then on, so that those of two ids never disagree. fresh: an id just
 * registered for this node, or 0; the slot has taken it over if *ret_id, the registration to use
 * (BACKED only), is that. To an id that was left a name may lead even after it was looked up again,
 * as a listing that was under way then is entered later: a caller that comes to it is sent on, and
 * has what there is when it comes back. */
enum passthrough_table_way passthrough_table_take(struct passthrough_table *b, struct node_slot *s,
						  const struct passthrough_table_ask *ask,
						  uint32_t fresh, uint32_t *ret_id);
/* Is the node open on a lower file's registration, and was not left? */
bool passthrough_table_is_lower(struct passthrough_table *b, const struct node_slot *s);
/* Is the node open once, on pages, and was it never written by another node id? */
bool passthrough_table_is_alone(struct passthrough_table *b, const struct node_slot *s);
/* Leave the node id, as after a SWITCH, if a lower file is open by it: true. */
bool passthrough_table_leave(struct passthrough_table *b, struct node_slot *s);
/* A node id of the same file (by its inode number) was left in the last half minute: a caller that
 * was sent on from there is under way. The kernel lets it look once more and not twice, so the id
 * that it finds must not be one that it would be sent on from again, be it the successor or a fresh
 * one, as the kernel may have forgotten both meanwhile. */
bool passthrough_table_was_left(struct passthrough_table *b, const struct node_slot *s);
/* An open ended. The registration stays for the next one, until the node id goes or others need the
 * room. */
void passthrough_table_drop(struct passthrough_table *b, struct node_slot *s,
			    enum passthrough_table_way way);
/* The node id goes: its registration is given back by the next passthrough_table_reap. May be
 * called under that of the inode table. */
void passthrough_table_detach(struct passthrough_table *b, struct node_slot *s);
/* Give back what is not needed any more. System calls: no lock may be held. */
void passthrough_table_reap(struct passthrough_table *b);
/* The registration that a slot has from a server that is dead: it is the connection's, and stays.
 * Idle, unless the file is open on it; of a flat copy, which no other server knows, it serves those
 * opens alone. 0 or -ENOMEM. */
int passthrough_table_restore(struct passthrough_table *b, struct node_slot *s);
/* Give back the upper's registrations that no open uses. -ETXTBSY: a file of it is open for writing
 * past us, or was since it was open on this registration. */
int passthrough_table_release_idle(struct passthrough_table *b, struct union_fs *t);
/* The upper is about to become a lower layer: what is open on its files, alone for reading, stays
 * as a lower file's is. */
void passthrough_table_freeze(struct passthrough_table *b, struct union_fs *t);
/* Registrations held. */
size_t passthrough_table_count(struct passthrough_table *b);
