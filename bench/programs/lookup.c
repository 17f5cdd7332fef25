// SPDX-License-Identifier: Apache-2.0
/* What one look-up takes in the map of a partial file and in the index of the shared block cache;
 *HP-Mapper gives 1.1 us for its mapping tree and less than 0.1 us for its hash table.
 *
 *	bench-lookup FILE
 *
 * FILE, of at least some MiB, is what is cached; it is read. Prints one JSON object a line: "what",
 *"ns" and "bytes" (what the structure takes). */
#include "veneer/map/blkmap.h"
#include "veneer/sys/mmap_cache.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOOKUPS (1u << 21)
#define PLACES	(1u << 12) /* looked up in turn, so that no line of the table is always at hand */
#define FILL	(64u << 20)

static uint64_t state = 88172645463325252ull;

static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void print(const char *what, double ns, size_t bytes)
{
	printf("{\"what\": \"%s\", \"ns\": %.2f, \"bytes\": %zu}\n", what, ns, bytes);
}

/* A file of that size, of which one block in `every` is own. */
static int look_in_map(const char *what, uint64_t size, unsigned every)
{
	blk_t nblk = size >> BLK_SHIFT, *places = malloc(PLACES * sizeof(*places));
	struct blkmap *m = blkmap_new(size);
	int r = -1;
	double begin;
	uint64_t own = 0;

	if (!m || !places)
		goto out;
	for (blk_t b = 0; b < nblk; b += 1 + next_random() % (2 * every - 1))
		if (blkmap_set(m, b, 1) < 0)
			goto out;
	for (unsigned i = 0; i < PLACES; i++)
		places[i] = next_random() % nblk;
	begin = now_ns();
	for (unsigned i = 0; i < LOOKUPS; i++)
		own += blkmap_is_own(m, places[i % PLACES]);
	print(what, (now_ns() - begin) / LOOKUPS, blkmap_bytes(m));
	r = own ? 0 : -1;
out:
	blkmap_free(m);
	free(places);
	return r;
}

/* A block that is in the cache: found in the index, and known to be in memory. */
static int look_in_cache(const char *path)
{
	struct mmap_cache_file file = { .fd = open(path, O_RDONLY | O_CLOEXEC), .owner = &file };
	uint64_t *places = malloc(PLACES * sizeof(*places)), size;
	struct mmap_cache_usage usage;
	struct mmap_cache_part part;
	int r = -1;
	double begin = 0;

	if (file.fd < 0 || fstat(file.fd, &file.st) < 0 || !places)
		goto out;
	size = file.st.st_size < FILL ? file.st.st_size & ~(uint64_t)(BLK_BYTES - 1) : FILL;
	for (unsigned i = 0; i < PLACES; i++)
		places[i] = next_random() % (size >> BLK_SHIFT) << BLK_SHIFT;
	for (unsigned i = 0; i < LOOKUPS + PLACES; i++) {
		if (i == PLACES)
			begin = now_ns();
		if (mmap_cache_pin(&file, places[i % PLACES], BLK_BYTES, &part) < 0)
			goto out;
		mmap_cache_fill(&part, 1);
		mmap_cache_unpin(part.w);
		if (part.result < 0)
			goto out;
	}
	begin = now_ns() - begin;
	mmap_cache_usage(&usage);
	print("block cache", begin / LOOKUPS, usage.bytes);
	r = 0;
out:
	if (file.fd >= 0)
		close(file.fd);
	free(places);
	return r;
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: bench-lookup FILE\n");
		return 2;
	}
	if (look_in_map("map of 16M", 16u << 20, 16) < 0 ||
	    look_in_map("map of 1G", 1u << 30, 16) < 0 ||
	    look_in_map("map of 1G, scattered", 1u << 30, 128) < 0) {
		fprintf(stderr, "bench-lookup: the map failed\n");
		return 1;
	}
	if (look_in_cache(argv[1]) < 0) {
		fprintf(stderr, "bench-lookup: the cache refused %s\n", argv[1]);
		return 1;
	}
	return 0;
}
