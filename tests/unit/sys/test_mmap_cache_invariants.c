// SPDX-License-Identifier: Apache-2.0
#include "sys/mmap_cache.c"

#include "support/broken.h"
#include "support/scratch.h"

#define CHECK mmap_cache_check_invariants()

static void test_mmap_cache_invariants__each_rule_can_be_broken(void **state)
{
	struct mmap_cache_part a, b;
	struct mmap_cache_file f;
	struct scratch dir;

	(void)state;
	assert_int_equal(scratch_enter(&dir), 0);
	f.fd = openat(dir.fd, "f", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	f.owner = state;
	assert_int_equal(ftruncate(f.fd, 2 * MMAP_CACHE_BYTES), 0);
	assert_int_equal(fstat(f.fd, &f.st), 0);
	if (mmap_cache_pin(&f, 0, BLK_BYTES, &a) == -EOPNOTSUPP) {
		close(f.fd);
		scratch_leave(&dir);
		skip();
	}
	assert_int_equal(mmap_cache_pin(&f, MMAP_CACHE_BYTES, BLK_BYTES, &b), 0);

	EXPECT_BROKEN(CHECK, "mmap_cache: a window in the queues is in the table, alone of its key",
		      a.w->is_listed, false);
	EXPECT_BROKEN(CHECK, "mmap_cache: a window in the queues is in the table, alone of its key",
		      a.w->key.index, 1);
	EXPECT_BROKEN(CHECK, "mmap_cache: the queues know the length of a window", a.w->len, 0);
	EXPECT_BROKEN(CHECK, "mmap_cache: the queues know the length of a window", a.w->len,
		      2 * MMAP_CACHE_BYTES);
	EXPECT_BROKEN(CHECK, "mmap_cache: the queues know the length of a window",
		      a.w->policy.bytes, BLK_BYTES);
	a.w->resident.word[1] = 6;
	EXPECT_BROKEN(CHECK, "mmap_cache: a page that is being filled is not resident",
		      a.w->filling.word[1], 4);
	a.w->resident.word[1] = 0;
	EXPECT_BROKEN(CHECK, "mmap_cache: the table and the queues have the same windows",
		      cache.policy.count, 1);
	EXPECT_BROKEN(CHECK, "mmap_cache: each window in the queues is counted", cache.count, 1);
	EXPECT_BROKEN(CHECK, "mmap_cache: each window in the queues is counted", cache.bytes,
		      MMAP_CACHE_BYTES);
	EXPECT_BROKEN(CHECK, "mmap_cache: the queues are as long as they say",
		      cache.policy.bytes[0], MMAP_CACHE_BYTES);

	mmap_cache_unpin(a.w);
	mmap_cache_unpin(b.w);
	mmap_cache_forget(state);
	assert_null(CHECK);
	close(f.fd);
	scratch_leave(&dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mmap_cache_invariants__each_rule_can_be_broken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
