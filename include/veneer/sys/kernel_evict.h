/* SPDX-License-Identifier: Apache-2.0 */
/* Have the kernel drop pages of a FUSE mount. It waits for pages that are being read, so for an
 * answer that another thread of this process may have to give, and nothing can interrupt it. A
 * server that were killed meanwhile would not be dead before the page is there, nobody would follow
 * it, and the page would never come. So a child waits that shares memory and descriptors, and the
 * thread waits for the child, which a kill ends. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct kernel_evict_range {
	uint64_t node; /* node id */
	uint64_t off, len; /* bytes */
};

/* Drop the pages of n ranges, in order, in the mount of fuse_fd; attributes of the files are asked
 * for again. Mapped pages are unmapped, changed ones written first. What the kernel does not know
 * (any more) is no error. How many were done before an error; -errno: no child can be had.
 * *ret_cpu_ns: what it took. Every signal is blocked in this thread.
 * */
int kernel_evict_ranges(int fuse_fd, const struct kernel_evict_range *ranges, size_t n,
			uint64_t *ret_cpu_ns);

#define KERNEL_EVICT_NODES_MAX 4096u

/* Have the kernel forget nodes of the mount of fuse_fd that nobody uses, with their pages, changed
 * ones written first; it gives their look-ups back. n: at most KERNEL_EVICT_NODES_MAX. How many it
 * was told of; -EINVAL: it does not know how to (before Linux 6.18); -errno. Every signal is
 * blocked in this thread. */
int kernel_evict_nodes(int fuse_fd, const uint64_t *nodes, size_t n);
