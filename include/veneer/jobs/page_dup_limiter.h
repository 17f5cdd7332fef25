/* SPDX-License-Identifier: Apache-2.0 */
/* The cache manager: limits in how many mounts the kernel keeps pages of the same part of a lower
 * file (page_dups.h has the rules), as each cached mount has pages of its own. One thread a
 * process, which sleeps without waking up while there are fewer than two mounts, or nothing of
 * which there could be too much.
 *
 * What is dropped: pages of blocks that no upper has changed. Dropping is an invalidation by the
 * kernel, so a page that a program has mapped is unmapped and faulted in anew, one that was changed
 * through a mapping is written first. Left alone are programs and libraries as long as the process
 * lives that was the last to read them from us; of other mappings, and of open files, the kernel
 * does not tell. */
#pragma once

#include "veneer/base/page_dups.h"
#include "veneer/union/inode.h"

struct page_dup_limiter_usage {
	struct page_dups_usage copies;
	uint64_t bytes; /* of memory for the account */
	uint64_t cpu_ns, drop_ns; /* of a processor: all that it took; of that, the kernel's
				     dropping of pages */
	uint64_t lost; /* answers that are not in the account */
	bool is_running; /* two mounts take part */
};

/* A mount takes part from now on; its node ids are those of t. fuse_fd: its /dev/fuse, whose number
 * stays what it is, also if the server dies. wish as page_dups_join. *ret_number: what notes about
 * it are to have as mount. Both are borrowed until page_dup_limiter_leave. 0 or -errno: there is no
 * manager. */
int page_dup_limiter_enter(struct union_fs *t, int fuse_fd, uint32_t wish, uint32_t *ret_number);
/* No more, and nothing of it is looked at when this returns; 0 does nothing. Waits for an
 * invalidation under way, so for READs of that mount: to be called while they are answered, or when
 * the mount is gone. */
void page_dup_limiter_leave(uint32_t number);

/* The pages that an answer to READ leaves in the kernel: bytes [off, off + len) of i, which is
 * filled; nothing to note: false. first: the note about the first extent of `*ret_count`; the
 * others differ by index, and the last by nblk. */
struct page_dup_limiter_note {
	struct page_dups_sent first;
	uint32_t count, last_nblk;
};
bool page_dup_limiter_describe(const struct inode *i, struct union_fs *t, uint64_t off,
			       uint64_t len, struct page_dup_limiter_note *ret);
/* ... and note it; any thread. The inode may be gone by then. */
void page_dup_limiter_sent(const struct page_dup_limiter_note *n);

void page_dup_limiter_usage(struct page_dup_limiter_usage *ret);
