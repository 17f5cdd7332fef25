// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/cow.h"
#include "veneer/data/remove.h"
#include "veneer/mount/mount_freeze.h"

#include <sys/mman.h>

#define BIG ((size_t)8 * BLK_BYTES)

static void unlink_name(struct tree_dirs *d, const char *name)
{
	assert_int_equal(remove_file(d->t, d->t->root, name), 0);
}

static void test_mount_freeze__mount_at_rest_may_be_frozen(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	uint32_t id;

	free(tree_put_pattern(d, "lower/big", BIG, 1));
	tree_mount(d, "volatile");
	assert_int_equal(mount_freeze_prepare(&d->m), 0);
	assert_int_equal(mount_freeze_check(&d->m), 0);
	i = tree_get_granted(d, "big", &id);
	assert_int_equal(cow_write(d->t, i, "x", 1, 0), 0);
	assert_int_equal(mount_freeze_prepare(&d->m), 0);
	assert_int_equal(mount_freeze_check(&d->m), 0);
	inode_forget(d->t, id, 1);
}

static void test_mount_freeze__removed_file_that_only_its_users_have_stays_what_it_is(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	uint32_t id;

	tree_mount(d, "volatile");
	i = tree_make(d, "", "new", S_IFREG | 0644);
	tree_forget(d, i);
	i = tree_get_granted(d, "new", &id);
	assert_int_equal(cow_write(d->t, i, "text", 4, 0), 0);
	unlink_name(d, "new");
	assert_int_equal(mount_freeze_prepare(&d->m), 0);
	assert_int_equal(mount_freeze_check(&d->m), 0);
	tree_expect_inode(d, i, "text", 4);
	inode_forget(d->t, id, 1);
}

/* The map by which a partial one is read stays with what becomes a lower layer. */
static void test_mount_freeze__removed_partial_file_is_made_whole_first(void **state)
{
	struct tree_dirs *d = *state;
	char *bytes = tree_put_pattern(d, "lower/big", BIG, 1);
	struct inode *i;
	uint32_t id;

	tree_mount(d, "volatile");
	i = tree_get_granted(d, "big", &id);
	assert_int_equal(cow_write(d->t, i, "x", 1, 0), 0);
	bytes[0] = 'x';
	unlink_name(d, "big");
	assert_true(i->src.id);
	assert_int_equal(mount_freeze_prepare(&d->m), 0);
	assert_false(i->src.id);
	assert_int_equal(mount_freeze_check(&d->m), 0);
	tree_expect_inode(d, i, bytes, BIG);
	inode_forget(d->t, id, 1);
	free(bytes);
}

/* The other name would lead to the snapshot. */
static void test_mount_freeze__file_with_a_name_that_is_not_found_bars_it(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	uint32_t id;

	tree_put_text(d, "upper/file", "text");
	assert_int_equal(linkat(d->s.fd, "upper/file", d->s.fd, "outside", 0), 0);
	tree_mount(d, "volatile");
	i = tree_get_granted(d, "file", &id);
	unlink_name(d, "file");
	assert_int_equal(mount_freeze_check(&d->m), -EUSERS);
	/* Nothing has changed by that. */
	tree_expect_inode(d, i, "text", 4);
	inode_forget(d->t, id, 1);
	assert_int_equal(mount_freeze_check(&d->m), 0);
}

/* It has other names, of which one is found. */
static void test_mount_freeze__file_whose_known_name_went_gets_another(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	uint32_t id;

	tree_put_text(d, "upper/one", "text");
	assert_int_equal(linkat(d->s.fd, "upper/one", d->s.fd, "upper/two", 0), 0);
	tree_mount(d, "volatile");
	i = tree_get_granted(d, "one", &id);
	unlink_name(d, "one");
	assert_int_equal(mount_freeze_prepare(&d->m), 0);
	assert_int_equal(mount_freeze_check(&d->m), 0);
	tree_expect_inode(d, i, "text", 4);
	inode_forget(d->t, id, 1);
}

static void test_mount_freeze__sync_that_failed_and_nobody_was_told_bars_it(void **state)
{
	struct tree_dirs *d = *state;

	tree_mount(d, NULL);
	d->t->sync_error = -EIO;
	assert_int_equal(mount_freeze_check(&d->m), -EIO);
	d->t->sync_error = 0;
	assert_int_equal(mount_freeze_check(&d->m), 0);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_mount_freeze__mount_at_rest_may_be_frozen),
		row(test_mount_freeze__removed_file_that_only_its_users_have_stays_what_it_is),
		row(test_mount_freeze__removed_partial_file_is_made_whole_first),
		row(test_mount_freeze__file_with_a_name_that_is_not_found_bars_it),
		row(test_mount_freeze__file_whose_known_name_went_gets_another),
		row(test_mount_freeze__sync_that_failed_and_nobody_was_told_bars_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
