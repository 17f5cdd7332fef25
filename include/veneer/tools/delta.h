/* SPDX-License-Identifier: Apache-2.0 */
/* What a layer, or snapshots of an upper, change in the layers below, as a stream that another host
 * makes a layer of (doc/SPEC.md, section 6). */
#pragma once

#include "veneer/data/delta_layer.h"
#include "veneer/layer/branch_chain.h"
#include "veneer/tools/diff.h"

struct delta_head {
	uint64_t id; /* of the snapshot; 0: it is of a layer that has none */
	uint64_t from; /* the snapshot that it stands on; 0: none */
	int64_t time_ns;
	char name[BRANCH_CHAIN_NAME_MAX + 1]; /* "" if id is 0 */
	uint64_t first; /* entries that came in an earlier part of this stream, ... */
	uint64_t sum; /* ... the sum after them; 0 at the beginning, ... */
	uint64_t names; /* ... and the sum of their names, by which a sender checks a token */
};

struct delta_progress {
	uint64_t entries;
	uint64_t bytes; /* of data in the stream */
	uint64_t whole; /* of the files that have changed */
};

struct delta_hooks {
	void (*step)(void *arg, const struct delta_progress *p); /* NULL: nobody asks */
	void *arg;
};

/* Write the stream. fd -1: only measure. 0, or -errno after a line in the log; *ret in both
 * cases. */
int delta_send(const struct diff *d, const struct delta_head *head, bool is_compressed, int fd,
	       const struct delta_hooks *hooks, struct delta_progress *ret);

/* Where a stream goes. */
struct delta_target {
	/* The head is known: give the layer, open, that the entries are made in. 0, or -errno after
	 * a line in the log. */
	int (*begin)(void *arg, const struct delta_head *head, struct delta_layer **ret);
	void *arg;
};

struct delta_received {
	struct delta_head head;
	uint64_t entries, sum, names; /* what was received and is right, also of earlier parts */
	struct delta_progress p;
};

/* Read a stream, in which everything may be forged, and make the layer. 0: it is whole; -EPIPE: it
 * ended too early, and can be resumed behind ret->entries, with the layer as it is; -ESTALE: the
 * layers below are not those that it was made on; -EUCLEAN: it is damaged; -errno. All after a line
 * in the log. */
int delta_receive(int fd, const struct delta_target *to, const struct delta_hooks *hooks,
		  struct delta_received *ret);

/* What resumes a stream, of id, from, first, sum and names: text, and back. ret_size:
 * BRANCH_RECEIVE_TOKEN_MAX is enough. */
void delta_token_format(const struct delta_head *head, char *ret, size_t ret_size);
/* 0 or -EINVAL. */
int delta_token_parse(const char *token, struct delta_head *ret);
