/* SPDX-License-Identifier: Apache-2.0 */
/* Full reads and writes, ranges, clones, extents, and stores to mapped files that survive
 * SIGBUS. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Read len bytes; retries EINTR and short reads. Bytes read (short only at end of file) or
 * -errno. */
ssize_t file_pread(int fd, void *p, size_t len, off_t off);
/* Read a file of /proc or the like, which returns its content in one read, as text. text ends with
 * a NUL, also on failure, and is truncated to size. Bytes read or -errno. */
ssize_t file_read_text(const char *path, char *text, size_t size);
/* Write all; 0 or -errno (then an unknown part is written). iov is modified. */
int file_pwrite(int fd, const void *p, size_t len, off_t off);
int file_pwritev(int fd, struct iovec *iov, int niov, off_t off);
/* Start the writeback of the file's bytes and wait for it, so that they precede any later commit of
 * the file system's journal. Waits for no journal, and promises no durability. 0 or -errno. */
int file_write_out(int fd);
/* Clone [off, off + len) of one file to the same offset of another. 0 or -errno (-EOPNOTSUPP: never
 * on this file system; -EXDEV, -EINVAL: not these two files, or not this range). */
int file_clone_range(int from, int to, off_t off, size_t len);

/* Call fn(arg, off, len, is_unwritten) for every allocated extent of [0, size), ascending, from
 * FIEMAP with FIEMAP_FLAG_SYNC. 0, -errno (-EOPNOTSUPP where the file system has none), or the
 * first non-zero result of fn. */
typedef int file_extent_fn(void *arg, uint64_t off, uint64_t len, bool is_unwritten);
int file_extents(int fd, uint64_t size, file_extent_fn *fn, void *arg);
/* The bytes of [off, off + len) with allocated or reserved disk space; waits for neither. 0 or
 * -errno, as above. */
int file_allocated(int fd, uint64_t off, uint64_t len, uint64_t *ret);

/* Does the file system of fd keep 1/part of its space free after `bytes` more? 0, -ENOSPC or
 * -errno. */
int file_leaves_room(int fd, unsigned part, uint64_t bytes);

/* Copy into, or out of, a MAP_SHARED mapping: a bad page (disk full, I/O error, file cut short) is
 * -EIO instead of a SIGBUS that ends the server. file_guard_init installs the handler once per
 * process; other causes of SIGBUS keep their old disposition. */
int file_guard_init(void);
int file_map_store(void *dst, const void *src, size_t len);
/* Store eight bytes at a multiple of eight, after all earlier stores, for concurrent readers of the
 * file. */
int file_map_store_last(void *dst, const void *src);

/* Take the exclusive flock of fd. 0, -EAGAIN (not within that time) or -errno. */
int file_flock_within(int fd, int wait_ms);
/* The process that holds the exclusive flock of the file of fd, or 0: none, or it is not visible
 * here. A file system with its own device numbers (btrfs) hides it. */
pid_t file_flock_holder(int fd);
