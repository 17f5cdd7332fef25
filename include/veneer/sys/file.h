/* SPDX-License-Identifier: Apache-2.0 */
/* Full reads and writes, ranges, clones, extents, and stores into mapped files that cannot kill. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Read len bytes; retries EINTR and short reads. Bytes read (short only at end of file) or
 * -errno. */
ssize_t file_pread(int fd, void *p, size_t len, off_t off);
/* Read a file of /proc or the like, which says all at once, as text: ends with a NUL, also on
 * failure, and is cut where size ends. Bytes read or -errno. */
ssize_t file_read_text(const char *path, char *text, size_t size);
/* Write all; 0 or -errno (then an unknown part is written). iov is modified. */
int file_pwrite(int fd, const void *p, size_t len, off_t off);
int file_pwritev(int fd, struct iovec *iov, int niov, off_t off);
/* Have the file's bytes on their way to the disk before anything that the file system's journal is
 * given from now on, without waiting for the journal, and without any promise. 0 or -errno. */
int file_write_out(int fd);
/* Clone [off, off + len) of one file to the same place of another. 0 or -errno (-EOPNOTSUPP: never
 * there; -EXDEV, -EINVAL: not these two, or not this range). */
int file_clone_range(int from, int to, off_t off, size_t len);

/* Call fn(arg, off, len, is_unwritten) for every allocated extent of [0, size), ascending, from
 * FIEMAP with FIEMAP_FLAG_SYNC. 0, -errno (-EOPNOTSUPP where the file system has none), or the
 * first non-zero result of fn. */
typedef int file_extent_fn(void *arg, uint64_t off, uint64_t len, bool is_unwritten);
int file_extents(int fd, uint64_t size, file_extent_fn *fn, void *arg);
/* How many bytes of [off, off + len) have room on the disk, or are to get it: without waiting for
 * either. 0 or -errno, as above. */
int file_allocated(int fd, uint64_t off, uint64_t len, uint64_t *ret);

/* Would so many bytes more leave a part-th of the file system that fd is on free? 0, -ENOSPC or
 * -errno. */
int file_leaves_room(int fd, unsigned part, uint64_t bytes);

/* Copy into, or out of, a MAP_SHARED mapping: a bad page (disk full, I/O error, file cut short)
 * is -EIO instead of a SIGBUS that ends the server. file_guard_init installs the handler once per
 * process; other SIGBUS senders keep their old disposition. */
int file_guard_init(void);
int file_map_store(void *dst, const void *src, size_t len);
/* Eight bytes at a multiple of eight, after all that was stored before, for readers of the file
 * meanwhile. */
int file_map_store_last(void *dst, const void *src);

/* The process that took the lock (flock, exclusive) that is held of the file of fd, or 0: nobody,
 * or one that cannot be seen from here. A file system with device numbers of its own (btrfs) hides
 * it. */
pid_t file_flock_holder(int fd);
