/* SPDX-License-Identifier: Apache-2.0 */
/* The quota of an upper: bytes on the disk and inodes. Knows of each file and directory of the
 * upper what it was last seen to take, by inode number, so that the sum is exact whatever is done
 * to it how often; a thread that is about to take room claims it first, and settles when it is
 * known what was really taken. Whiteouts are not counted as inodes (there is at most one for each
 * lower name), nor is what is in the work directory.
 *
 * All functions take a quota that is NULL, which is none and allows everything. Thread-safe; the
 * lock is held over no system call that waits for a disk. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct quota;
struct union_fs;
struct inode;

struct quota_usage {
	uint64_t max_bytes, max_inodes; /* 0: no limit */
	uint64_t bytes, inodes; /* what is taken; may be more than is allowed */
};

/* 0 is no limit. rootfd, of the upper, is borrowed until quota_free. -ENOMEM; -errno. */
int quota_new(int rootfd, uint64_t max_bytes, uint64_t max_inodes, struct quota **ret);
void quota_free(struct quota *q);
/* Count what is in the upper. Nobody changes it meanwhile. Reads all of its directories. 0 or
 * -errno. */
int quota_count(struct quota *q);

/* Have so much room kept. 0; -ENOSPC: there is not so much; keeps nothing then. */
int quota_claim(struct quota *q, uint64_t bytes, uint64_t inodes);
/* The same for data at a place of a file: what has its room there already needs none. *ret is what
 * was claimed. */
int quota_claim_range(struct quota *q, int fd, uint64_t off, uint64_t len, uint64_t *ret);
/* Settle a claim: fd, of the upper, is as it is now. -1: nothing was made. */
void quota_settle(struct quota *q, int fd, uint64_t bytes, uint64_t inodes);
/* An object of the upper is, or may be, new or changed. */
void quota_note(struct quota *q, int fd);
void quota_note_at(struct quota *q, int dirfd, const char *name);
/* The file has room past its end because a program asked for it. */
void quota_note_ahead(struct quota *q, int fd);
/* The object is no more; its number is not yet another one's. */
void quota_gone(struct quota *q, ino_t ino);
/* An inode of the mount that nobody can have any more is about to be freed. */
void quota_drop(struct union_fs *t, struct inode *i);

/* False without a quota. */
bool quota_usage(struct quota *q, struct quota_usage *ret);
