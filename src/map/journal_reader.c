// SPDX-License-Identifier: Apache-2.0
#include "veneer/map/journal_reader.h"

#include "veneer/base/cleanup.h"
#include "veneer/sys/file.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of more nobody asks whether it is zeros: 256 MiB. */
#define STRAY_WINDOWS_MAX 4096u

int journal_reader_init(struct journal_reader *r, int fd, uint64_t off, uint64_t end, uint64_t sum)
{
	*r = (struct journal_reader){ .fd = fd, .off = off, .end = end, .sum = sum, .why = "" };
	r->win = malloc(JOURNAL_WINDOW_BYTES);
	return r->win ? 0 : -ENOMEM;
}

void journal_reader_release(struct journal_reader *r)
{
	free(r->win);
	r->win = NULL;
}

/* Have the window start at r->off and hold a whole record, if the file does. */
static int fill(struct journal_reader *r)
{
	uint64_t have_end = r->win_off + r->win_len;

	if (r->off >= r->win_off && r->off <= have_end && have_end - r->off >= FORMAT_REC_BYTES_MAX)
		return 0;

	uint64_t left = r->end > r->off ? r->end - r->off : 0;
	size_t want = left < JOURNAL_WINDOW_BYTES ? (size_t)left : JOURNAL_WINDOW_BYTES;
	ssize_t n = want && r->off <= INT64_MAX - want
			    ? file_pread(r->fd, r->win, want, (off_t)r->off)
			    : 0;

	if (n < 0)
		return (int)n;
	r->win_off = r->off;
	r->win_len = (size_t)n;
	return 0;
}

static int decode(struct journal_reader *r, struct record *ret_rec)
{
	int n = fill(r);

	if (n < 0)
		return n;

	size_t at = (size_t)(r->off - r->win_off);

	return record_decode(r->win + at, r->win_len - at, r->sum, ret_rec, &r->sum, &r->why);
}

int journal_reader_next(struct journal_reader *r, struct record *ret_rec)
{
	bool is_stale = r->win_off != r->off;
	int n = decode(r, ret_rec);

	/* Another process may be appending: the window can be older than the file. */
	if (n == 0) {
		r->win_len = 0;
		if (is_stale)
			n = decode(r, ret_rec);
	}
	if (n == 0)
		r->win_len = 0;
	if (n <= 0)
		return n;
	r->off += (uint64_t)n;
	return 1;
}

int journal_reader_mend(struct journal_reader *r, struct record *ret_rec)
{
	static const uint8_t nothing[2 * sizeof(uint64_t)];
	int n = fill(r);

	if (n < 0)
		return n;

	const size_t at = (size_t)(r->off - r->win_off), len = r->win_len - at;

	/* The usual end of a log. */
	n = 0;
	if (len >= sizeof(nothing) && memcmp(r->win + at, nothing, sizeof(nothing)) != 0)
		n = record_mend(r->win + at, len, r->sum, ret_rec, &r->sum);
	if (n == 0)
		r->win_len = 0;
	r->off += (uint64_t)n;
	return n > 0;
}

int journal_reader_resync(struct journal_reader *r)
{
	for (;;) {
		uint64_t sum, ignored;
		struct record rec;
		const char *why;
		int n = fill(r);
		size_t at = (size_t)(r->off - r->win_off);

		if (n < 0 || r->win_len < at + sizeof(sum))
			return n < 0 ? n : 0;
		memcpy(&sum, r->win + at, sizeof(sum));
		r->off += sizeof(sum);
		n = fill(r);
		if (n < 0)
			return n;
		at = (size_t)(r->off - r->win_off);
		r->sum = le64toh(sum);
		if (record_decode(r->win + at, r->win_len - at, r->sum, &rec, &ignored, &why) > 0)
			return 1;
	}
}

int journal_reader_stray_bytes(int fd, uint64_t off)
{
	_cleanup_(freep) uint8_t *bytes = malloc(JOURNAL_WINDOW_BYTES);
	unsigned nread = 0;
	int nbad = 0;
	off_t data;

	if (!bytes)
		return -ENOMEM;
	/* A file may claim any length: holes cost nothing. */
	while (off <= INT64_MAX && (data = lseek(fd, (off_t)off, SEEK_DATA)) >= 0) {
		ssize_t n = file_pread(fd, bytes, JOURNAL_WINDOW_BYTES, data);

		if (n <= 0)
			return n < 0 ? (int)n : nbad;
		for (ssize_t i = 0; i < n; i++)
			if (bytes[i] && ++nbad > 1)
				return nbad;
		if (++nread > STRAY_WINDOWS_MAX)
			return 2;
		off = (uint64_t)(data + n);
	}
	return off > INT64_MAX || errno == ENXIO ? nbad : -errno;
}

/* Records follow one that is none: no killed writer leaves that, however short they are. 1, 0 or
 * -errno. */
static int resumes(int fd, uint64_t off)
{
	struct journal_reader at;
	int r = journal_reader_init(&at, fd, off, off + JOURNAL_TORN_BYTES + FORMAT_REC_BYTES_MAX,
				    0);

	r = r ?: journal_reader_resync(&at);
	journal_reader_release(&at);
	return r;
}

int journal_reader_rest(const struct journal_reader *r, const char **ret_why)
{
	struct stat st;

	if (fstat(r->fd, &st) < 0)
		return -errno;
	*ret_why = "longer than its records account for";
	if ((uint64_t)st.st_size > r->off + JOURNAL_SLACK_BYTES)
		return JOURNAL_TOO_LONG;
	*ret_why = "a bad record before good ones";

	int n = resumes(r->fd, r->off);

	return n < 0 ? n : n ? 2 : journal_reader_stray_bytes(r->fd, r->off + JOURNAL_TORN_BYTES);
}
