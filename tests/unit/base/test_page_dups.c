// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/page_dups.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRACE	 "tests/assets/copies-start.trace"
#define VICTIMS	 4096
#define REST_MS	 100u
#define SPARE_MS 1000u

static const struct page_dups_rules rules = {
	.scan = 1000,
	.max = 10000,
	.rest_ms = REST_MS,
	.spare_ms = SPARE_MS,
	.spare_max_ms = 8000,
	.refault_ms = 5000,
	.low_percent = 60,
	.high_percent = 80,
};

static struct page_dups *copies;
static struct page_dups_victim victims[VICTIMS];

static int setup(void **state)
{
	(void)state;
	return page_dups_new(&rules, &copies);
}

static int teardown(void **state)
{
	(void)state;
	page_dups_free(copies);
	copies = NULL;
	return 0;
}

static void join(uint32_t n, uint32_t wish)
{
	const uint32_t *known;
	const size_t before = page_dups_mounts(copies, &known);

	for (uint32_t k = 1; k <= n; k++)
		assert_int_equal(page_dups_join(copies, (uint32_t)before + k, wish), 0);
}

static int send(uint32_t mount, uint32_t index, uint32_t now_ms)
{
	const struct page_dups_sent s = {
		.key = { 1, 2, index }, .mount = mount, .node = 7, .nblk = CHUNK_BLKS
	};

	return page_dups_note(copies, &s, now_ms);
}

static size_t scan(uint32_t now_ms)
{
	return page_dups_scan(copies, now_ms, victims, VICTIMS);
}

static struct page_dups_usage usage(void)
{
	struct page_dups_usage u;

	page_dups_usage(copies, &u);
	return u;
}

static void test_page_dups__the_oldest_beyond_the_limit_go(void **state)
{
	(void)state;
	join(4, 2);
	for (uint32_t m = 1; m <= 4; m++)
		assert_int_equal(send(m, 0, m), 0);
	assert_int_equal(usage().copies, 4);
	assert_int_equal(usage().extra_bytes, 3 * CHUNK_BYTES);
	assert_int_equal(scan(1000), 2);
	assert_int_equal(victims[0].mount, 1);
	assert_int_equal(victims[1].mount, 2);
	assert_int_equal(victims[0].node, 7);
	assert_int_equal(usage().copies, 2);
	assert_int_equal(usage().extra_bytes, CHUNK_BYTES);
	assert_int_equal(scan(2000), 0);
	assert_int_equal(page_dups_pause_ms(copies, 2000), PAGE_DUPS_FOREVER);
}

static void test_page_dups__what_was_just_sent_is_left_alone(void **state)
{
	(void)state;
	join(2, 1);
	send(1, 0, 1000), send(2, 0, 1010);
	assert_int_equal(scan(1000 + REST_MS - 1), 0);
	assert_int_equal(page_dups_pause_ms(copies, 1000 + REST_MS - 1), 1);
	assert_int_equal(scan(1000 + REST_MS), 1);
	assert_int_equal(victims[0].mount, 1);
}

static void test_page_dups__what_is_read_again_soon_is_spared_longer_each_time(void **state)
{
	static const uint32_t spared[] = { REST_MS, 1000, 2000, 4000, 8000, 8000 };
	uint32_t now = 1000;

	(void)state;
	join(1, 1);
	join(1, 2);
	send(2, 0, now);
	for (size_t k = 0; k < sizeof(spared) / sizeof(*spared); k++) {
		assert_int_equal(send(1, 0, now), k > 0);
		assert_int_equal(scan(now + spared[k] - 1), 0);
		now += spared[k];
		assert_int_equal(scan(now), 1);
		assert_int_equal(victims[0].mount, 1);
	}
	assert_int_equal(usage().refaults, 5);
}

static void test_page_dups__what_is_read_again_late_is_no_refault(void **state)
{
	(void)state;
	join(2, 1);
	send(1, 0, 0), send(2, 0, 0);
	assert_int_equal(scan(REST_MS), 1);
	assert_int_equal(send(victims[0].mount, 0, REST_MS + rules.refault_ms + 1), 0);
	assert_int_equal(usage().refaults, 0);
}

