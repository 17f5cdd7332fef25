/* SPDX-License-Identifier: Apache-2.0 */
/* Several reads at once: by io_uring, or one after the other without it. Owns one ring per
 * thread. */
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

/* A page-aligned part of a file's mapping, at most 1 MiB of 4 KiB pages. */
struct ring_area {
	void *addr;
	size_t len;
	int result; /* out: 0 or -errno (-EFAULT: unreadable, -EINVAL: before Linux 5.14) */
};

/* Read in and map all n areas, and wait for it; areas that need I/O are submitted together. Always
 * fills every result, never raises a signal. */
void ring_populate_all(struct ring_area *areas, size_t n);
