// SPDX-License-Identifier: Apache-2.0
#include "checkmap.h"

#include "../map/journal.h"
#include "../map/mapfile-internal.h"
#include "../map/snapshot.h"

#include "veneer/cleanup.h"
#include "veneer/file.h"
#include "veneer/path.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define TRIES 3

static int damaged(struct checkmap *c, uint64_t off, const char *rule)
{
	*c = (struct checkmap){ .rule = rule, .off = off, .is_damaged = true };
	return -EUCLEAN;
}

/* 1: some byte of [off, end) is not zero; holes cost nothing. */
static int has_bytes(int fd, uint64_t off, uint64_t end)
{
	_cleanup_(freep) uint8_t *bytes = malloc(JOURNAL_WINDOW_BYTES);

	if (!bytes)
		return -ENOMEM;
	while (off < end) {
		off_t data = lseek(fd, (off_t)off, SEEK_DATA);
		ssize_t n;

		if (data < 0)
			return errno == ENXIO ? 0 : -errno;
		off = (uint64_t)data;
		if (off >= end)
			return 0;
		n = file_pread(fd, bytes, end - off < JOURNAL_WINDOW_BYTES ? end - off : JOURNAL_WINDOW_BYTES, data);
		if (n <= 0)
			return (int)n;
		for (ssize_t k = 0; k < n; k++)
			if (bytes[k])
				return 1;
		off += (uint64_t)n;
	}
	return 0;
}

/* The log ends at rd->off. Nobody was ever told that what is behind it is there. */
static int cut(struct checkmap *c, int fd)
{
	if (ftruncate(fd, (off_t)c->off) < 0 || fdatasync(fd) < 0)
		return -errno;
	c->is_repaired = true;
	c->is_damaged = false;
	return 0;
}

/* The log has been read to its end, at rd->off. 1: look again. */
static int check_end(struct checkmap *c, const struct journal_reader *rd, const struct table *t, bool repairs,
		     bool is_last)
{
	const char *why;
	struct stat st;
	int r = t->in_session ? mapload_is_of_this_boot(t) : 1;

	/* After a power cut anything may stand there. */
	if (r <= 0)
		return r;
	if (fstat(rd->fd, &st) < 0)
		return -errno;
	r = journal_reader_rest(rd, &why);
	if (r > 0) {
		r = has_bytes(rd->fd, rd->off + JOURNAL_TORN_BYTES, (uint64_t)st.st_size);
		damaged(c, rd->off, why);
	} else if (r == 0) {
		r = has_bytes(rd->fd, rd->off, (uint64_t)st.st_size);
		if (r <= 0)
			return r;
		*c = (struct checkmap){ .off = rd->off, .rule = "a torn record at the end of the log, which readers pass over" };
		r = 0;
	}
	if (r < 0)
		return r;
	/* A live writer may be adding records. */
	if (!is_last) {
		*c = (struct checkmap){ .rule = NULL };
		return 1;
	}
	return r == 0 && repairs ? cut(c, rd->fd) : 0;
}

static int read_records(struct checkmap *c, struct journal_reader *rd, struct table *t)
{
	for (;;) {
		struct record rec;
		const char *why = NULL;
		uint64_t off = rd->off;
		int r = journal_reader_next(rd, &rec);

		if (r == -EUCLEAN)
			return damaged(c, off, rd->why);
		if (r <= 0)
			return r;
		if (rec.type != FORMAT_REC_OPEN && !t->in_session)
			return damaged(c, off, "change outside a session");
		r = table_apply(t, &rec, &why);
		if (r < 0)
			return r == -EUCLEAN ? damaged(c, off, why) : r;
	}
}

static int check_log(struct checkmap *c, int fd, const struct format_map_header *h, struct table *t, bool repairs)
{
	struct journal_reader rd;
	int r = journal_reader_init(&rd, fd, sizeof(*h) + h->snapshot_len, UINT64_MAX, h->checksum);

	for (int attempt = 0; r == 0; attempt++) {
		r = read_records(c, &rd, t);
		r = r ?: check_end(c, &rd, t, repairs, attempt == TRIES);
		if (r <= 0)
			break;
		r = 0;
	}
	journal_reader_release(&rd);
	return r;
}

int checkmap_read(int rootfd, bool repairs, struct checkmap *ret)
{
	_cleanup_(closep) int fd = -1;
	struct format_map_header h;
	struct snapshot_damage bad;
	struct checkmap c = { .rule = NULL };
	struct table t;
	struct stat st;
	int r;

	*ret = c;
	if (fstatat(rootfd, MAPFILE_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISREG(st.st_mode)) {
		damaged(ret, 0, "not a regular file");
		return 0;
	}
	fd = path_open(rootfd, MAPFILE_NAME, (repairs ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK, 0);
	if (fd < 0)
		return fd;
	table_init(&t);
	r = snapshot_load(fd, &t, &h, &bad);
	if (r == -EUCLEAN)
		damaged(&c, bad.off, bad.rule);
	else if (r == 0)
		r = check_log(&c, fd, &h, &t, repairs);
	table_release(&t);
	if (r < 0 && r != -EUCLEAN)
		return r;
	*ret = c;
	return 0;
}
