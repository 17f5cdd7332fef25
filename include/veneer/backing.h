/* SPDX-License-Identifier: Apache-2.0 */
/* Who has which node id open how, and the files that are registered with the kernel to be read and written behind
 * our back (FUSE passthrough). One object a mount. Its one lock is inside, innermost (below tree->lock), guards the
 * open counts and backing fields of all node slots, and is never held over a system call.
 *
 * What the kernel demands of one node id, and answers with EIO if broken: while it is open on a backing file it is
 * open in no other way, and only by one and the same registration; while it is open on pages of the mount it is not
 * open on a backing file. Open without either (direct) goes with pages, and not with a backing file. */
#pragma once

#include "veneer/nodetab.h"

#define BACKING_MAX 4096	/* registrations of one mount */

enum backing_kind {
	BACKING_NONE = 0,
	BACKING_LOWER = 1,	/* a lower file: for reading, and only while nothing of it has changed */
	BACKING_UPPER = 2,	/* an upper file that says all of its bytes itself: for reading and writing */
};

enum backing_way {
	/* How a file is open; what a handle says, so the numbers stay. */
	BACKING_WAY_CACHED = 1,	/* on pages of the mount */
	BACKING_WAY_BACKED = 2,	/* on the backing file */
	BACKING_WAY_DIRECT = 3,	/* on nothing: each read is asked for */
	/* How it cannot be. */
	BACKING_WAY_REGISTER,	/* on a backing file that must be registered first: ask again with its id */
	BACKING_WAY_SWITCH,	/* not by this node id: its inode needs another one */
	BACKING_WAY_STALE,	/* not by this node id: its inode has another one */
};

struct backing_ask {
	bool writes;
	bool is_back;		/* refused this very node id last time: set by backing_take */
	bool waits;		/* if the answer is SWITCH, it will ask once more */
	enum backing_kind offer; /* what could be registered now */
	uint32_t caller;	/* the thread */
	enum backing_way wish;	/* CACHED, BACKED or DIRECT, if nothing speaks against it */
};

/* The two calls to the kernel; replaced in unit tests. */
struct backing_device {
	int (*open)(int devfd, int fd);		/* a registration's id, or -errno */
	int (*close)(int devfd, uint32_t id);
};

struct backing;

/* devfd, the session's, is borrowed; device NULL: the kernel. 0 or -ENOMEM. */
int backing_new(int devfd, const struct backing_device *device, unsigned max, struct backing **ret);
/* The connection is gone, and its registrations with it. */
void backing_free(struct backing *b);

/* Register a regular file. 0; -EPERM where the kernel does not let us; -ELOOP on a stacked file system; -errno. */
int backing_register(struct backing *b, int fd, uint32_t *ret_id);
/* Give back a registration that no slot has. */
void backing_unregister(struct backing *b, uint32_t id);

/* What is right for one more open, given what is outstanding. Pure. */
enum backing_way backing_choose(const struct node_slot *s, const struct backing_ask *ask);
/* Choose, and count the open if it is one of the first three. After a SWITCH the node id is left: no open by it gets
 * pages from then on, so that those of two ids never disagree. fresh: an id just registered for this node, or 0; the
 * slot has taken it over if *ret_id, the registration to use (BACKED only), is that. To an id that was left a name may
 * lead even after it was looked up again, as a listing that was under way then is entered later: whoever comes to it is
 * sent on, and has what there is when he comes back. */
enum backing_way backing_take(struct backing *b, struct node_slot *s, const struct backing_ask *ask, uint32_t fresh,
			      uint32_t *ret_id);
/* It is open on a lower file's registration, and was not left. */
bool backing_is_lower(struct backing *b, const struct node_slot *s);
/* Leave the node id, as after a SWITCH, if a lower file is open by it: true. */
bool backing_leave(struct backing *b, struct node_slot *s);
/* A node id of the same file (by its inode number) was left in the last half minute: whoever was sent on from there is
 * under way. The kernel lets him look once more and not twice, so the id that he finds must not be one that he would be
 * sent on from again, be it the successor or a fresh one, as the kernel may have forgotten both meanwhile. */
bool backing_was_left(struct backing *b, const struct node_slot *s);
/* An open ended. The registration stays for the next one, until the node id goes or others need the room. */
void backing_drop(struct backing *b, struct node_slot *s, enum backing_way way);
/* The node id goes: its registration is given back by the next backing_reap. May be called under tree->lock. */
void backing_detach(struct backing *b, struct node_slot *s);
/* Give back what is not needed any more. System calls: no lock may be held. */
void backing_reap(struct backing *b);
/* The registration that a slot has from a server that is dead: it is the connection's, and stays. Idle, unless the
 * file is open on it. 0 or -ENOMEM. */
int backing_restore(struct backing *b, struct node_slot *s);
/* Registrations held. */
size_t backing_count(struct backing *b);
