// SPDX-License-Identifier: Apache-2.0
#include "../../src/jobs/promote_find.h"
#include "support/tree.h"

#include "veneer/data/cow.h"

#define CHUNKS 3
#define BYTES  ((size_t)CHUNKS * CHUNK_BYTES)

static int go_on(void *arg)
{
	(void)arg;
	return 0;
}

/* How many files a round finds; "f" is the first of them, if any. */
static size_t found(struct tree_dirs *d, enum promote_policy_mode mode, const struct inode *f)
{
	struct promote_find_unfound unfound = { .n = 0 };
	struct promote_find r = { .tree = d->t, .mode = mode, .unfound = &unfound, .go_on = go_on };
	size_t n;

	assert_int_equal(promote_find_run(&r), 0);
	n = r.n;
	if (n)
		assert_ptr_equal(promote_find_inode(&r, 0), f);
	promote_find_release(&r);
	free(unfound.ids);
	return n;
}

static struct inode *partial_file(struct tree_dirs *d)
{
	struct inode *i;

	free(tree_put_pattern(d, "lower/f", BYTES, 1));
	tree_mount(d, "volatile,promote=off");
	i = tree_get(d, "f");
	assert_int_equal(cow_write(d->t, i, "x", 1, 0), 0);
	return i;
}

static void test_promote_find__chunk_that_is_mostly_own_makes_a_file_one(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i = partial_file(d);

	assert_int_equal(found(d, PROMOTE_POLICY_AUTO, NULL), 0);
	/* Backwards: what is written in sequence gets blocks ahead of it. */
	for (unsigned blk = CHUNK_BLKS - 1; blk >= CHUNK_BLKS / 2; blk--)
		assert_int_equal(cow_write(d->t, i, "x", 1, blk * BLK_BYTES), 0);
	assert_int_equal(found(d, PROMOTE_POLICY_AUTO, i), 1);
	assert_int_equal(promote_find_missing(d->t->map, inode_partial_id(i), BYTES),
			 BYTES - CHUNK_BYTES / 2 - BLK_BYTES);
	tree_forget(d, i);
}

static void test_promote_find__written_again_and_again_or_expected(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i = partial_file(d);

	d->t->tells_written = true;
	assert_int_equal(found(d, PROMOTE_POLICY_WRITTEN, NULL), 0);
	inode_lower(i)->is_expected_written = true;
	assert_false(promote_find_is_expected(d->t, i));
	d->t->completes_expected = true;
	assert_true(promote_find_is_expected(d->t, i));
	/* Not before a write was counted. */
	assert_int_equal(found(d, PROMOTE_POLICY_WRITTEN, NULL), 0);
	i->nwrites = 1;
	assert_int_equal(found(d, PROMOTE_POLICY_WRITTEN, i), 1);
	d->t->completes_expected = false;
	assert_int_equal(found(d, PROMOTE_POLICY_WRITTEN, NULL), 0);
	i->nwrites = PROMOTE_POLICY_WRITES;
	assert_int_equal(found(d, PROMOTE_POLICY_WRITTEN, i), 1);
	tree_forget(d, i);
}

static void test_promote_find__what_other_files_meet_too_is_fatal(void **state)
{
	(void)state;
	assert_true(promote_find_is_fatal(-ENOSPC));
	assert_false(promote_find_is_fatal(-EIO));
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_promote_find__chunk_that_is_mostly_own_makes_a_file_one),
		row(test_promote_find__written_again_and_again_or_expected),
		cmocka_unit_test(test_promote_find__what_other_files_meet_too_is_fatal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
