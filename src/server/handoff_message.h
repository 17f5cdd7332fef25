/* SPDX-License-Identifier: Apache-2.0 */
/* The message of a supervisor to the one of another program that continues its mounts (handoff.h):
 * everything but the descriptors themselves, which it names by their numbers. The receiver gives
 * them the same numbers. Pure. */
#pragma once

#include "veneer/base/buf.h"

#define HANDOFF_MESSAGE_VERSION 1

struct handoff_message {
	bool owns_socket; /* as in struct server_config */
	int listen_fd, notify_fd; /* the latter may be -1 */
	uint64_t hash_secret, last_key;
	int *mounts; /* the supervisor state's descriptors, in its order */
	size_t n_mounts;
	int *fds; /* in the order of sending: all descriptors, the mounts' in the order of mounts */
	size_t n_fds;
	struct buf journal; /* the bytes of the intent log's area */
};

/* The versions of all transferred formats, as this program writes and reads them. */
const char *handoff_message_versions(void);
bool handoff_message_fits(const char *versions, size_t len);

/* Append one descriptor. 0 or -ENOMEM. */
int handoff_message_add_mount(struct handoff_message *b, int fd);
int handoff_message_add_fd(struct handoff_message *b, int fd);
/* Append the bytes of b. 0 or -ENOMEM. */
int handoff_message_encode(const struct handoff_message *b, struct buf *ret);
/* -EPROTO: another version; -EBADMSG; -ENOMEM. */
int handoff_message_decode(const void *p, size_t len, struct handoff_message *ret);
/* Free the memory; closes no descriptor. */
void handoff_message_release(struct handoff_message *b);