static void test_page_dups__cold_ones_go_before_older_hot_ones(void **state)
{
	(void)state;
	join(3, 2);
	send(1, 0, 0), send(2, 0, 1), send(3, 0, 2);
	assert_int_equal(scan(REST_MS), 0 + 1);
	assert_int_equal(victims[0].mount, 1);
	assert_int_equal(send(1, 0, 200), 1);
	send(2, 0, 300), send(3, 0, 400);
	/* all of them may go, and mount 1 has the oldest copy */
	assert_int_equal(scan(100000), 1);
	assert_int_equal(victims[0].mount, 2);
}

static void test_page_dups__the_limit_follows_memory(void **state)
{
	static const struct {
		unsigned percent, limit;
		bool is_lower;
	} steps[] = { { 70, 32, false }, { 60, 32, false }, { 80, 32, false }, { 81, 16, true },
		      { 95, 8, true },	 { 59, 16, false }, { 10, 32, false }, { 10, 64, false },
		      { 10, 64, false }, { 99, 32, true } };

	(void)state;
	join(64, PAGE_DUPS_AUTO);
	assert_int_equal(usage().limit, 32);
	for (size_t k = 0; k < sizeof(steps) / sizeof(*steps); k++) {
		assert_int_equal(page_dups_adjust(copies, steps[k].percent), steps[k].is_lower);
		assert_int_equal(usage().limit, steps[k].limit);
	}
	for (int k = 0; k < 10; k++)
		page_dups_adjust(copies, 100);
	assert_int_equal(usage().limit, 1);
}

static void test_page_dups__a_limit_for_all_stays_one_for_all(void **state)
{
	(void)state;
	join(3, PAGE_DUPS_AUTO);
	assert_int_equal(usage().limit, 1);
	page_dups_adjust(copies, 10), page_dups_adjust(copies, 10);
	assert_int_equal(usage().limit, 3);
	join(5, PAGE_DUPS_AUTO);
	assert_int_equal(usage().limit, 8);
	page_dups_leave(copies, 3);
	assert_int_equal(usage().limit, 7);
	page_dups_adjust(copies, 90);
	join(1, PAGE_DUPS_AUTO);
	assert_int_equal(usage().limit, 3);
}

static void test_page_dups__a_lower_limit_looks_at_everything_again(void **state)
{
	(void)state;
	join(8, PAGE_DUPS_AUTO);
	page_dups_adjust(copies, 10);
	for (uint32_t m = 1; m <= 8; m++)
		for (uint32_t i = 0; i < 10; i++)
			send(m, i, m);
	assert_int_equal(scan(1000), 0);
	assert_int_equal(page_dups_pause_ms(copies, 1000), PAGE_DUPS_FOREVER);
	assert_true(page_dups_heeds_memory(copies));
	page_dups_adjust(copies, 90);
	assert_int_equal(page_dups_pause_ms(copies, 1000), 0);
	assert_int_equal(scan(1000), 40);
}

static void test_page_dups__each_mount_has_its_own_wish(void **state)
{
	(void)state;
	join(3, 1);
	join(3, PAGE_DUPS_AUTO);
	page_dups_adjust(copies, 10);
	for (uint32_t m = 1; m <= 6; m++)
		send(m, 0, m);
	/* six at most suit the last three, whatever the others do */
	assert_int_equal(scan(1000), 3);
	for (int k = 0; k < 3; k++)
		assert_true(victims[k].mount <= 3);
	assert_false(usage().copies != 3);
}

