// SPDX-License-Identifier: Apache-2.0
/* An input is a whole map file; it is loaded and printed as it is, and once more with all of its
 * checksums mended, so that the rules behind them are reached. What loads must survive being
 * written and loaded again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support.h"

#include "map/mapfile-internal.h"
#include "map/snapshot-internal.h"
#include "veneer/base/cleanup.h"
#include "veneer/map/journal_end.h"
#include "veneer/map/session_epoch.h"
#include "veneer/sys/file.h"
#include "veneer/tools/inspect.h"

#define SIZE_MAX_TRIED 65536u
#define HEADER_BYTES   sizeof(struct format_map_header)
/* The boot of the input "found-open-in-this-boot": a fuzzer that sees what is compared with what
 * finds any. */
#define THIS_BOOT 0x3c39e892c737c776u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(struct journal_reader *rd, struct table *t, const struct format_map_header *h)
{
	struct record rec;
	const char *why;
	int r;

	while ((r = journal_reader_next(rd, &rec)) == 1) {
		if (rec.type != FORMAT_REC_OPEN && !t->in_session)
			return -1;
		if (table_apply(t, &rec, &why) < 0)
			return -1;
	}
	return r == 0 ? -journal_end_check(rd, t, h, &why) : r;
}

static int load(const uint8_t *data, size_t size, struct table *t)
{
	_cleanup_(closep) int fd = memfd_create("map", MFD_CLOEXEC);
	struct format_map_header h;
	struct snapshot_damage bad;
	struct journal_reader rd;

	table_init(t);
	if (fd < 0 || file_pwrite(fd, data, size, 0) < 0)
		return -1;

	int r = snapshot_load(fd, t, &h, &bad);

	if (r == 0 && journal_reader_init(&rd, fd, HEADER_BYTES + h.snapshot_len, UINT64_MAX,
					  h.checksum) == 0) {
		r = replay(&rd, t, &h);
		journal_reader_release(&rd);
	}

	FILE *out = fopen("/dev/null", "w");
	int printed = inspect_map(fd, NULL, "map", &(struct inspect_out){ .out = out });

	fclose(out);
	/* The two readers must judge alike. */
	if ((r == 0) != (printed == 0))
		abort();
	return r;
}

static void check(const uint8_t *data, size_t size)
{
	struct table a, b;
	struct buf out = { 0 };
	struct format_map_header h = { .uuid = 1, .generation = 1 };
	uint64_t sum;

	if (load(data, size, &a) == 0) {
		if (snapshot_build(&a, &h, 1, &out, &sum) < 0 || load(out.data, out.len, &b) != 0)
			abort();
		if (a.count != b.count || a.next_id != b.next_id || a.in_session != b.in_session)
			abort();
		if (table_revert(&a, true) < 0 || table_revert(&b, true) < 0 || a.count != b.count)
			abort();
		table_release(&b);
	}
	buf_release(&out);
	table_release(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t mended[SIZE_MAX_TRIED];

	session_epoch_for_tests = THIS_BOOT;
	check(data, size);
	if (size < HEADER_BYTES || size > sizeof(mended))
		return 0;
	memcpy(mended, data, size);
	fuzz_mend_map(mended, size);
	check(mended, size);
	return 0;
}
