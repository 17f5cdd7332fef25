/* SPDX-License-Identifier: Apache-2.0 */
/* Limits in how many mounts the kernel keeps pages of the same part of a lower file (page_dups.h
 * has the rules), as each cached mount has pages of its own. One thread a process, which sleeps
 * without waking up while there are fewer than two mounts, or no duplicates.
 *
 * It drops pages of blocks that no upper has changed. The kernel invalidates them: a page that a
 * program has mapped is unmapped and faulted in anew, and one that was changed through a mapping is
 * written first. Programs and libraries stay while the process lives that was the last to read
 * them. The kernel does not report other mappings and open files. */
#pragma once

#include "veneer/base/page_dups.h"
#include "veneer/union/inode.h"

struct page_dup_limiter_usage {
	struct page_dups_usage copies;
	uint64_t bytes; /* of memory for its tables */
	uint64_t cpu_ns, drop_ns; /* processor time in all; of that, in the kernel to drop pages */
	uint64_t lost; /* replies that were not counted */
	bool is_running; /* there are two mounts */
};

/* Enter a mount; its node ids are those of t. fuse_fd: its /dev/fuse, whose number stays, also if
 * the server dies. wish as page_dups_join. *ret_number: the mount's number in notes. t and fuse_fd
 * are borrowed until page_dup_limiter_leave. 0 or -errno: the mount is not limited. */
int page_dup_limiter_enter(struct union_fs *t, int fuse_fd, uint32_t wish, uint32_t *ret_number);
/* Take the mount out: the thread does not use it when this returns; 0 does nothing. Waits for an
 * invalidation under way, so for READs of that mount: call it while they are answered, or when the
 * mount is gone. */
void page_dup_limiter_leave(uint32_t number);

/* Describe the pages that a reply to READ leaves in the kernel: bytes [off, off + len) of i, which
 * is resolved. False: nothing to note. first: the note about the first of count extents; the others
 * differ by index, and the last by nblk. */
struct page_dup_limiter_note {
	struct page_dups_sent first;
	uint32_t count, last_nblk;
};
bool page_dup_limiter_describe(const struct inode *i, struct union_fs *t, uint64_t off,
			       uint64_t len, struct page_dup_limiter_note *ret);
/* Note it, after the reply; any thread. The inode may be gone. */
void page_dup_limiter_sent(const struct page_dup_limiter_note *n);

void page_dup_limiter_usage(struct page_dup_limiter_usage *ret);