static void test_page_dups__a_slice_is_bounded_and_the_next_goes_on(void **state)
{
	struct page_dups_rules narrow = rules;
	size_t n = 0;

	(void)state;
	page_dups_free(copies);
	narrow.scan = 3;
	assert_int_equal(page_dups_new(&narrow, &copies), 0);
	join(2, 1);
	for (uint32_t i = 0; i < 10; i++)
		send(1, i, 0), send(2, i, 0);
	assert_int_equal(scan(1000), 3);
	for (int k = 0; k < 3; k++)
		n += scan(1000);
	assert_int_equal(n, 7);
	/* room for one victim: the rest waits */
	for (uint32_t i = 0; i < 3; i++)
		send(1, i, 9000), send(2, i, 9000);
	for (n = 0; n < 3; n++)
		for (int k = 0; page_dups_scan(copies, 20000, victims, 1) == 0; k++)
			assert_true(k < 100);
}

static void test_page_dups__what_could_not_be_dropped_is_held(void **state)
{
	(void)state;
	join(2, 1);
	send(1, 0, 0), send(2, 0, 0);
	assert_int_equal(scan(1000), 1);
	page_dups_kept(copies, &victims[0], 1000, 700);
	assert_int_equal(usage().copies, 2);
	assert_int_equal(usage().evictions, 0);
	assert_int_equal(usage().extra_bytes, CHUNK_BYTES);
	/* the other one, meanwhile */
	assert_int_equal(scan(1001), 1);
	assert_int_equal(usage().evictions, 1);
}

static void test_page_dups__a_mount_that_leaves_takes_its_copies_along(void **state)
{
	(void)state;
	join(3, 3);
	for (uint32_t m = 1; m <= 3; m++)
		for (uint32_t i = 0; i < 5; i++)
			send(m, i, 0);
	page_dups_leave(copies, 2);
	assert_int_equal(usage().copies, 10);
	assert_int_equal(usage().mounts, 2);
	assert_int_equal(send(2, 0, 0), 0);
	assert_int_equal(usage().copies, 10);
	page_dups_leave(copies, 1), page_dups_leave(copies, 3), page_dups_leave(copies, 3);
	assert_int_equal(usage().copies, 0);
	assert_int_equal(usage().extents, 0);
	assert_int_equal(usage().extra_bytes, 0);
}

static void test_page_dups__the_table_is_bounded(void **state)
{
	struct page_dups_rules small = rules;

	(void)state;
	page_dups_free(copies);
	small.max = 64;
	assert_int_equal(page_dups_new(&small, &copies), 0);
	join(2, 1);
	for (uint32_t i = 0; i < 10000; i++) {
		assert_int_equal(send(i % 2 + 1, i / 2, i), 0);
		assert_true(usage().copies <= 64 && usage().extents <= 64);
		if (i % 100 == 0)
			scan(i);
	}
	assert_true(usage().forgotten > 1000);
	assert_true(page_dups_bytes(copies) < 16384);
}

/* Against a table that is as simple as can be, with a clock that wraps around. */
static void test_page_dups__agrees_with_a_plain_model(void **state)
{
	enum { MOUNTS = 9, EXTENTS = 40, STEPS = 60000 };
	static bool held[MOUNTS + 1][EXTENTS];
	uint32_t seed = 12345, now = 0xffff0000u;

	(void)state;
	memset(held, 0, sizeof(held));
	join(MOUNTS, 3);
	for (int step = 0; step < STEPS; step++) {
		uint32_t m, i;
		uint64_t n = 0, extra = 0;

		seed = seed * 1103515245 + 12345;
		m = (seed >> 8) % MOUNTS + 1;
		i = (seed >> 16) % EXTENTS;
		now += seed >> 29;
		if ((seed >> 4) % 16) {
			assert_true(send(m, i, now) >= 0);
			held[m][i] = true;
		} else {
			const size_t found = scan(now);

			for (size_t k = 0; k < found; k++) {
				assert_true(held[victims[k].mount][victims[k].key.index]);
				held[victims[k].mount][victims[k].key.index] = false;
			}
			for (size_t k = 0; k < found; k++) {
				unsigned left = 0;

				for (m = 1; m <= MOUNTS; m++)
					left += held[m][victims[k].key.index];
				assert_true(left >= 3);
			}
		}
		if (step % 64)
			continue;
		for (i = 0; i < EXTENTS; i++) {
			unsigned of_extent = 0;

			for (m = 1; m <= MOUNTS; m++)
				of_extent += held[m][i];
			n += of_extent;
			extra += of_extent > 1 ? of_extent - 1 : 0;
		}
		assert_int_equal(usage().copies, n);
		assert_int_equal(usage().extra_bytes, extra * CHUNK_BYTES);
	}
	assert_true(usage().evictions > 1000 && usage().refaults > 100);
}

