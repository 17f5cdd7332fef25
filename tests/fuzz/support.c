// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include "veneer/base/hash.h"
#include "veneer/base/log.h"
#include "veneer/map/format.h"
#include "veneer/sys/file.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HEADER_BYTES sizeof(struct format_map_header)

void fuzz_require(bool is_kept)
{
	if (!is_kept)
		abort();
}

void fuzz_be_quiet(void)
{
	log_set_level((enum log_level) - 1);
}

int fuzz_memfd(const void *data, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd >= 0 && size && file_pwrite(fd, data, size, 0) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static char directory[PATH_MAX];
static pid_t maker;

/* Remove whatever a target has made in it. */
static void remove_directory(void)
{
	if (getpid() == maker)
		rmdir(directory);
}

int fuzz_directory(const char **ret_path)
{
	static int fd = -1;
	const char *top = getenv("TMPDIR");

	*ret_path = directory;
	if (fd >= 0)
		return fd;
	snprintf(directory, sizeof(directory), "%s/fuzz-XXXXXX",
		 top			    ? top
		 : access("/dev/shm", W_OK) ? "/tmp"
					    : "/dev/shm");
	maker = getpid();
	if (!mkdtemp(directory) || atexit(remove_directory))
		abort();
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fuzz_require(fd >= 0);
	return fd;
}

uint64_t fuzz_mend_records(uint8_t *p, size_t len, uint64_t sum)
{
	while (len >= 16) {
		uint8_t summed[8 + FORMAT_REC_BYTES_MAX];
		size_t rec_len = p[1] * 8u;

		if (rec_len < 16 || rec_len > FORMAT_REC_BYTES_MAX || rec_len > len)
			break;
		memcpy(summed, &sum, 8);
		memcpy(summed + 8, p, rec_len - 8);
		sum = hash_checksum(summed, rec_len);
		memcpy(p + rec_len - 8, &sum, 8);
		p += rec_len;
		len -= rec_len;
	}
	return sum;
}

void fuzz_mend_map(uint8_t *p, size_t len)
{
	uint64_t snapshot_len, sum;

	if (len < HEADER_BYTES)
		return;
	memcpy(&snapshot_len, p + offsetof(struct format_map_header, snapshot_len), 8);
	if (snapshot_len > len - HEADER_BYTES)
		snapshot_len = len - HEADER_BYTES;
	sum = fuzz_mend_records(p + HEADER_BYTES, snapshot_len,
				hash_checksum(p, FORMAT_MAP_SEED_BYTES));
	memcpy(p + offsetof(struct format_map_header, snapshot_sum), &sum, 8);
	sum = hash_checksum(p, HEADER_BYTES - 8);
	memcpy(p + HEADER_BYTES - 8, &sum, 8);
	fuzz_mend_records(p + HEADER_BYTES + snapshot_len, len - HEADER_BYTES - snapshot_len, sum);
}
