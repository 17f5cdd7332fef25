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
	PROMOTE_POLICY_EAGER, /* at once and without a limit, also under load */
	PROMOTE_POLICY_WRITTEN, /* files that are written again and again, while they are: at most
				   so many bytes a second and a mount */
};

#define PROMOTE_POLICY_RATE_DEFAULT \
	((uint64_t)32 << 20) /* bytes a second of `auto`: judgement, an idle disk's spare */

#define PROMOTE_POLICY_WRITTEN_RATE ((uint64_t)128 << 20) /* bytes a second of `written` */
#define PROMOTE_POLICY_WRITTEN_MAX  ((uint64_t)1 << 30) /* bytes a mount, by default */
/* A file that had so many writes is written again and again: 16 MiB by 4 KiB, 0.1 to 0.6 s. */
#define PROMOTE_POLICY_WRITES 4096u
/* A file system with less than this part of it free takes nothing more of `written`. */
#define PROMOTE_POLICY_FREE_PART 10

/* Is a chunk worth completing? More than half of its blocks are own, as in HP-Mapper, and not
 * all. */
bool promote_policy_takes_chunk(unsigned own, unsigned all);
/* Of these, those come first that were written most: of which most is own. In which of the passes
 * over a file a chunk is completed at the latest; 0 to PROMOTE_POLICY_PASSES - 1. */
#define PROMOTE_POLICY_PASSES 4u
unsigned promote_policy_pass(unsigned own, unsigned all);

/* One partial file that has something to be done. */
struct promote_policy_file {
	uint64_t id;
	uint64_t missing; /* blocks of the chunks that are to be completed */
	uint32_t writes; /* as inode_writes; only PROMOTE_POLICY_WRITTEN asks for them */
	bool ends; /* after that nothing of the lower file can be seen: it leaves the map */
};

/* Order the files: the most written first, then the ones that leave the map, and within each group
 * the cheapest first. */
void promote_policy_order(struct promote_policy_file *files, size_t n);

/* Bytes a second: a second's worth may be saved up. rate 0: no limit. */
struct promote_policy_rate {
	uint64_t rate, at_ms;
	int64_t tokens; /* below 0: a debt */
	bool has_begun;
};

/* How long to wait before the next step, 0: go on. */
uint64_t promote_policy_delay_ms(struct promote_policy_rate *r, uint64_t now_ms);
/* Account for this much work; the caller waits afterwards for the excess over the tokens. */
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
/* A file that is written again and again makes its writer wait for the disk: 10 to 16 percent while
 * fio writes 256 MiB at random, more where each write is synced. */
#define PROMOTE_POLICY_IO_STALL_MAX_WRITTEN 6000
bool promote_policy_is_pressed(enum promote_policy_mode mode, int memory_stall, int io_stall);
