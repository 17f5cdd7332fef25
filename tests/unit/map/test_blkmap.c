// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "veneer/map/blkmap.h"

#define NAIVE_BLKS 6000u
#define ROUNDS	   60
#define STEPS	   300

static uint64_t rng;

static uint64_t rnd(uint64_t below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng % below;
}

struct naive {
	uint8_t own[NAIVE_BLKS];
	uint64_t clip;
};

static bool naive_own(const struct naive *n, blk_t b)
{
	return b * BLK_BYTES >= n->clip || n->own[b];
}

static void check_same(const struct blkmap *m, const struct naive *n)
{
	uint64_t count = 0, nclip = (n->clip + BLK_BYTES - 1) / BLK_BYTES;

	for (blk_t b = 0; b < NAIVE_BLKS; b++) {
		assert_int_equal(blkmap_is_own(m, b), naive_own(n, b));
		count += b < nclip && n->own[b];
	}
	assert_int_equal(blkmap_count(m), count);
	assert_int_equal(blkmap_is_complete(m), count == nclip);
	assert_int_equal(blkmap_clip(m), n->clip);

	for (blk_t b = 0; b < NAIVE_BLKS;) {
		bool is_own;
		blk_t max = 1 + rnd(NAIVE_BLKS - b), len = blkmap_run(m, b, max, &is_own), want = 1;

		assert_int_equal(is_own, naive_own(n, b));
		while (want < max && naive_own(n, b + want) == is_own)
			want++;
		assert_int_equal(len, want);
		b += len;
	}

	uint64_t chunk = 0, bits[2], seen = 0;

	for (; blkmap_next_chunk(m, &chunk, bits); chunk++) {
		for (unsigned i = 0; i < CHUNK_BLKS; i++) {
			if (!(bits[i / 64] >> (i % 64) & 1))
				continue;
			assert_true(n->own[chunk * CHUNK_BLKS + i]);
			seen++;
		}
	}
	assert_int_equal(seen, count);
}

static void naive_step(struct blkmap *m, struct naive *n)
{
	blk_t b = rnd(NAIVE_BLKS);

	switch (rnd(8)) {
	case 0: {
		uint64_t bits[2] = { rnd(UINT64_MAX) & rnd(UINT64_MAX),
				     rnd(3) ? rnd(UINT64_MAX) : ~0ull };
		blk_t base = b / CHUNK_BLKS * CHUNK_BLKS;

		assert_int_equal(blkmap_set_bits(m, b / CHUNK_BLKS, bits), 0);
		for (unsigned i = 0; i < CHUNK_BLKS && base + i < NAIVE_BLKS; i++)
			if (bits[i / 64] >> (i % 64) & 1)
				n->own[base + i] = (base + i) * BLK_BYTES < n->clip;
		break;
	}
	case 1: {
		if (rnd(10))
			break;
		uint64_t size = rnd(n->clip + BLK_BYTES);

		blkmap_truncate(m, size);
		n->clip = size < n->clip ? size : n->clip;
		for (blk_t i = 0; i < NAIVE_BLKS; i++)
			if (i * BLK_BYTES >= n->clip)
				n->own[i] = 0;
		break;
	}
	default: {
		blk_t len = rnd(4) ? 1 + rnd(20) : 1 + rnd(NAIVE_BLKS);

		assert_int_equal(blkmap_set(m, b, len), 0);
		for (blk_t i = b; i < b + len && i < NAIVE_BLKS; i++)
			if (i * BLK_BYTES < n->clip)
				n->own[i] = 1;
	}
	}
}

static void test_blkmap__agrees_with_byte_array(void **state)
{
	(void)state;
	rng = (uint64_t)time(NULL) * 2654435761u + 1;
	print_message("seed %llu\n", (unsigned long long)rng);
	for (int round = 0; round < ROUNDS; round++) {
		struct naive n = { .clip = rnd((uint64_t)NAIVE_BLKS * BLK_BYTES) };
		struct blkmap *m = blkmap_new(n.clip);

		for (int i = 0; i < STEPS / (1 + round % 5); i++) {
			naive_step(m, &n);
			if (i % 10 == 0)
				check_same(m, &n);
		}
		check_same(m, &n);
		blkmap_free(m);
	}
}

static struct blkmap *random_map(struct naive *n, uint64_t clip)
{
	struct blkmap *m = blkmap_new(clip);

	*n = (struct naive){ .clip = clip };
	for (uint64_t i = rnd(60); i > 0; i--)
		naive_step(m, n);
	return m;
}

/* dst gets what src (any) has in the range and except (none) has not. */
static void naive_add(struct naive *dst, blk_t first, blk_t end, const struct naive *src,
		      const struct naive *except)
{
	for (blk_t b = first; b < end && b < NAIVE_BLKS; b++) {
		uint64_t off = b * BLK_BYTES;

		if (off >= dst->clip || (src && off >= src->clip) ||
		    (except && off >= except->clip))
			break;
		if ((!src || src->own[b]) && !(except && except->own[b]))
			dst->own[b] = 1;
	}
}

