// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/copyup.h"
#include "veneer/data/cow.h"
#include "veneer/data/cow_fsync.h"
#include "veneer/map/mapfile.h"
#include "veneer/union/inode_struct.h"

#include <errno.h>

#define BIG ((size_t)16 * BLK_BYTES)

/* Syncs of any kind, and those that are to fail: of this thread, as the mount has others. */
static _Thread_local unsigned n_syncs, n_failing;

int __real_fsync(int fd);
int __real_fdatasync(int fd);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);

static int count(int r)
{
	n_syncs++;
	if (!n_failing)
		return r;
	n_failing--;
	errno = EIO;
	return -1;
}

int __wrap_fsync(int fd)
{
	return count(__real_fsync(fd));
}

int __wrap_fdatasync(int fd)
{
	return count(__real_fdatasync(fd));
}

/* Another thread makes the file an ordinary one, or only its entry in the map goes: between two
 * questions to the map. */
static _Thread_local struct inode *ends;
static _Thread_local bool stays_partial;

enum mapfile_pending __real_mapfile_pending(struct mapfile *mf, file_id_t id);
enum mapfile_pending __wrap_mapfile_pending(struct mapfile *mf, file_id_t id);

enum mapfile_pending __wrap_mapfile_pending(struct mapfile *mf, file_id_t id)
{
	enum mapfile_pending pending = __real_mapfile_pending(mf, id);

	if (!ends)
		return pending;
	if (!stays_partial)
		ends->src.id = 0;
	ends = NULL;
	assert_int_equal(mapfile_file_gone(mf, id), 0);
	return pending;
}

static struct inode *partial(struct tree_dirs *d, const char *options)
{
	struct inode *i;

	free(tree_put_pattern(d, "lower/big", BIG, 1));
	tree_mount(d, options);
	i = tree_get(d, "big");
	assert_int_equal(cow_write(d->t, i, "x", 1, 0), 0);
	n_syncs = n_failing = 0;
	return i;
}

static void test_cow_fsync__lower_file_and_volatile_mount_have_nothing_to_sync(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;

	i = partial(d, "volatile");
	assert_int_equal(cow_fsync(d->t, i, false), 0);
	assert_int_equal(n_syncs, 0);
	tree_forget(d, i);
	tree_unmount(d);
	tree_put_text(d, "lower/file", "text");
	tree_mount(d, NULL);
	i = tree_get(d, "file");
	n_syncs = 0;
	assert_int_equal(cow_fsync(d->t, i, false), 0);
	assert_int_equal(n_syncs, 0);
	tree_forget(d, i);
}

static void test_cow_fsync__changed_blocks_are_committed(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i = partial(d, NULL);

	assert_int_equal(cow_fsync(d->t, i, true), 0);
	assert_true(n_syncs > 0);
	assert_int_equal(mapfile_pending(d->t->map, i->src.id), MAPFILE_CLEAN);
	tree_forget(d, i);
}

/* The kernel tells of it once, and all programs share our descriptor. */
static void test_cow_fsync__failure_that_no_program_heard_of_is_told_once(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i = partial(d, NULL);

	n_failing = 1;
	assert_int_equal(cow_fsync_unasked(d->t, i), -EIO);
	/* Nothing of the file is committed before somebody was told. */
	assert_int_equal(cow_fsync_unasked(d->t, i), -EIO);
	assert_int_equal(cow_fsync(d->t, i, false), -EIO);
	assert_int_equal(cow_fsync(d->t, i, false), 0);
	assert_int_equal(cow_fsync_unasked(d->t, i), 0);
	tree_forget(d, i);
}

static void test_cow_fsync__failure_of_the_sync_itself_is_its_result(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i = partial(d, NULL);

	n_failing = 1;
	assert_int_equal(cow_fsync(d->t, i, true), -EIO);
	assert_int_equal(cow_fsync(d->t, i, true), 0);
	tree_forget(d, i);
}

static void test_cow_fsync__file_that_becomes_an_ordinary_one_meanwhile_is_synced(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i = partial(d, NULL);

	ends = i;
	assert_int_equal(cow_fsync(d->t, i, true), 0);
	assert_null(ends);
	assert_int_equal(i->src.id, 0);
	tree_forget(d, i);
}

static void test_cow_fsync__partial_file_without_its_entry_is_an_error(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i = partial(d, NULL);

	ends = i;
	stays_partial = true;
	assert_int_equal(cow_fsync(d->t, i, true), -ENOENT);
	stays_partial = false;
	tree_forget(d, i);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_cow_fsync__lower_file_and_volatile_mount_have_nothing_to_sync),
		row(test_cow_fsync__changed_blocks_are_committed),
		row(test_cow_fsync__failure_that_no_program_heard_of_is_told_once),
		row(test_cow_fsync__failure_of_the_sync_itself_is_its_result),
		row(test_cow_fsync__file_that_becomes_an_ordinary_one_meanwhile_is_synced),
		row(test_cow_fsync__partial_file_without_its_entry_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
