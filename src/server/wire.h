/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the mount program and the server: one message a packet, a header of 12
 * bytes and what its type calls for, little-endian. Pure: no descriptor is touched here.
 *
 *   client   HELLO   DIRS...   ARGS...   MOUNT                    FUSE        |  PING  | STATS
 *   server   HELLO                               TEXT... READY            OK  |  PONG  | TEXT... OK
 *
 *   client   HELLO   FLATTEN
 *   server   HELLO             TEXT... OK
 *
 *   client   HELLO   SQUASH
 *   server   HELLO            TEXT... OK
 *
 *   client   HELLO   SNAPSHOT | ROLLBACK
 *   server   HELLO                         TEXT OK
 *
 *   client   HELLO   UPGRADE               PONG
 *   server   HELLO             BEQUEST...         OK
 *
 * A mount that is to be a part of a file system that others are part of too (shared_sb.h):
 *
 *   client   HELLO ... MOUNT                   FUSE                   BOUND
 *   server   HELLO             SHARED (0)             SHARED (number)
 *
 *   client   HELLO ... MOUNT                             BOUND
 *   server   HELLO             SHARED (number)
 *
 * the first where that file system is not there yet; the other SHARED carries its descriptor.
 *
 * and ERROR instead of any answer, after which the server hangs up. DIRS, FUSE and BEQUEST carry
 * descriptors. FLATTEN, SNAPSHOT, ROLLBACK and SQUASH came after the others, within version 1: a
 * server that does not know them answers ERROR. So did TEXT before READY or SHARED, which says what
 * the mount waits for: a client that does not know it does without this server. */
#pragma once

#include "veneer/base/buf.h"

#include <inttypes.h>

#define WIRE_MAGIC	 0x31524e56u /* "VNR1" */
#define WIRE_VERSION	 1u
#define WIRE_HEADER_SIZE 12u
#define WIRE_PAYLOAD_MAX 32768u
#define WIRE_MESSAGE_MAX (WIRE_HEADER_SIZE + WIRE_PAYLOAD_MAX)
#define WIRE_FDS_MAX	 128u /* in one DIRS */
#define WIRE_DIRS_MAX	 65537u /* in all: more layers no image has */
#define WIRE_ARGS_MAX	 (4u << 20) /* bytes in all ARGS */
#define WIRE_ARGC_MAX	 4096u

enum wire_type {
	WIRE_HELLO = 1, /* text: the program's version */
	WIRE_DIRS, /* role, n_fds; as many descriptors */
	WIRE_ARGS, /* text: a piece of the strings of wire_split_args */
	WIRE_MOUNT, /* count: arguments; flags; size: bytes of all ARGS */
	WIRE_READY, /* flags: everything is open and can be mounted */
	WIRE_FUSE, /* dev_major, dev_minor of the mount; its descriptor */
	WIRE_OK,
	WIRE_ERROR, /* count: exit code; text: a sentence. The same in every version */
	WIRE_STATS,
	WIRE_TEXT, /* text: a piece of the answer */
	WIRE_PING,
	WIRE_PONG, /* size: process id; count: mounts, with those that are being closed */
	WIRE_UPGRADE, /* text: handoff_message_versions of the new server, which takes the mounts */
	WIRE_HANDOFF_MESSAGE, /* count: the descriptors that come with it (handoff.h) */
	WIRE_FLATTEN, /* dev_major, dev_minor, size: device and inode number of a mount, or of an
		       * upper; count: the number of a mount in a shared superblock, or 0. The TEXTs
		       * of its answer say how far it is: WIRE_PROGRESS_FORMAT */
	WIRE_SHARED, /* count: the number of the root that is to be bound; 0: the file system must
			be made */
	WIRE_BOUND, /* it is bound to where it belongs */
	WIRE_SNAPSHOT, /* of a mount or upper, as FLATTEN has it; text: the name that the snapshot
			  is to have, or nothing. The TEXT of its answer is its name */
	WIRE_ROLLBACK, /* likewise; text: the snapshot to go back to, a newline, and the name that
			  the snapshot of what the mount shows is to have, or nothing */
	WIRE_SQUASH, /* likewise; text: the lower and the upper of the snapshots, or nothing for
			each, with a newline between. The TEXTs of its answer say how far it is:
			WIRE_SQUASH_FORMAT */
	WIRE_TYPES
};

enum wire_role { WIRE_LOWER, WIRE_UPPER, WIRE_WORK, WIRE_CLONE, WIRE_STATE };

#define WIRE_MOUNT_IS_ROOT	       1u /* the effective user is 0 */
#define WIRE_MOUNT_NO_DEVICE_WHITEOUTS 2u /* FUSE_OVERLAYFS_DISABLE_OVL_WHITEOUT is set */
#define WIRE_MOUNT_CAN_SHARE	       4u /* the client may bind a root */
#define WIRE_READY_READONLY	       1u /* nothing can be written: mount it so */

/* The fields of struct promote_worker_progress, in order. Older servers do not say the last one. */
#define WIRE_PROGRESS_FORMAT "%zu %zu %zu %" PRIu64 " %" PRIu64 " %" PRIu64
/* How many snapshots become one (0: not known yet), entries and bytes so far. */
#define WIRE_SQUASH_FORMAT  "%zu %" PRIu64 " %" PRIu64
#define WIRE_EXIT_ELSEWHERE 3u /* ERROR's code for what is none of this server's */

struct wire_message {
	unsigned version;
	enum wire_type type;
	enum wire_role role;
	unsigned n_fds;
	uint32_t flags, count, dev_major, dev_minor;
	uint64_t size;
	const char *text; /* borrowed, text_len bytes, no NUL at the end */
	size_t text_len;
};

/* Append the bytes of m; version is set here. 0, -EMSGSIZE for more text than a message holds, or
 * -ENOMEM. */
int wire_encode(const struct wire_message *m, struct buf *ret);
/* The message in exactly len bytes at p, which ret's text points into. -EPROTO: of another version
 * (ret->version and ret->type are set); -EBADMSG: anything else. */
int wire_decode(const void *p, size_t len, struct wire_message *ret);

/* The strings of ARGS, each with its NUL: the current directory and argc arguments. Appends one. 0
 * or -ENOMEM. */
int wire_put_arg(struct buf *b, const char *s);
/* Exactly argc + 1 strings in len bytes: *ret_argv, malloc'd and with a NULL at its end, points
 * into text. -EBADMSG, -ENOMEM. */
int wire_split_args(char *text, size_t len, uint32_t argc, const char **ret_cwd, char ***ret_argv);