static void test_blkmap__add_agrees_with_byte_arrays(void **state)
{
	(void)state;
	rng = (uint64_t)time(NULL) * 2654435761u + 1;
	print_message("seed %llu\n", (unsigned long long)rng);
	for (int round = 0; round < 400; round++) {
		uint64_t clip = rnd((uint64_t)NAIVE_BLKS * BLK_BYTES);
		static struct naive n[3];
		struct blkmap *m[3];

		for (int i = 0; i < 3; i++)
			m[i] = random_map(&n[i], rnd(3) ? clip : rnd(clip + 1));
		for (int i = 0; i < 3; i++) {
			blk_t first = rnd(NAIVE_BLKS), end = first + rnd(NAIVE_BLKS);
			uint64_t use = rnd(4);

			assert_int_equal(blkmap_add(m[0], first, end, use & 1 ? m[1] : NULL,
						    use & 2 ? m[2] : NULL),
					 0);
			naive_add(&n[0], first, end, use & 1 ? &n[1] : NULL,
				  use & 2 ? &n[2] : NULL);
			check_same(m[0], &n[0]);
		}
		for (int i = 0; i < 3; i++)
			blkmap_free(m[i]);
	}
}

static void test_blkmap__bytes_are_given_back(void **state)
{
	(void)state;
	struct blkmap *m = blkmap_new(1ull << 40);
	size_t empty = blkmap_bytes(m);

	for (blk_t b = 0; b < 1ull << 28; b += 1 << 14)
		assert_int_equal(blkmap_set(m, b, 1), 0);
	assert_true(blkmap_bytes(m) > 16384 * 32);
	blkmap_truncate(m, 1);
	assert_int_equal(blkmap_count(m), 1);
	assert_true(blkmap_bytes(m) < empty + 16 * 128);
	blkmap_free(m);
}

static void test_blkmap__largest_file_costs_little(void **state)
{
	(void)state;
	struct blkmap *m = blkmap_new(INT64_MAX);
	bool is_own;

	assert_int_equal(blkmap_set(m, 3, 1ull << 50), 0);
	assert_int_equal(blkmap_count(m), 1ull << 50);
	assert_true(blkmap_bytes(m) < 8192);
	assert_int_equal(blkmap_run(m, 3, UINT64_MAX, &is_own), 1ull << 50);
	assert_true(is_own);
	assert_int_equal(blkmap_run(m, UINT64_MAX, UINT64_MAX, &is_own), UINT64_MAX);
	assert_true(is_own);
	assert_int_equal(blkmap_set(m, 0, UINT64_MAX), 0);
	assert_true(blkmap_is_complete(m));
	assert_true(blkmap_bytes(m) < 128);
	blkmap_truncate(m, 5000);
	assert_int_equal(blkmap_count(m), 2);
	assert_int_equal(blkmap_set(m, UINT64_MAX, UINT64_MAX), 0);
	assert_int_equal(blkmap_set_bits(m, UINT64_MAX, (uint64_t[]){ 1, 1 }), 0);
	assert_int_equal(blkmap_count(m), 2);
	blkmap_free(m);
}

/* One pointer says so, at each height of the tree. */
static void test_blkmap__setting_what_is_own_takes_no_memory(void **state)
{
	(void)state;
	for (uint64_t clip = 1; clip < 1ull << 62; clip *= 8) {
		const blk_t end = (clip + BLK_BYTES - 1) / BLK_BYTES;
		struct blkmap *m = blkmap_new(clip);

		assert_int_equal(blkmap_set(m, 0, end), 0);

		const size_t bytes = blkmap_bytes(m);

		for (blk_t eighth = 0; eighth < 8; eighth++) {
			assert_int_equal(blkmap_reserve(m, end / 8 * eighth, 1), 0);
			assert_int_equal(blkmap_set(m, end / 8 * eighth, 1), 0);
		}
		assert_int_equal(blkmap_bytes(m), bytes);
		assert_int_equal(blkmap_count(m), end);
		blkmap_free(m);
	}
}

static void test_blkmap__cut_block_is_not_own_until_written(void **state)
{
	(void)state;
	struct blkmap *m = blkmap_new(3 * BLK_BYTES);

	blkmap_truncate(m, BLK_BYTES + 1);
	assert_false(blkmap_is_own(m, 1));
	assert_true(blkmap_is_own(m, 2));
	assert_int_equal(blkmap_set(m, 1, 1), 0);
	assert_true(blkmap_is_own(m, 1));
	blkmap_truncate(m, BLK_BYTES + 7777);
	assert_int_equal(blkmap_clip(m), BLK_BYTES + 1);
	blkmap_free(m);
}

static void test_blkmap__empty_file_is_complete(void **state)
{
	(void)state;
	struct blkmap *m = blkmap_new(0);
	uint64_t chunk = 0, bits[2];

	assert_true(blkmap_is_complete(m));
	assert_true(blkmap_is_own(m, 0));
	assert_false(blkmap_next_chunk(m, &chunk, bits));
	blkmap_free(m);
	blkmap_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blkmap__agrees_with_byte_array),
		cmocka_unit_test(test_blkmap__add_agrees_with_byte_arrays),
		cmocka_unit_test(test_blkmap__bytes_are_given_back),
		cmocka_unit_test(test_blkmap__largest_file_costs_little),
		cmocka_unit_test(test_blkmap__setting_what_is_own_takes_no_memory),
		cmocka_unit_test(test_blkmap__cut_block_is_not_own_until_written),
		cmocka_unit_test(test_blkmap__empty_file_is_complete),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
