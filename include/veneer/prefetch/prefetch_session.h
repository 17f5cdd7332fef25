/* SPDX-License-Identifier: Apache-2.0 */
/* One mount's part in learning: notes its first requests, has the known profile of its image read
 * ahead, and adds its notes to the profile. One thread of the process does all work on the profile;
 * neither requests nor mounting nor unmounting wait for it. Any failure turns learning off for this
 * mount, with one line. */
#pragma once

#include "veneer/base/stats.h"
#include "veneer/layer/image.h"
#include "veneer/prefetch/trace.h"

struct prefetch_session;

struct prefetch_session_config {
	struct image *image;
	struct stats *stats;
	int state_fd; /* state_dir_ask; taken over, also on failure */
	unsigned window_ms; /* how long requests are noted */
};

/* For a mount that is served; after the last fork of the process. 0 or -errno. */
int prefetch_session_start(const struct prefetch_session_config *c, struct prefetch_session **ret);
/* The trace in which the mount's first requests are noted. */
struct trace *prefetch_session_trace(struct prefetch_session *l);
/* The image and the stats are the caller's again: waits for a read at hand, never for the profile.
 * Nobody notes anything any more. NULL is ignored. */
void prefetch_session_stop(struct prefetch_session *l);
/* Wait until all notes are stored, at most so long. */
void prefetch_session_drain(unsigned timeout_ms);
