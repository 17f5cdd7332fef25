/* SPDX-License-Identifier: Apache-2.0 */
/* The quota of an upper: bytes on the disk and inodes. Stores the last seen size of each file and
 * directory of the upper by inode number, so that the sum stays exact however often an object
 * changes. A thread that is about to take room claims it first, and settles the claim when the true
 * size is known. Whiteouts do not count as inodes (there is at most one per lower name), nor do
 * objects in the work directory.
 *
 * All functions accept NULL: no quota, everything is allowed. Thread-safe; the lock is held over no
 * system call that waits for a disk. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct quota;
struct union_fs;
struct inode;

struct quota_usage {
	uint64_t max_bytes, max_inodes; /* 0: no limit */
	uint64_t bytes, inodes; /* in use; may exceed the limit */
};

/* 0 is no limit. rootfd, of the upper, is borrowed until quota_free. -ENOMEM; -errno. */
int quota_new(int rootfd, uint64_t max_bytes, uint64_t max_inodes, struct quota **ret);
void quota_free(struct quota *q);
/* Count the objects in the upper, which must not change meanwhile. Reads all of its directories. 0
 * or -errno. */
int quota_count(struct quota *q);

/* Reserve room. 0; -ENOSPC: there is not enough, and nothing is reserved. */
int quota_claim(struct quota *q, uint64_t bytes, uint64_t inodes);
/* The same for a range of a file: blocks that are allocated already need no room. *ret: the claimed
 * bytes. */
int quota_claim_range(struct quota *q, int fd, uint64_t off, uint64_t len, uint64_t *ret);
/* Settle a claim after the operation: fd is the upper object as it is now; -1: nothing was made. */
void quota_settle(struct quota *q, int fd, uint64_t bytes, uint64_t inodes);
/* An object of the upper may be new or changed. */
void quota_note(struct quota *q, int fd);
void quota_note_at(struct quota *q, int dirfd, const char *name);
/* The file has blocks past its end because a program asked for them. */
void quota_note_ahead(struct quota *q, int fd);
/* The object is removed, and its inode number not yet reused. */
void quota_gone(struct quota *q, ino_t ino);
/* An inode of the mount that has no user any more is about to be freed. */
void quota_drop(struct union_fs *t, struct inode *i);

/* Limits and usage. False without a quota. */
bool quota_usage(struct quota *q, struct quota_usage *ret);