/* ---- a recorded trace ---- */

struct outcome {
	uint64_t notes, most_copies, most_of_one;
	struct page_dups_usage end;
};

static void run_until(uint32_t *now, uint32_t until)
{
	for (; (int32_t)(until - *now) > 0; *now += 20)
		page_dups_scan(copies, *now, victims, VICTIMS);
}

/* Lines as the server says them with --debug: "sent TIME: MOUNT NODE DEV INO INDEX BLOCKS
 * READER". */
static struct outcome replay(uint32_t wish)
{
	FILE *f = fopen(TRACE, "re");
	struct outcome out = { .notes = 0 };
	uint32_t now = 0, at;
	struct page_dups_sent s;
	unsigned long long dev, ino;
	char line[256];

	assert_non_null(f);
	page_dups_free(copies);
	assert_int_equal(page_dups_new(&page_dups_rules_default, &copies), 0);
	join(8, wish);
	while (fgets(line, sizeof(line), f)) {
		if (*line == '#')
			continue;
		assert_int_equal(sscanf(line, "sent %u: %u %u %llu %llu %u %u %u", &at, &s.mount,
					&s.node, &dev, &ino, &s.key.index, &s.nblk, &s.reader),
				 8);
		s.key.dev = dev;
		s.key.ino = ino;
		if (!out.notes++)
			now = at;
		run_until(&now, at);
		assert_true(page_dups_note(copies, &s, at) >= 0);
		out.most_copies = usage().copies > out.most_copies ? usage().copies
								   : out.most_copies;
	}
	fclose(f);
	run_until(&now, now + 5000);
	out.end = usage();
	return out;
}

static void test_page_dups__a_recorded_start_ends_with_as_many_copies_as_may_be(void **state)
{
	struct outcome all, two, one;

	(void)state;
	all = replay(8);
	assert_true(all.notes > 500);
	assert_int_equal(all.end.evictions, 0);
	assert_int_equal(all.end.copies, all.most_copies);
	two = replay(2);
	one = replay(1);
	assert_int_equal(one.end.copies, one.end.extents);
	assert_int_equal(one.end.extra_bytes, 0);
	assert_true(two.end.copies <= 2 * two.end.extents);
	assert_int_equal(two.end.extents, all.end.extents);
	/* of the seven copies that all eight mounts held beyond the first, one is left */
	assert_true(two.end.extra_bytes * 13 <= all.end.extra_bytes * 2);
	assert_true(two.end.evictions >= all.end.copies - two.end.copies);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_page_dups__the_oldest_beyond_the_limit_go,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_page_dups__what_was_just_sent_is_left_alone,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_page_dups__what_is_read_again_soon_is_spared_longer_each_time, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			test_page_dups__what_is_read_again_late_is_no_refault, setup, teardown),
		cmocka_unit_test_setup_teardown(test_page_dups__cold_ones_go_before_older_hot_ones,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_page_dups__the_limit_follows_memory, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_page_dups__a_limit_for_all_stays_one_for_all,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_page_dups__a_lower_limit_looks_at_everything_again, setup, teardown),
		cmocka_unit_test_setup_teardown(test_page_dups__each_mount_has_its_own_wish, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			test_page_dups__a_slice_is_bounded_and_the_next_goes_on, setup, teardown),
		cmocka_unit_test_setup_teardown(test_page_dups__what_could_not_be_dropped_is_held,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_page_dups__a_mount_that_leaves_takes_its_copies_along, setup,
			teardown),
		cmocka_unit_test_setup_teardown(test_page_dups__the_table_is_bounded, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_page_dups__agrees_with_a_plain_model, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			test_page_dups__a_recorded_start_ends_with_as_many_copies_as_may_be, setup,
			teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
