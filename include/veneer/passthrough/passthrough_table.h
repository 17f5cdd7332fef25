/* SPDX-License-Identifier: Apache-2.0 */
/* Opens by node id and their way, and the files that are registered with the kernel to be read and
 * written behind our back (FUSE passthrough). One object a mount. Its one lock is inside, innermost
 * (below that of the inode table), guards the open counts and backing fields of all node slots, and
 * is never held over a system call.
 *
 * The kernel has rules for one node id, and answers EIO if they are broken. While it is open on a
 * backing file it is open in no other way, and only by one and the same registration. An open on
 * pages of the mount excludes a backing file. Open without either (direct) goes with pages, and not
 * with a backing file. */
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
	PASSTHROUGH_TABLE_LEFT = 4, /* a flat copy of a dead server, or a file of the upper
				       before a snapshot: for its opens */
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
	/* How a file is open; handles hold it, so the numbers stay. */
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
	enum passthrough_table_kind offer; /* the kind of file to register now */
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
 * (BACKED only), is that. A name may lead to an id that was left even after it was looked up again,
 * as a listing that was under way is entered later. A caller that comes to it is sent on, and gets
 * the present id when it comes back. */
enum passthrough_table_way passthrough_table_take(struct passthrough_table *b, struct node_slot *s,
						  const struct passthrough_table_ask *ask,
						  uint32_t fresh, uint32_t *ret_id);
/* The kind of the registration on which the node is open; NONE where it is open on none. */
enum passthrough_table_kind passthrough_table_kind_in_use(struct passthrough_table *b,
							  const struct node_slot *s);
/* Is the node open on a lower file's registration, and was not left? */
bool passthrough_table_is_lower(struct passthrough_table *b, const struct node_slot *s);
/* Has the node a registration, in use or not? May be called under the lock of the inode table. */
bool passthrough_table_is_registered(struct passthrough_table *b, const struct node_slot *s);
/* Is the node open once, on pages, and was it never written by another node id? */
bool passthrough_table_is_alone(struct passthrough_table *b, const struct node_slot *s);
/* Leave the node id, as after a SWITCH, if a lower file is open by it: true. */
bool passthrough_table_leave(struct passthrough_table *b, struct node_slot *s);
/* A node id of the same file (by its inode number) was left in the last half minute: a caller that
 * was sent on from there is under way. The kernel lets it look once more and not twice, so the id
 * that it finds must not send it on again. That holds for the successor and for a fresh id, as the
 * kernel may have forgotten both meanwhile. */
bool passthrough_table_was_left(struct passthrough_table *b, const struct node_slot *s);
/* A thread opened a file, source: the slot of one to be read that a new file could refer to, or
 * NULL. */
void passthrough_table_note_source(struct passthrough_table *b, uint32_t caller,
				   const struct node_slot *source);
/* Was that the last that the thread opened, and is the source open? The file that it makes next may
 * be the copy, as that of cp is. */
bool passthrough_table_is_copier(struct passthrough_table *b, uint32_t caller);
/* An open ended. The registration stays for the next one, until the node id goes or others need the
 * room. */
void passthrough_table_drop(struct passthrough_table *b, struct node_slot *s,
			    enum passthrough_table_way way);
/* The node id goes: its registration is given back by the next passthrough_table_reap. May be
 * called under that of the inode table. */
void passthrough_table_detach(struct passthrough_table *b, struct node_slot *s);
/* Give back unused registrations. System calls: no lock may be held. */
void passthrough_table_reap(struct passthrough_table *b);
/* The registration that a slot has from a server that is dead: it is the connection's, and stays.
 * Idle, unless the file is open on it; of a flat copy, which no other server knows, it serves those
 * opens alone. 0 or -ENOMEM. */
int passthrough_table_restore(struct passthrough_table *b, struct node_slot *s);
/* Give back the upper's registrations that no open uses. -ETXTBSY: a file of it is open for writing
 * past us, or was since it was open on this registration. */
int passthrough_table_release_idle(struct passthrough_table *b);
/* The upper is about to become a lower layer: opens of its files for reading alone stay, as of
 * lower files. */
void passthrough_table_freeze(struct passthrough_table *b);
/* Registrations held. */
size_t passthrough_table_count(struct passthrough_table *b);
