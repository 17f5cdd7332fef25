/* SPDX-License-Identifier: Apache-2.0 */
/* Answers one request: carries it out by the handler that libfuse calls, or refuses it. Any number
 * of threads at once; its fields are set before the session is served. */
#pragma once

#include "unanswered.h"

struct responder {
	struct mount *m;
	struct fuse_session *se;
	const struct unanswered *unanswered;
	bool (*divert)(void *arg, const struct fuse_buf *buf); /* NULL: none */
	void *divert_arg;
};

/* As session_answer. */
void responder_answer(const struct responder *r, const struct fuse_buf *buf);
