/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the mount program and the server. Each packet is one message: a header of 12
 * bytes and the fields of its type, little-endian. Pure: this module touches no descriptor.
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
 * A mount that joins a shared superblock (shared_sb.h), which does not exist yet in the first case.
 * The other SHARED carries the descriptor of its file system:
 *
 *   client   HELLO ... MOUNT                   FUSE                   BOUND
 *   server   HELLO             SHARED (0)             SHARED (number)
 *
 *   client   HELLO ... MOUNT                             BOUND
 *   server   HELLO             SHARED (number)
 *
 * The server may send ERROR instead of any answer, and then hangs up. DIRS, FUSE and BEQUEST carry
 * descriptors. FLATTEN, SNAPSHOT, ROLLBACK and SQUASH were added within version 1: a server that
 * does not know them answers ERROR. TEXT before READY or SHARED was added likewise; it names the
 * reason for waiting, and a client that does not know it mounts without this server. */
#pragma once

#include "veneer/base/buf.h"

#include <inttypes.h>

#define WIRE_MAGIC	 0x31524e56u /* "VNR1" */
#define WIRE_VERSION	 1u
#define WIRE_HEADER_SIZE 12u
#define WIRE_PAYLOAD_MAX 32768u
#define WIRE_MESSAGE_MAX (WIRE_HEADER_SIZE + WIRE_PAYLOAD_MAX)
#define WIRE_FDS_MAX	 128u /* in one DIRS */
#define WIRE_DIRS_MAX	 65537u /* in all; no image has more layers */
#define WIRE_ARGS_MAX	 (4u << 20) /* bytes in all ARGS */
#define WIRE_ARGC_MAX	 4096u

enum wire_type {
	WIRE_HELLO = 1, /* text: version of the program */
	WIRE_DIRS, /* role, n_fds; as many descriptors */
	WIRE_ARGS, /* text: a piece of the strings of wire_split_args */
	WIRE_MOUNT, /* count: arguments; flags; size: bytes of all ARGS */
	WIRE_READY, /* flags; everything is open and ready to be mounted */
	WIRE_FUSE, /* dev_major, dev_minor of the mount; with its descriptor */
	WIRE_OK,
	WIRE_ERROR, /* count: exit code; text: a sentence. The same in every version */
	WIRE_STATS,
	WIRE_TEXT, /* text: a piece of the answer */
	WIRE_PING,
	WIRE_PONG, /* size: process id; count: mounts, including those being closed */
	WIRE_UPGRADE, /* text: handoff_message_versions of the new server, which takes the mounts
			 over */
	WIRE_HANDOFF_MESSAGE, /* count: number of descriptors in this message (handoff.h) */
	WIRE_FLATTEN, /* dev_major, dev_minor, size: device and inode number of a mount or of an
			 upper; count: number of a mount in a shared superblock, or 0. The TEXTs of
			 its answer give the progress: WIRE_PROGRESS_FORMAT */
	WIRE_SHARED, /* count: number of the root to bind; 0: the client must make the file system
		      */
	WIRE_BOUND, /* the client has bound the root */
	WIRE_SNAPSHOT, /* a mount or upper as in FLATTEN; text: name for the snapshot, or empty. The
			  TEXT of its answer is the name */
	WIRE_ROLLBACK, /* likewise; text: snapshot to roll back to, a newline, and a name, or an
			  empty one, for the snapshot of the present contents */
	WIRE_SQUASH, /* likewise; text: lower and upper snapshot, each perhaps empty, with a newline
			between. The TEXTs of its answer give the progress: WIRE_SQUASH_FORMAT */
	WIRE_TYPES
};

enum wire_role { WIRE_LOWER, WIRE_UPPER, WIRE_WORK, WIRE_CLONE, WIRE_STATE };

#define WIRE_MOUNT_IS_ROOT	       1u /* the effective user is 0 */
#define WIRE_MOUNT_NO_DEVICE_WHITEOUTS 2u /* FUSE_OVERLAYFS_DISABLE_OVL_WHITEOUT is set */
#define WIRE_MOUNT_CAN_SHARE	       4u /* the client may bind a root */
#define WIRE_READY_READONLY	       1u /* mount it read-only, as nothing can be written */

/* The fields of struct promote_worker_progress, in order. Older servers omit the last one. */
#define WIRE_PROGRESS_FORMAT "%zu %zu %zu %" PRIu64 " %" PRIu64 " %" PRIu64
/* The number of snapshots that become one (0: not known yet), and entries and bytes so far. */
#define WIRE_SQUASH_FORMAT  "%zu %" PRIu64 " %" PRIu64
#define WIRE_EXIT_ELSEWHERE 3u /* exit code of ERROR if this server has no such mount */

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

/* Append the bytes of m; sets the version. 0; -EMSGSIZE: more text than a message holds;
 * -ENOMEM. */
int wire_encode(const struct wire_message *m, struct buf *ret);
/* Decode the message in exactly len bytes at p; ret's text points into them. -EPROTO: another
 * version (ret->version and ret->type are set); -EBADMSG: invalid. */
int wire_decode(const void *p, size_t len, struct wire_message *ret);

/* Append one string with its NUL. ARGS has the current directory and argc arguments. 0 or
 * -ENOMEM. */
int wire_put_arg(struct buf *b, const char *s);
/* Split len bytes into exactly argc + 1 strings. *ret_argv points into text, ends with a NULL, and
 * is malloc'd. -EBADMSG, -ENOMEM. */
int wire_split_args(char *text, size_t len, uint32_t argc, const char **ret_cwd, char ***ret_argv);
