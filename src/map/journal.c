// SPDX-License-Identifier: Apache-2.0
#include "journal.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "veneer/base/cleanup.h"
#include "veneer/base/invariants.h"
#include "veneer/base/minmax.h"
#include "veneer/map/journal_reader.h"
#include "veneer/sys/file.h"

#define GROW_MIN_BYTES 4096u
#define GROW_MAX_BYTES (1u << 20)
_Static_assert(JOURNAL_SLACK_BYTES > 2 * GROW_MAX_BYTES + GROW_MIN_BYTES, "slack of our own logs");

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
	INVARIANTS(journal_check_invariants(j));
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
	size = MIN(size, far);
	*j = (struct journal){ .fd = fd, .start = start, .tail = tail, .cap = size, .sum = sum };

	/* Bytes that a killed writer left behind its last record may not line up with ours. */
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
	INVARIANTS(journal_check_invariants(j));
	return 0;
}

const char *journal_check_invariants(const struct journal *j)
{
	if ((j->fd >= 0) != (j->map != NULL))
		return "journal: an open log is mapped";
	return j->map && (j->map_off > j->tail || j->tail > j->cap)
		       ? "journal: the end of the log is in the mapping"
		       : NULL;
}
