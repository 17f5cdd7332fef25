/* SPDX-License-Identifier: Apache-2.0 */
/* Is a file read at random, again and again? A jump is a small read that does not begin where the
 * one before ended. Pure, without lock: of two readers at once a jump may be lost or made up. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Larger reads gain little from a page cache, beside their copying. */
#define READ_PATTERN_SMALL_BYTES (16 * 1024)
/* As many as cost about 5 ms in requests, 18 us each. */
#define READ_PATTERN_JUMPS 256

/* Zero-initialised: nothing was read. */
struct read_pattern {
	_Atomic uint64_t end; /* of the last read */
	_Atomic uint32_t jumps;
};

void read_pattern_note(struct read_pattern *p, uint64_t off, size_t len);
bool read_pattern_is_random(const struct read_pattern *p);
