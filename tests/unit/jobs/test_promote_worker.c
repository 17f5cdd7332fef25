// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"
#include "support/wait.h"

#include "veneer/base/log.h"
#include "veneer/data/cow.h"
#include "veneer/jobs/promote_worker.h"

#include <fcntl.h>

#define SIZE	 ((size_t)4 * CHUNK_BYTES)
#define LIMIT_MS 60000

/* A write of this much of each chunk leaves the rest of it below. */
static void own_of_each_chunk(struct tree_dirs *d, const char *path, char *data, size_t len)
{
	struct inode *i = tree_get(d, path);
	char *text = malloc(BLK_BYTES);

	memset(text, 'x', BLK_BYTES);
	for (size_t off = 0; off < SIZE; off += BLK_BYTES) {
		if (off % CHUNK_BYTES >= len)
			continue;
		memcpy(data + off, text, BLK_BYTES);
		assert_int_equal(cow_write(d->t, i, text, BLK_BYTES, (off_t)off), 0);
	}
	free(text);
	tree_forget(d, i);
}

static bool has_map_of(struct tree_dirs *d, size_t files)
{
	wait_until(mapfile_count(d->t->map) == files);
	return mapfile_count(d->t->map) == files;
}

static void test_promote_worker__eager_mount_completes_what_is_mostly_own(void **state)
{
	struct tree_dirs *d = *state;
	char *most = tree_put_pattern(d, "lower/dir/most", SIZE, 1);
	char *little = tree_put_pattern(d, "lower/little", SIZE, 2);

	tree_mount(d, "volatile,promote=eager");
	own_of_each_chunk(d, "little", little, CHUNK_BYTES / 2);
	own_of_each_chunk(d, "dir/most", most, CHUNK_BYTES / 2 + BLK_BYTES);
	assert_true(has_map_of(d, 1));
	assert_false(tree_is_partial(d, "upper/dir/most"));
	assert_true(tree_is_partial(d, "upper/little"));
	tree_expect(d, "dir/most", most, SIZE);
	tree_expect(d, "little", little, SIZE);
	free(most);
	free(little);
}

static void test_promote_worker__files_of_earlier_mounts_are_looked_for(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/a/b/f", SIZE, 1);

	tree_mount(d, "volatile");
	own_of_each_chunk(d, "a/b/f", data, CHUNK_BYTES * 3 / 4);
	tree_unmount(d);
	tree_mount(d, "volatile,promote=eager");
	assert_true(has_map_of(d, 0));
	tree_expect(d, "a/b/f", data, SIZE);
	free(data);
}

static void test_promote_worker__mount_that_does_not_want_it_is_left_alone(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1);

	tree_mount(d, "volatile");
	own_of_each_chunk(d, "f", data, CHUNK_BYTES);
	assert_false(d->t->is_armed);
	assert_true(tree_is_partial(d, "upper/f"));
	free(data);
}

static void test_promote_worker__job_does_all_of_a_mount(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1);
	char *other = tree_put_pattern(d, "lower/dir/g", SIZE, 2);
	struct promote_worker_progress s;
	struct promote_worker_job *j;

	tree_mount(d, "volatile");
	own_of_each_chunk(d, "f", data, BLK_BYTES);
	own_of_each_chunk(d, "dir/g", other, CHUNK_BYTES);
	assert_int_equal(promote_worker_ask(d->m.promote, &j), 0);
	while (promote_worker_job_wait(j, LIMIT_MS, &s) == 1)
		;
	promote_worker_job_free(j);
	assert_int_equal(s.files, 2);
	assert_int_equal(s.nfiles, 2);
	assert_int_equal(s.left, 0);
	assert_int_equal(s.bytes, SIZE - 4 * BLK_BYTES);
	assert_int_equal(mapfile_count(d->t->map), 0);
	tree_expect(d, "f", data, SIZE);
	tree_expect(d, "dir/g", other, SIZE);
	free(data);
	free(other);
}

static void test_promote_worker__job_leaves_what_cannot_be_read_and_goes_on(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1);
	char *other = tree_put_pattern(d, "lower/g", SIZE, 2);
	struct promote_worker_progress s;
	struct promote_worker_job *j;
	int fd;

	tree_mount(d, "volatile");
	own_of_each_chunk(d, "f", data, BLK_BYTES);
	own_of_each_chunk(d, "g", other, BLK_BYTES);
	fd = openat(d->s.fd, "lower/f", O_WRONLY);
	assert_int_equal(ftruncate(fd, 5), 0);
	close(fd);
	assert_int_equal(promote_worker_ask(d->m.promote, &j), 0);
	while (promote_worker_job_wait(j, LIMIT_MS, &s) == 1)
		;
	promote_worker_job_free(j);
	assert_int_equal(s.left, 1);
	assert_int_equal(s.files, 1);
	assert_true(tree_is_partial(d, "upper/f"));
	tree_expect(d, "g", other, SIZE);
	free(data);
	free(other);
}

static void test_promote_worker__end_of_the_mount_ends_its_job(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", SIZE, 1);
	struct promote_worker_job *j, *second;
	struct promote_worker_progress s;
	int r;

	tree_mount(d, "volatile");
	own_of_each_chunk(d, "f", data, BLK_BYTES);
	assert_int_equal(promote_worker_ask(d->m.promote, &j), 0);
	r = promote_worker_ask(d->m.promote, &second);
	assert_true(r == -EBUSY || r == 0);
	if (r == 0)
		promote_worker_job_free(second);
	tree_unmount(d);
	r = promote_worker_job_wait(j, 0, &s);
	assert_true(r == 0 || r == -ECANCELED);
	promote_worker_job_free(j);
	tree_mount(d, "volatile");
	tree_expect(d, "f", data, SIZE);
	free(data);
}

#define TREE_TEST(f) cmocka_unit_test_setup_teardown(f, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TREE_TEST(test_promote_worker__eager_mount_completes_what_is_mostly_own),
		TREE_TEST(test_promote_worker__files_of_earlier_mounts_are_looked_for),
		TREE_TEST(test_promote_worker__mount_that_does_not_want_it_is_left_alone),
		TREE_TEST(test_promote_worker__job_does_all_of_a_mount),
		TREE_TEST(test_promote_worker__job_leaves_what_cannot_be_read_and_goes_on),
		TREE_TEST(test_promote_worker__end_of_the_mount_ends_its_job),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
