/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the kernel drop pages of a FUSE mount. The kernel waits for pages that are being read,
 * perhaps by another thread of this process, and nothing can interrupt it. A server killed
 * meanwhile would not end before the page is read, and no next server would start to answer the
 * read. So a child that shares memory and descriptors does the waiting. The thread waits for the
 * child, which a kill can interrupt. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct kernel_evict_range {
	uint64_t node; /* node id */
	uint64_t off, len; /* bytes */
};

/* Drop the pages of n ranges, in order, in the mount of fuse_fd; the kernel also asks again for the
 * files' attributes. Mapped pages are unmapped, dirty ones written first. A node that the kernel
 * does not know (any more) is no error. Returns the number of ranges done before an error; -errno:
 * no child could be made. *ret_cpu_ns: the processor time. All signals must be blocked in this
 * thread. */
int kernel_evict_ranges(int fuse_fd, const struct kernel_evict_range *ranges, size_t n,
			uint64_t *ret_cpu_ns);

#define KERNEL_EVICT_NODES_MAX 4096u

/* Make the kernel forget unused nodes of the mount of fuse_fd, with their pages, dirty ones written
 * first; it returns their lookups. n: at most KERNEL_EVICT_NODES_MAX. Returns the number of nodes
 * it was told; -EINVAL: the kernel lacks this (before Linux 6.18); -errno. All signals must be
 * blocked in this thread. */
int kernel_evict_nodes(int fuse_fd, const uint64_t *nodes, size_t n);
