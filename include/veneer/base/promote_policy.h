/* SPDX-License-Identifier: Apache-2.0 */
/* When and in which order partial files are completed (HP-Mapper's defragmentation, section 3.2):
 * pure policy over plain structs. Times in milliseconds of any clock that does not go back. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum promote_policy_mode {
	PROMOTE_POLICY_OFF,
	PROMOTE_POLICY_AUTO, /* idle work, at most so many bytes a second */
	PROMOTE_POLICY_EAGER, /* at once and without a limit: whatever else goes on */
};

#define PROMOTE_POLICY_RATE_DEFAULT \
	((uint64_t)32 << 20) /* bytes a second of `auto`: judgement, an idle disk's spare */

/* Is a chunk worth completing? More than half of its blocks are own, as in HP-Mapper, and not
 * all. */
bool promote_policy_takes_chunk(unsigned own, unsigned all);

/* One partial file that has something to be done. */
struct promote_policy_file {
	uint64_t id;
	uint64_t missing; /* blocks of the chunks that are to be completed */
	bool ends; /* after that nothing of the lower file can be seen: it leaves the map */
};

/* Order the files: those first that leave the map, and within each group the cheapest first. */
void promote_policy_order(struct promote_policy_file *files, size_t n);

/* Bytes a second: a second's worth may be saved up. rate 0: no limit. */
struct promote_policy_rate {
	uint64_t rate, at_ms;
	int64_t tokens; /* below 0: a debt */
	bool has_begun;
};

/* How long to wait before the next step, 0: go on. */
uint64_t promote_policy_delay_ms(struct promote_policy_rate *r, uint64_t now_ms);
/* Account for this much work; what exceeds the tokens is waited for afterwards. */
void promote_policy_spend(struct promote_policy_rate *r, uint64_t bytes);

/* Has nobody asked for anything for PROMOTE_POLICY_QUIET_MS? requests: a count that grows with
 * each. */
#define PROMOTE_POLICY_QUIET_MS 1000u
struct promote_policy_quiet {
	uint64_t requests, since_ms;
	bool has_begun;
};
bool promote_policy_is_quiet(struct promote_policy_quiet *q, uint64_t requests, uint64_t now_ms);

/* Stall of the last ten seconds, in hundredths of a percent, that the kernel gives ("some", avg10).
 * Above these the machine has better things to do; -1: not known, which is no reason to stop. */
#define PROMOTE_POLICY_MEMORY_STALL_MAX 100
#define PROMOTE_POLICY_IO_STALL_MAX	1000
bool promote_policy_is_pressed(int memory_stall, int io_stall);
