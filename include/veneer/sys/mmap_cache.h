/* SPDX-License-Identifier: Apache-2.0 */
/* The block cache: windows of 512 KiB of files, mapped read-only. One cache per process, keyed by
 * device, inode number and offset, so that readers of the same blocks share a window, through any
 * mount and image. A mapping shows the page cache's own pages. So there is no second copy, writes
 * to the file are visible at once, and the mapped file's inode number is not reused.
 *
 * No code here or above loads from a window: a file that was truncated would raise SIGBUS. Windows
 * are passed to the kernel, in writev(2), which returns EFAULT.
 *
 * Residency of a window's pages is a hint: the kernel reclaims pages at any time, and a thread that
 * sends them then waits for them. Order of eviction: cache_policy.h. */
#pragma once

#include "veneer/base/types.h"

#include <sys/stat.h>

#define MMAP_CACHE_BYTES CHUNK_BYTES

struct mmap_cache;

/* A file as it is now; only the mapping outlives the call. */
struct mmap_cache_file {
	int fd; /* open for reading, during the call */
	struct stat st; /* of fd, read just now: nothing past st_size may be pinned */
	const void *owner; /* for mmap_cache_forget */
};

/* A pinned piece of a window. */
struct mmap_cache_part {
	struct mmap_cache *w;
	void *p; /* never load from it */
	size_t len;
	int result; /* set by mmap_cache_fill */
};

/* Pin the window that contains off, and map it if necessary. *ret is [off, off + ret->len), at most
 * len bytes, all below st_size. May unmap others; reads nothing. 0, or -errno for "read by other
 * means": -EOPNOTSUPP (this file system, kernel or budget has no windows), -EBUSY (the whole budget
 * is pinned), -ENOMEM. Undo by mmap_cache_unpin(ret->w). */
int mmap_cache_pin(const struct mmap_cache_file *f, uint64_t off, size_t len,
		   struct mmap_cache_part *ret);
void mmap_cache_unpin(struct mmap_cache *w);

/* May files of the file system of fd be mapped? Asks the file system, which takes time if it is
 * remote. */
bool mmap_cache_serves(int fd);

/* Read in the pages of n pinned parts, each by one thread only: a second thread waits for the
 * first. Missing pages are submitted together. Sets result of each part: 0, or -errno: read by
 * other means, which report the error. */
void mmap_cache_fill(struct mmap_cache_part *parts, size_t n);

/* A pinned window proved bad: do not return it again. */
void mmap_cache_drop(struct mmap_cache *w);
/* Unmap all windows of this owner, each as soon as it is unpinned, so that the file system can be
 * unmounted. */
void mmap_cache_forget(const void *owner);

/* Set the limit of mapped bytes, exceeded only by pinned windows when the budget is lowered. 0:
 * none. The default is an eighth of memory, at most 1 GiB: the kernel's choice of a process to kill
 * counts mapped pages. */
void mmap_cache_set_budget(size_t bytes);
/* Unmap at least this share of the mapped bytes, the coldest first, except pinned windows. The
 * cache shrinks itself by half when programs wait for memory. */
void mmap_cache_shrink(unsigned percent);

struct mmap_cache_usage {
	size_t bytes, count, budget;
};
void mmap_cache_usage(struct mmap_cache_usage *ret);
/* invariants.h */
const char *mmap_cache_check_invariants(void);
