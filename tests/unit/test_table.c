// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "map/table.h"

#define MIB (1u << 20)

static int apply(struct table *t, struct record rec)
{
	const char *why = NULL;
	int r = table_apply(t, &rec, &why);

	if (r == -EUCLEAN)
		assert_non_null(why);
	return r;
}

static struct record of(enum format_record_type type, file_id_t id)
{
	return (struct record){ .type = type, .id = id };
}

static struct record fresh(file_id_t id)
{
	return (struct record){ .type = FORMAT_REC_NEW, .id = id, .fresh = { MIB } };
}

static struct record own(file_id_t id, blk_t blk)
{
	return (struct record){ .type = FORMAT_REC_OWN_RUN, .id = id, .run = { blk, 1 } };
}

static struct record boot(uint64_t epoch)
{
	return (struct record){ .type = FORMAT_REC_OPEN, .open = { epoch, 1 } };
}

static void test_table__revert_goes_back_to_the_last_commit(void **state)
{
	(void)state;
	struct table t;

	table_init(&t);
	assert_int_equal(apply(&t, boot(1)), 0);
	assert_int_equal(apply(&t, fresh(1)), 0);
	assert_int_equal(apply(&t, own(1, 3)), 0);
	assert_int_equal(apply(&t, of(FORMAT_REC_COMMIT, 1)), 0);
	assert_int_equal(apply(&t, own(1, 3)), 0);
	assert_int_equal(apply(&t, own(1, 4)), 0);
	assert_int_equal(apply(&t, (struct record){ .type = FORMAT_REC_TRUNCATE, .id = 1 }), 0);
	assert_true(blkmap_is_complete(table_find(&t, 1)->map));
	assert_int_equal(table_revert(&t), 0);
	assert_int_equal(blkmap_clip(table_find(&t, 1)->map), MIB);
	assert_true(blkmap_is_own(table_find(&t, 1)->map, 3));
	assert_false(blkmap_is_own(table_find(&t, 1)->map, 4));
	table_release(&t);
}

static void test_table__gone_file_comes_back_only_by_revert(void **state)
{
	(void)state;
	struct table t;

	table_init(&t);
	assert_int_equal(apply(&t, boot(1)), 0);
	assert_int_equal(apply(&t, fresh(1)), 0);
	assert_int_equal(apply(&t, fresh(2)), 0);
	assert_int_equal(apply(&t, of(FORMAT_REC_GONE, 1)), 0);
	assert_null(table_find(&t, 1));
	assert_true(table_knows(&t, 1));
	assert_int_equal(apply(&t, of(FORMAT_REC_GONE, 1)), -EUCLEAN);
	assert_int_equal(apply(&t, fresh(1)), -EUCLEAN);
	assert_int_equal(t.count, 1);
	assert_int_equal(table_revert(&t), 0);
	assert_int_equal(t.count, 2);
	assert_int_equal(apply(&t, boot(1)), 0);
	assert_int_equal(apply(&t, of(FORMAT_REC_GONE, 1)), 0);
	assert_int_equal(apply(&t, of(FORMAT_REC_CLEAN, 0)), 0);
	assert_false(table_knows(&t, 1));
	table_release(&t);
}

static void test_table__clean_close_commits_everything(void **state)
{
	(void)state;
	struct table t;

	table_init(&t);
	assert_int_equal(apply(&t, boot(1)), 0);
	assert_int_equal(apply(&t, fresh(1)), 0);
	assert_int_equal(apply(&t, own(1, 3)), 0);
	assert_int_equal(apply(&t, of(FORMAT_REC_CLEAN, 0)), 0);
	assert_int_equal(apply(&t, boot(2)), 0);
	assert_int_equal(t.lost_end, 0);
	assert_int_equal(apply(&t, own(1, 4)), 0);
	assert_int_equal(apply(&t, boot(3)), 0);
	assert_true(blkmap_is_own(table_find(&t, 1)->map, 3));
	assert_false(blkmap_is_own(table_find(&t, 1)->map, 4));
	assert_int_equal(t.lost_first, 2);
	assert_int_equal(t.next_id, 2 + FORMAT_LOST_IDS);
	table_release(&t);
}

static void test_table__unknown_files_are_damage(void **state)
{
	(void)state;
	struct table t;

	table_init(&t);
	assert_int_equal(apply(&t, boot(1)), 0);
	assert_int_equal(apply(&t, own(1, 1)), -EUCLEAN);
	assert_int_equal(apply(&t, of(FORMAT_REC_COMMIT, 1)), -EUCLEAN);
	table_release(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table__revert_goes_back_to_the_last_commit),
		cmocka_unit_test(test_table__gone_file_comes_back_only_by_revert),
		cmocka_unit_test(test_table__clean_close_commits_everything),
		cmocka_unit_test(test_table__unknown_files_are_damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
