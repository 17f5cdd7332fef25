// SPDX-License-Identifier: Apache-2.0
#include "journal.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "veneer/base/cleanup.h"
#include "veneer/sys/file.h"

#define GROW_MIN_BYTES 4096u
#define GROW_MAX_BYTES (1u << 20)
/* Of more nobody asks whether it is zeros: 256 MiB. */
#define STRAY_WINDOWS_MAX 4096u
_Static_assert(JOURNAL_SLACK_BYTES > 2 * GROW_MAX_BYTES + GROW_MIN_BYTES, "slack of our own logs");

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
static int reader_fill(struct journal_reader *r)
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

static int reader_decode(struct journal_reader *r, struct record *ret_rec)
{
	int n = reader_fill(r);

	if (n < 0)
		return n;

	size_t at = (size_t)(r->off - r->win_off);

	return record_decode(r->win + at, r->win_len - at, r->sum, ret_rec, &r->sum, &r->why);
}

int journal_reader_next(struct journal_reader *r, struct record *ret_rec)
{
	bool is_stale = r->win_off != r->off;
	int n = reader_decode(r, ret_rec);

	/* Somebody may be appending: the window can be older than what stands here now. */
	if (n == 0) {
		r->win_len = 0;
		if (is_stale)
			n = reader_decode(r, ret_rec);
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
	int n = reader_fill(r);

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
		int n = reader_fill(r);
		size_t at = (size_t)(r->off - r->win_off);

		if (n < 0 || r->win_len < at + sizeof(sum))
			return n < 0 ? n : 0;
		memcpy(&sum, r->win + at, sizeof(sum));
		r->off += sizeof(sum);
		n = reader_fill(r);
		if (n < 0)
			return n;
		at = (size_t)(r->off - r->win_off);
		r->sum = le64toh(sum);
		if (record_decode(r->win + at, r->win_len - at, r->sum, &rec, &ignored, &why) > 0)
			return 1;
	}
}

int journal_stray_bytes(int fd, uint64_t off)
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

	return n < 0 ? n : n ? 2 : journal_stray_bytes(r->fd, r->off + JOURNAL_TORN_BYTES);
}

static int journal_map(struct journal *j, uint64_t cap)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t map_off = j->tail - j->tail % page;
	void *p = mmap(NULL, cap - map_off, PROT_READ | PROT_WRITE, MAP_SHARED, j->fd,
		       (off_t)map_off);

	if (p == MAP_FAILED)
		return -errno;
	if (j->map)
		munmap(j->map, j->cap - j->map_off);
	j->map = p;
	j->map_off = map_off;
	j->cap = cap;
	return 0;
}

/* Real zeros, not fallocate: an unwritten extent would cost each fdatasync a journal commit. */
static int write_zeros(int fd, uint64_t off, uint64_t end)
{
	static const uint8_t zeros[65536];

	while (off < end) {
		size_t n = end - off < sizeof(zeros) ? (size_t)(end - off) : sizeof(zeros);
		int r = file_pwrite(fd, zeros, n, (off_t)off);

		if (r < 0)
			return r;
		off += n;
	}
	return 0;
}

int journal_reserve(struct journal *j, size_t len)
{
	if (j->cap >= j->tail && j->cap - j->tail >= len)
		return 0;

	uint64_t step = j->cap > j->start ? j->cap - j->start : 0;

	step = step < GROW_MIN_BYTES   ? GROW_MIN_BYTES
	       : step > GROW_MAX_BYTES ? GROW_MAX_BYTES
				       : step;

	uint64_t want = j->tail + len > j->cap + step ? j->tail + len : j->cap + step;
	uint64_t cap = (want + GROW_MIN_BYTES - 1) / GROW_MIN_BYTES * GROW_MIN_BYTES;
	int r = write_zeros(j->fd, j->cap, cap);

	return r < 0 ? r : journal_map(j, cap);
}

int journal_attach(struct journal *j, int fd, uint64_t start, uint64_t tail, uint64_t sum)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;

	uint64_t size = (uint64_t)st.st_size;
	uint64_t far = (tail / GROW_MIN_BYTES + 1) * GROW_MIN_BYTES + GROW_MAX_BYTES;

	/* A file that claims to be huge must not cost us the address space. */
	size = size > far ? far : size;
	*j = (struct journal){ .fd = fd, .start = start, .tail = tail, .cap = size, .sum = sum };

	/* What a killed writer left behind its last record may not line up with ours. */
	int r = size > tail ? journal_map(j, size) : journal_reserve(j, FORMAT_REC_BYTES_MAX);

	if (r < 0)
		*j = (struct journal){ .fd = -1 };
	return r;
}

void journal_release(struct journal *j)
{
	if (j->map)
		munmap(j->map, j->cap - j->map_off);
	if (j->fd >= 0)
		close(j->fd);
	*j = (struct journal){ .fd = -1 };
}

int journal_append(struct journal *j, const struct record *rec)
{
	uint8_t bytes[FORMAT_REC_BYTES_MAX];
	uint64_t sum;
	size_t len = record_encode(rec, j->sum, bytes, &sum);
	int r = journal_reserve(j, len);

	if (r < 0)
		return r;

	uint8_t *dst = j->map + (j->tail - j->map_off);

	/* To a reader elsewhere a record is whole once its checksum fits, so that comes last. */
	r = file_map_store(dst, bytes, len - 8);
	if (r < 0)
		return -EIO;
	r = file_map_store_last(dst + len - 8, bytes + len - 8);
	if (r < 0)
		return -EIO;
	j->tail += len;
	j->sum = sum;
	return 0;
}
