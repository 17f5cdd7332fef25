/* SPDX-License-Identifier: Apache-2.0 */
/* When and in which order partial files are completed (HP-Mapper's defragmentation, section 3.2): pure policy over
 * plain structs. Times in milliseconds of any clock that does not go back. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum promotion_mode {
	PROMOTION_OFF,
	PROMOTION_AUTO,		/* idle work, at most so many bytes a second */
	PROMOTION_EAGER,	/* at once and without a limit: whatever else goes on */
};

#define PROMOTION_RATE_DEFAULT ((uint64_t)32 << 20)	/* bytes a second of `auto`: judgement, an idle disk's spare */

/* Is a chunk worth completing? More than half of its blocks are own, as in HP-Mapper, and not all. */
bool promotion_takes_chunk(unsigned own, unsigned all);

/* One partial file that has something to be done. */
struct promotion_file {
	uint64_t id;
	uint64_t missing;	/* blocks of the chunks that are to be completed */
	bool ends;		/* after that nothing of the lower file can be seen: it leaves the map */
};

/* Those first that leave the map, and of these and the others those that cost the least. */
void promotion_order(struct promotion_file *files, size_t n);

/* Bytes a second: a second's worth may be saved up. rate 0: no limit. */
struct promotion_rate {
	uint64_t rate, at_ms;
	int64_t tokens;		/* below 0: a debt */
	bool has_begun;
};

/* How long to wait before the next step, 0: go on. */
uint64_t promotion_delay_ms(struct promotion_rate *r, uint64_t now_ms);
/* So much was done; more than there were tokens for is waited for afterwards. */
void promotion_spend(struct promotion_rate *r, uint64_t bytes);

/* Has nobody asked for anything for PROMOTION_QUIET_MS? requests: a count that grows with each. */
#define PROMOTION_QUIET_MS 1000u
struct promotion_quiet {
	uint64_t requests, since_ms;
	bool has_begun;
};
bool promotion_is_quiet(struct promotion_quiet *q, uint64_t requests, uint64_t now_ms);

/* Stall of the last ten seconds, in hundredths of a percent, that the kernel gives ("some", avg10). Above these the
 * machine has better things to do; -1: not known, which is no reason to stop. */
#define PROMOTION_MEMORY_STALL_MAX 100
#define PROMOTION_IO_STALL_MAX 1000
bool promotion_is_pressed(int memory_stall, int io_stall);
