/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a regular file of a mount, whichever layers its bytes are in. */
#pragma once

#include "veneer/union/inode.h"

/* Read up to len bytes at off; short only at end of file. Takes i->lock for reading. Bytes or
 * -errno (-EIO for a damaged file; never zeros in its place). */
ssize_t read_file(struct union_fs *t, struct inode *i, void *p, size_t len, off_t off);
/* Exactly [off, off + len) of what src shows, which must not go past its end: -EIO. Takes no
 * lock. */
int read_source(struct source *src, void *p, size_t len, uint64_t off);
/* SEEK_DATA or SEEK_HOLE in the first size bytes of what src shows. Takes no lock. */
off_t read_source_seek(struct source *src, off_t off, off_t size, int whence);
/* SEEK_DATA or SEEK_HOLE. New position or -errno (-ENXIO past the end). */
off_t read_seek(struct union_fs *t, struct inode *i, off_t off, int whence);
/* How long a regular file is now. Takes no lock. */
int read_size(struct union_fs *t, struct inode *i, off_t *ret);
/* The source of a regular file's bytes, upper or lower. i->lock is held for reading, or has_upper
 * cannot change. */
int read_top(struct union_fs *t, struct inode *i, struct source **ret);
