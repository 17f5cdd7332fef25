/* SPDX-License-Identifier: Apache-2.0 */
/* Several reads at once: io_uring, or one after the other where there is none. Owns one ring per
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

/* Part of a mapping of a file, from a page's start, at most 1 MiB of 4 KiB pages. */
struct ring_area {
	void *addr;
	size_t len;
	int result; /* out: 0 or -errno (-EFAULT: not to be had, -EINVAL: the kernel is older
		       than 5.14) */
};

/* Have all n areas read in and mapped, and wait for it: those that take I/O are submitted together.
 * Always fills every result, never raises a signal. */
void ring_populate_all(struct ring_area *areas, size_t n);
