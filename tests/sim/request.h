/* SPDX-License-Identifier: Apache-2.0 */
/* A request of the made-up kernel, as the FUSE handlers answer it. The one under way lies in the
 * arena: where its server dies, the next one gets it again. */
#pragma once

#include "history.h"
#include "veneer/mount/mount.h"

enum request_kind {
	REQUEST_NONE,
	REQUEST_WRITE,
	REQUEST_TRUNCATE,
	REQUEST_ALLOCATE,
	REQUEST_COPY,
	REQUEST_MAKE,
	REQUEST_REMOVE,
	REQUEST_RENAME,
	REQUEST_LINK,
	REQUEST_CHMOD,
	REQUEST_SETXATTR,
	REQUEST_REMOVEXATTR,
	REQUEST_SYNC,
};

struct request {
	enum request_kind kind;
	bool is_standing; /* sent, and not answered */
	bool is_last; /* of its operation */
	uint64_t unique;
	char path[HISTORY_PATH], to[HISTORY_PATH]; /* to: the new name; of COPY the
						    * file read; of REMOVE the name of what
						    * stays open */
	mode_t mode;
	bool is_dir;
	unsigned flags; /* of fallocate(2), renameat2(2), setxattr(2) */
	uint64_t off, len;
	uint8_t *bytes; /* the arena's, until the request is answered */
	char value[24];
};

/* Do it: 0, bytes copied, or -errno. r is sent as a copy. */
int64_t request_do(struct mount *m, const struct request *r);
/* Do the standing one again, in the next server. */
int64_t request_do_again(struct mount *m);
