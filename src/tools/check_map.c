// SPDX-License-Identifier: Apache-2.0
#include "check_map.h"

#include "veneer/base/cleanup.h"
#include "veneer/map/journal_end.h"
#include "veneer/map/mapfile.h"
#include "veneer/map/session_epoch.h"
#include "veneer/map/snapshot.h"
#include "veneer/sys/file.h"
#include "veneer/sys/path.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define TRIES 8

static int damaged(struct check_map *c, uint64_t off, const char *rule)
{
	*c = (struct check_map){ .rule = rule, .off = off, .is_damaged = true };
	return -EUCLEAN;
}

/* Cut the log at its end, rd->off. The bytes after it were never acknowledged. */
static int cut(struct check_map *c, int fd)
{
	if (ftruncate(fd, (off_t)c->off) < 0 || fdatasync(fd) < 0)
		return -errno;
	c->is_repaired = true;
	c->is_damaged = false;
	return 0;
}

/* Check the end of the log, at rd->off. 1: look again. */
static int check_end(struct check_map *c, struct journal_reader *rd, const struct table *t,
		     const struct format_map_header *h, bool repairs, bool is_last)
{
	const char *why;
	int end = journal_end_check(rd, t, h, &why), r;

	/* After a power cut any bytes may follow the end. */
	r = end < 0 ? end : t->in_session ? session_epoch_is_of(t) : 1;
	if (r < 0 || (r == 0 && end == 0))
		return r;
	r = journal_reader_stray_bytes(
		rd->fd, end == JOURNAL_TOO_LONG ? rd->off + JOURNAL_TORN_BYTES : rd->off);
	if (r < 0 || (r == 0 && end == 0))
		return r;
	if (end > 0)
		damaged(c, rd->off, why);
	else
		*c = (struct check_map){
			.off = rd->off,
			.rule = "a torn record at the end of the log, which readers pass over"
		};
	/* A live writer may be adding records. */
	if (!is_last) {
		*c = (struct check_map){ .rule = NULL };
		return 1;
	}
	return repairs && (end == 0 || (end == JOURNAL_TOO_LONG && r == 0)) ? cut(c, rd->fd) : 0;
}

static int read_records(struct check_map *c, struct journal_reader *rd, struct table *t)
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

static int check_log(struct check_map *c, int fd, const struct format_map_header *h,
		     struct table *t, bool repairs)
{
	struct journal_reader rd;
	int r = journal_reader_init(&rd, fd, sizeof(*h) + h->snapshot_len, UINT64_MAX, h->checksum);

	for (int attempt = 0; r == 0; attempt++) {
		r = read_records(c, &rd, t);
		r = r ?: check_end(c, &rd, t, h, repairs, attempt == TRIES);
		if (r <= 0)
			break;
		r = 0;
	}
	journal_reader_release(&rd);
	return r;
}

int check_map_read(int rootfd, bool repairs, struct check_map *ret)
{
	_cleanup_(closep) int fd = -1;
	struct format_map_header h;
	struct snapshot_damage bad;
	struct check_map c = { .rule = NULL };
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
	fd = path_open(rootfd, MAPFILE_NAME,
		       (repairs ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK, 0);
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
