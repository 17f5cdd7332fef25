/* SPDX-License-Identifier: Apache-2.0 */
/* The block cache: windows of 512 KiB of files, mapped read-only and shared by all that reads them.
 * One cache a process, keyed by device, inode number and place in the file, so that readers of
 * the same blocks, through whatever mount and image, shares them. A mapping shows the page cache's
 * own pages: there is no second copy, what the file's system is told to write is seen at once, and
 * the mapped file's inode number is not given to another file.
 *
 * Nobody here or above ever loads from a window: a file that is cut would raise SIGBUS. Windows are
 * given to the kernel, in writev(2), which answers EFAULT.
 *
 * What of a window is known to be in memory is a hint: the kernel takes pages back as it pleases,
 * and a thread that sends them then waits for them. Order of eviction: cache_policy.h. */
#pragma once

#include "veneer/base/types.h"

#include <sys/stat.h>

#define MMAP_CACHE_BYTES CHUNK_BYTES

struct mmap_cache;

/* A file as it is now; nothing of it is kept but the mapping. */
struct mmap_cache_file {
	int fd; /* open for reading, during the call */
	struct stat st; /* of fd, just asked for: nothing past st_size may be pinned */
	const void *owner; /* for mmap_cache_forget */
};

/* A pinned piece of a window. */
struct mmap_cache_part {
	struct mmap_cache *w;
	void *p; /* never to be loaded from */
	size_t len;
	int result; /* out of mmap_cache_fill */
};

/* Pin the window that off is in, mapped if need be: *ret is [off, off + ret->len), at most len
 * bytes, all of them below st_size. May unmap others, reads nothing. 0, or -errno for "read it by
 * other means": -EOPNOTSUPP (this file system, kernel or budget has no windows), -EBUSY (the budget
 * is pinned), -ENOMEM. Undo by mmap_cache_unpin(ret->w). */
int mmap_cache_pin(const struct mmap_cache_file *f, uint64_t off, size_t len,
		   struct mmap_cache_part *ret);
void mmap_cache_unpin(struct mmap_cache *w);

/* May files of the file system that fd is on be mapped? Asks it, which takes time where it is a
 * remote one. */
bool mmap_cache_serves(int fd);

/* Have the pages of n pinned parts read in, each by one thread only: a second thread waits for the
 * first. What is missing is submitted together. Sets result of each part: 0, or -errno (read it by
 * other means, which tells why). */
void mmap_cache_fill(struct mmap_cache_part *parts, size_t n);

/* A pinned window turned out to be bad: it is not given out again. */
void mmap_cache_drop(struct mmap_cache *w);
/* Unmap what was mapped for this owner, as soon as it is unpinned, so that the file system can
 * go. */
void mmap_cache_forget(const void *owner);

/* Bytes that may be mapped; never exceeded, but by what is pinned when the budget sinks. 0: none.
 * The default is an eighth of memory, at most 1 GiB: mapped pages count in what the kernel weighs
 * when it looks for a process to kill. */
void mmap_cache_set_budget(size_t bytes);
/* Unmap at least this share of what is mapped, the coldest first, pinned windows excepted. Half of
 * it goes by itself where programs wait for memory. */
void mmap_cache_shrink(unsigned percent);

struct mmap_cache_usage {
	size_t bytes, count, budget;
};
void mmap_cache_usage(struct mmap_cache_usage *ret);
