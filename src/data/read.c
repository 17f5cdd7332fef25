// SPDX-License-Identifier: Apache-2.0
#include "veneer/data/read.h"

#include "read_batch.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/base/minmax.h"
#include "veneer/sys/file.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/upper.h"

#include <fcntl.h>
#include <string.h>

int read_top(struct union_fs *t, struct inode *i, struct source **ret)
{
	if (i->has_upper) {
		*ret = &i->src;
		return i->is_damaged ? -EIO : 0;
	}
	return image_source(t->image, i->lower, ret);
}

int read_batch_add(struct read_batch *b, const struct run *run, void *dst)
{
	int fd;

	if (!run->src) {
		memset(dst, 0, run->len);
		return 0;
	}
	fd = source_pin(run->src);
	if (fd < 0)
		return fd;
	b->srcs[b->n] = run->src;
	b->reads[b->n++] = (struct ring_read){
		.fd = fd, .dst = dst, .len = (uint32_t)run->len, .off = (off_t)run->off
	};
	return b->n == READ_BATCH ? read_batch_finish(b) : 0;
}

/* No read goes past a file's end: a file that ends early was truncated under the mount. */
int read_batch_finish(struct read_batch *b)
{
	int r = 0;

	ring_read_all(b->reads, b->n);
	for (size_t i = 0; i < b->n; i++) {
		struct ring_read *rd = &b->reads[i];

		fd_cache_unpin(&b->srcs[i]->fd);
		if (rd->result < 0)
			r = rd->result;
		else if ((uint32_t)rd->result < rd->len)
			r = -EIO;
	}
	b->n = 0;
	return r;
}

void read_batch_abandon(struct read_batch *b)
{
	for (size_t i = 0; i < b->n; i++)
		fd_cache_unpin(&b->srcs[i]->fd);
	b->n = 0;
}

int read_source(struct source *src, void *p, size_t len, uint64_t off)
{
	struct read_batch b = { .n = 0 };
	char *dst = p;
	int r = 0;

	while (len && r == 0) {
		struct run run;

		r = run_find(src, off, len, &run);
		if (r < 0)
			break;
		r = read_batch_add(&b, &run, dst);
		dst += run.len;
		off += run.len;
		len -= run.len;
	}
	if (r == 0)
		r = read_batch_finish(&b);
	read_batch_abandon(&b);
	return r == -EUCLEAN ? -EIO : r;
}

int read_size(struct union_fs *t, struct inode *i, off_t *ret)
{
	struct stat st;
	int r = i->has_upper ? upper_stat(t, i, &st) : image_stat(t->image, i->lower, &st);

	if (r == 0)
		*ret = st.st_size;
	return r;
}

ssize_t read_file(struct union_fs *t, struct inode *i, void *p, size_t len, off_t off)
{
	struct source *top;
	off_t size;
	int r;

	RDLOCK_SCOPE(&i->lock);
	r = read_top(t, i, &top);
	if (r < 0)
		return r == -EUCLEAN ? -EIO : r;
	if (source_is_plain(top)) {
		int fd = i->has_upper ? upper_pin(t, i) : source_pin(top);
		ssize_t n;

		if (fd < 0)
			return fd;
		n = file_pread(fd, p, len, off);
		fd_cache_unpin(&top->fd);
		return n;
	}
	r = read_size(t, i, &size);
	if (r < 0)
		return r;
	if (off >= size)
		return 0;
	if (len > (size_t)(size - off))
		len = (size_t)(size - off);
	if (i->has_upper) {
		/* Pin the descriptor for read_source, which does not know inodes. */
		r = upper_pin(t, i);
		if (r < 0)
			return r;
	}
	r = read_source(top, p, len, (uint64_t)off);
	if (i->has_upper)
		fd_cache_unpin(&i->src.fd);
	return r < 0 ? r : (ssize_t)len;
}

/* Seek inside one run: the file of that layer knows its holes. */
static off_t seek_in_run(const struct run *run, int whence)
{
	off_t end = (off_t)(run->off + run->len), pos;
	int fd;

	if (!run->src)
		return whence == SEEK_HOLE ? (off_t)run->off : end;
	fd = source_pin(run->src);
	if (fd < 0)
		return fd;
	pos = lseek(fd, (off_t)run->off, whence);
	if (pos < 0)
		pos = errno == ENXIO ? (whence == SEEK_HOLE ? (off_t)run->off : end) : -errno;
	fd_cache_unpin(&run->src->fd);
	return MIN(pos, end);
}

off_t read_source_seek(struct source *src, off_t off, off_t size, int whence)
{
	uint64_t pos = (uint64_t)off;

	if (off < 0 || off >= size)
		return -ENXIO;
	while (pos < (uint64_t)size) {
		struct run run;
		off_t found = run_find(src, pos, (uint64_t)size - pos, &run);

		if (found == 0)
			found = seek_in_run(&run, whence);
		if (found < 0)
			return found == -EUCLEAN ? -EIO : found;
		if ((uint64_t)found < run.off + run.len)
			return found;
		pos = run.off + run.len;
	}
	return whence == SEEK_HOLE ? size : -ENXIO;
}

off_t read_seek(struct union_fs *t, struct inode *i, off_t off, int whence)
{
	struct source *top;
	off_t size, pos;
	int r;

	RDLOCK_SCOPE(&i->lock);
	r = read_top(t, i, &top);
	if (r == 0)
		r = read_size(t, i, &size);
	if (r == 0 && i->has_upper)
		r = upper_pin(t, i);
	if (r < 0)
		return r == -EUCLEAN ? -EIO : r;
	pos = read_source_seek(top, off, size, whence);
	if (i->has_upper)
		fd_cache_unpin(&i->src.fd);
	return pos;
}
