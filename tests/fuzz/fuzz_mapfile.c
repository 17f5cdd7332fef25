// SPDX-License-Identifier: Apache-2.0
/* An input is the map file in a layer's root; the layer is opened with it as a lower and as an
 * upper, as it is and with its checksums mended. What opens answers all questions, and what an
 * upper's map has after changes is there when it is opened again. */
#include "support.h"

#include "veneer/base/cleanup.h"
#include "veneer/map/blkmap.h"
#include "veneer/map/mapfile.h"
#include "veneer/sys/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define SIZE_MAX_TRIED 65536u
#define RUNS_MAX       64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sum {
	size_t n;
	file_id_t first, total;
};

static void add_file(void *arg, file_id_t id, const struct blkmap *map)
{
	struct sum *s = arg;

	fuzz_require(id > 0 && id < (file_id_t)1 << 63 && map);
	if (s->n++ == 0)
		s->first = id;
	s->total += id;
}

/* Extents that nobody has. */
static int no_extents(void *arg, file_id_t id, int (*own)(void *own_arg, blk_t blk, blk_t n),
		      void *own_arg)
{
	(void)arg;
	return id % 3 == 0 ? -EOPNOTSUPP : id % 3 == 1 ? -ENOENT : own(own_arg, id % 1000, 7);
}

static int some_contents(void *arg, file_id_t id, int (*own)(void *own_arg, blk_t blk, blk_t n),
			 void *own_arg, uint64_t *ret_size)
{
	*ret_size = id % 5 ? id % 9 * BLK_BYTES + 1 : 1ull << 40;
	return no_extents(arg, id, own, own_arg);
}

static void ask(struct mapfile *mf, struct sum *ret)
{
	uint64_t clip;

	*ret = (struct sum){ 0 };
	mapfile_each(mf, add_file, ret);
	fuzz_require(ret->n == mapfile_count(mf));
	if (ret->n == 0)
		return;
	fuzz_require(mapfile_clip(mf, ret->first, &clip) == 0 &&
		     mapfile_is_complete(mf, ret->first) >= 0);
	for (blk_t blk = 0, n, k = 0; k < RUNS_MAX; blk += n, k++) {
		bool is_own;

		fuzz_require(mapfile_run(mf, ret->first, blk, 1 << 20, &is_own, &n) == 0 &&
			     n >= 1 && n <= 1 << 20);
	}
}

/* 0 when it could be opened. */
static int open_map(int rootfd, unsigned flags, struct mapfile **ret)
{
	const struct mapfile_rebuild rebuild = { .extents = no_extents, .contents = some_contents };

	return mapfile_open(rootfd, flags & MAPFILE_READONLY ? -1 : rootfd, flags, "layer",
			    &rebuild, ret);
}

static void change(struct mapfile *mf, const struct sum *s)
{
	file_id_t id = 0;

	if (mapfile_file_new(mf, 5 * BLK_BYTES, &id) == 0) {
		bool is_own;
		blk_t n;

		fuzz_require(mapfile_reserve(mf, 2) == 0 && mapfile_own(mf, id, 1, 2) == 0);
		fuzz_require(mapfile_own_zeros(mf, id, 2, 1) == 0);
		fuzz_require(mapfile_run(mf, id, 1, 10, &is_own, &n) == 0 && is_own && n == 2);
		fuzz_require(mapfile_commit(mf, id, false) == 0);
		fuzz_require(mapfile_file_gone(mf, id) == 0);
	}
	if (s->n) {
		mapfile_truncate(mf, s->first, BLK_BYTES);
		mapfile_file_gone(mf, s->first);
	}
	mapfile_checkpoint(mf, true);
}

static void check_upper(int rootfd)
{
	struct mapfile *mf;
	struct sum before, changed, after;

	if (open_map(rootfd, MAPFILE_VOLATILE | MAPFILE_TRUE_EXTENTS, &mf) < 0)
		return;
	ask(mf, &before);
	change(mf, &before);
	ask(mf, &changed);
	mapfile_mark_clean(mf);
	mapfile_close(mf);
	fuzz_require(open_map(rootfd, MAPFILE_VOLATILE, &mf) == 0);
	ask(mf, &after);
	fuzz_require(after.n == changed.n && after.total == changed.total);
	mapfile_close(mf);
}

static void check(int rootfd, const uint8_t *data, size_t size)
{
	_cleanup_(closep) int fd =
		openat(rootfd, MAPFILE_NAME, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
	struct mapfile *mf;
	struct sum lower;

	if (fd < 0 || file_pwrite(fd, data, size, 0) < 0)
		return;
	if (open_map(rootfd, MAPFILE_READONLY, &mf) == 0) {
		ask(mf, &lower);
		mapfile_refresh(mf);
		mapfile_close(mf);
	}
	check_upper(rootfd);
	unlinkat(rootfd, MAPFILE_NAME, 0);
	unlinkat(rootfd, MAPFILE_DAMAGED_NAME, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t mended[SIZE_MAX_TRIED];
	const char *path;
	int rootfd = fuzz_directory(&path);

	fuzz_be_quiet();
	check(rootfd, data, size);
	if (size > sizeof(mended))
		return 0;
	memcpy(mended, data, size);
	fuzz_mend_map(mended, size);
	check(rootfd, mended, size);
	return 0;
}
