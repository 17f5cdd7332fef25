/* SPDX-License-Identifier: Apache-2.0 */
/* Where the readers of a mount wait: on any processor, or on that of the one thread that asks one thing after the
 * other. Policy only. A request wakes a reader and its answer wakes the caller: from one sleeping processor to another
 * that takes 20 us each time (virtual machine), on one processor 2. The scheduler leaves the two where they happen to
 * be. With several callers, and for large reads, work side by side is worth more. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define FOLLOW_AFTER 32u	/* requests of one caller, and of no other, before its processor is looked up */
#define FOLLOW_AGAIN 16u	/* and looked up once more, as it may have moved */
#define FOLLOW_TERM 4096u	/* then all begins anew: what was one after the other may be so no longer */

struct follow {
	uint32_t caller;
	uint32_t run;		/* requests of the caller, and of no other */
	int cpu;		/* where readers stay, or -1 */
	bool is_off;		/* for good */
};

void follow_init(struct follow *f);
/* A request has come. caller: the thread that waits for it, or 0. is_side_by_side: others are being answered, or it is
 * large. True: look up where the caller runs, and say so. */
bool follow_request(struct follow *f, uint32_t caller, bool is_side_by_side);
/* The caller of that request runs on this processor (or an error). */
void follow_found(struct follow *f, uint32_t caller, int cpu);
/* Readers cannot stay there. */
void follow_refused(struct follow *f);
/* Readers were not let run there: all begins anew. */
void follow_lost(struct follow *f);
