/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the changes of a layer, or of snapshots of an upper, as a stream from which another host
 * makes a layer (doc/SPEC.md, section 6). */
#pragma once

#include "veneer/data/delta_layer.h"
#include "veneer/layer/branch_chain.h"
#include "veneer/tools/diff.h"

struct delta_head {
	uint64_t id; /* of the snapshot; 0: of a layer without snapshots */
	uint64_t from; /* the snapshot below it; 0: none */
	int64_t time_ns;
	char name[BRANCH_CHAIN_NAME_MAX + 1]; /* "" if id is 0 */
	uint64_t first; /* number of entries in earlier parts of this stream */
	uint64_t sum; /* the sum after them; 0 at the beginning */
	uint64_t names; /* the sum of their names, with which a sender checks a token */
};

struct delta_progress {
	uint64_t entries;
	uint64_t bytes; /* of data in the stream */
	uint64_t whole; /* size of the changed files */
};

struct delta_hooks {
	void (*step)(void *arg, const struct delta_progress *p); /* NULL: no progress is reported */
	void *arg;
};

/* Write the stream. fd -1: measure only. 0, or -errno after a line in the log; *ret is set in both
 * cases. */
int delta_send(const struct diff *d, const struct delta_head *head, bool is_compressed, int fd,
	       const struct delta_hooks *hooks, struct delta_progress *ret);

/* Destination of a stream. */
struct delta_target {
	/* Called when the head is known: returns the open layer in which the entries are made. 0,
	 * or -errno after a line in the log. */
	int (*begin)(void *arg, const struct delta_head *head, struct delta_layer **ret);
	void *arg;
};

struct delta_received {
	struct delta_head head;
	uint64_t entries, sum, names; /* verified entries and sums, including earlier parts */
	struct delta_progress p;
};

/* Read a stream and make the layer. The stream is not trusted. Errors, after a line in the log:
 *
 * - -EPIPE: the stream ended early; it can be resumed after ret->entries, with the layer as it is.
 * - -ESTALE: the layers below are not those of the sender.
 * - -EUCLEAN: the stream is damaged.
 * - Other -errno. */
int delta_receive(int fd, const struct delta_target *to, const struct delta_hooks *hooks,
		  struct delta_received *ret);

/* The token with which a stream is resumed: id, from, first, sum and names as text. A ret_size of
 * BRANCH_RECEIVE_TOKEN_MAX is enough. */
void delta_token_format(const struct delta_head *head, char *ret, size_t ret_size);
/* Parse a token. 0 or -EINVAL. */
int delta_token_parse(const char *token, struct delta_head *ret);
