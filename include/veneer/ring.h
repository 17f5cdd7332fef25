/* SPDX-License-Identifier: Apache-2.0 */
/* Several reads at once: io_uring, or preads where there is none. Owns one ring per thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ring_read {
	int fd;
	void *dst;
	uint32_t len;
	off_t off;
	int32_t result; /* out: bytes read (short only at end of file) or -errno */
};

/* Do all n reads, submitted together, and wait for them; short reads are continued. Always fills
 * every result. One read, or a thread that could get no ring, is served by pread. */
void ring_read_all(struct ring_read *reads, size_t n);
