// SPDX-License-Identifier: Apache-2.0
#include "check_refill.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/minmax.h"
#include "veneer/data/read.h"
#include "veneer/layer/map_recover.h"
#include "veneer/layer/xattr_trust.h"
#include "veneer/sys/file.h"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define PIECE_BYTES (1u << 20)
#define CAPABILITY  "security.capability"

struct refill {
	int fd;
	struct source *low;
	uint64_t size; /* limit of the lower file's data */
	blk_t next; /* all blocks before this one are done */
	uint64_t bytes; /* copied in so far */
	char *buf;
};

static int fill_to(struct refill *f, uint64_t end)
{
	int r = 0;

	for (uint64_t off = f->next << BLK_SHIFT; r == 0 && off < end;) {
		const size_t n = end - off < PIECE_BYTES ? (size_t)(end - off) : PIECE_BYTES;

		r = read_source(f->low, f->buf, n, off);
		r = r ?: file_pwrite(f->fd, f->buf, n, (off_t)off);
		f->bytes += r == 0 ? n : 0;
		off += n;
	}
	return r;
}

/* Runs of blocks with data come in ascending order; the gaps between them are filled from the lower
 * file. */
static int fill_before(void *arg, blk_t blk, blk_t n)
{
	struct refill *f = arg;
	const uint64_t off = blk << BLK_SHIFT;
	int r = fill_to(f, MIN(off, f->size));

	f->next = blk + n;
	return r;
}

/* Writing clears the capability of a file and may clear its set-id bits. Another writer may have
 * written meanwhile and cleared them rightly, so restore them only if there can be none. */
static int put_back(int fd, const struct stat *st, const char *capability, ssize_t len)
{
	const bool has_one_writer = st->st_uid == geteuid() && !(st->st_mode & (S_IWGRP | S_IWOTH));

	if (has_one_writer && len > 0 && fsetxattr(fd, CAPABILITY, capability, (size_t)len, 0) < 0)
		return -errno;
	if (has_one_writer && fchmod(fd, st->st_mode & 07777) < 0)
		return -errno;
	return futimens(fd, (struct timespec[]){ st->st_atim, st->st_mtim }) < 0 ||
			       fdatasync(fd) < 0
		       ? -errno
		       : 0;
}

int check_refill_from_lower(int fd, struct source *low, uint64_t lower_size, uint64_t *ret_bytes)
{
	_cleanup_(freep) char *buf = malloc(PIECE_BYTES);
	struct refill f = { .fd = fd, .low = low, .buf = buf };
	char capability[64];
	ssize_t len;
	struct stat st;
	uint64_t size;
	int r;

	if (!buf)
		return -ENOMEM;
	if (fstat(fd, &st) < 0)
		return -errno;
	len = fgetxattr(fd, CAPABILITY, capability, sizeof(capability));
	f.size = (uint64_t)st.st_size < lower_size ? (uint64_t)st.st_size : lower_size;
	r = map_recover_contents(fd, fill_before, &f, &size);
	r = r ?: fill_to(&f, f.size);
	r = r ?: put_back(fd, &st, capability, len);
	*ret_bytes = f.bytes;
	return r ?: xattr_trust_unmark(fd);
}
