/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a regular file of a mount from all layers that hold its bytes. */
#pragma once

#include "veneer/union/inode.h"

/* Read up to len bytes at off; short only at end of file. Takes i->lock for reading. Bytes or
 * -errno (-EIO for a damaged file, never zeros). */
ssize_t read_file(struct union_fs *t, struct inode *i, void *p, size_t len, off_t off);
/* Read exactly [off, off + len) of src. Past the end of a file is -EIO. Takes no lock. */
int read_source(struct source *src, void *p, size_t len, uint64_t off);
/* SEEK_DATA or SEEK_HOLE in the first size bytes of src. Position or -errno, -ENXIO as of lseek(2).
 * Takes no lock. */
off_t read_source_seek(struct source *src, off_t off, off_t size, int whence);
/* SEEK_DATA or SEEK_HOLE in a file of the mount. New position or -errno (-ENXIO past the end). */
off_t read_seek(struct union_fs *t, struct inode *i, off_t off, int whence);
/* The current size of a regular file. Takes no lock. */
int read_size(struct union_fs *t, struct inode *i, off_t *ret);
/* The topmost source of a regular file's bytes, upper or lower. -EIO for a damaged file; -errno.
 * The caller holds i->lock for reading, or has_upper cannot change. */
int read_top(struct union_fs *t, struct inode *i, struct source **ret);
