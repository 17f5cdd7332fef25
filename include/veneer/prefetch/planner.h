/* SPDX-License-Identifier: Apache-2.0 */
/* From the profile of an image to the list of fetches for its next start, their order, and whether
 * they are worth it; afterwards, how right the list was. Pure. */
#pragma once

#include "veneer/prefetch/profile.h"

#define PLANNER_EXTENT_BYTES 32768u /* of a file; as TRACE_EXTENT_SIZE */
#define PLANNER_TRUST_BOUND  0.5 /* predictions that were right less often are not acted on */
#define PLANNER_TRIALS	     2u /* the first are, in any case */
#define PLANNER_CHECK_FIRST  3u /* starts before one is left alone, judged by its reads, */
#define PLANNER_CHECK_EVERY  8u /* ... and starts for which each verdict is good */

struct planner_limits {
	size_t files;
	uint64_t bytes; /* each extent counted whole */
};

/* A part of a file that will be read, or a file that will be written. */
struct plan_piece {
	uint32_t file, extent;
	enum profile_kind kind;
	uint32_t first_ms;
	float chance;
};

/* Pieces in the order of fetching: files in the order of their first use, the extents of each from
 * front to back, files to be written last. */
struct plan {
	struct profile_file *files; /* owned */
	size_t nfiles;
	struct plan_piece *pieces; /* owned */
	size_t n;
	bool is_trusted; /* else it is judged like any other, and not acted on */
	bool is_check; /* not acted on this time: there were too few verdicts lately */
};

/* Takes the files out of img, on success only. 0 or -ENOMEM. */
int planner_make(const struct planner_limits *l, struct profile_image *img, struct plan *ret);
void planner_release(struct plan *p);
/* The number of extents that will be read. */
uint64_t planner_extents(const struct plan *p);

/* The extents that were predicted, and how many of them came, both in extents read. */
struct plan_verdict {
	uint64_t predicted, hits;
};
void planner_judge(const struct plan *p, const struct profile_start *start,
		   struct plan_verdict *ret);
/* Update the score by one more verdict, in the start that `starts` others came before. However many
 * of these had none, the next check is at most PLANNER_CHECK_EVERY starts away, not one after the
 * other. */
void planner_score(struct profile_score *s, double precision, unsigned starts);
bool planner_trusts(const struct profile_score *s);
