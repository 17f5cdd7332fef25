// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/copy_range.h"
#include "veneer/data/cow.h"
#include "veneer/data/cow_fallocate.h"
#include "veneer/data/read.h"
#include "veneer/data/remove.h"

#include <linux/falloc.h>
#include <pthread.h>
#include <sys/syscall.h>

#define BYTES ((size_t)2 * CHUNK_BYTES + 5000)

struct pair {
	struct tree_dirs *d;
	struct inode *from, *to;
	char *data, *want;
};

static struct pair open_pair(struct tree_dirs *d)
{
	struct pair p = { .d = d,
			  .data = tree_put_pattern(d, "lower/from", BYTES, 1),
			  .want = tree_put_pattern(d, "lower/to", BYTES, 2) };

	tree_mount(d, "volatile");
	p.from = tree_get(d, "from");
	p.to = tree_get(d, "to");
	return p;
}

static void copy(struct pair *p, off_t off_from, off_t off_to, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = copy_range(p->d->t, p->from, off_from + (off_t)done, p->to,
				       off_to + (off_t)done, len - done);

		assert_true(n > 0);
		done += (size_t)n;
	}
	memcpy(p->want + off_to, p->data + off_from, len);
}

static void close_pair(struct pair *p, size_t size)
{
	tree_expect_inode(p->d, p->to, p->want, size);
	tree_unmount(p->d);
	tree_mount(p->d, "volatile");
	tree_expect(p->d, "to", p->want, size);
	tree_expect(p->d, "from", p->data, BYTES);
	free(p->data);
	free(p->want);
}

static bool owns(struct pair *p, blk_t blk)
{
	bool is_own;
	blk_t n;

	assert_int_equal(mapfile_run(p->d->t->map, p->to->src.id, blk, 1, &is_own, &n), 0);
	return is_own;
}

static void test_copy_range__into_a_lower_file_owns_the_blocks_touched(void **state)
{
	struct pair p = open_pair(*state);

	copy(&p, 5, 3 * BLK_BYTES + 10, BLK_BYTES);
	assert_false(owns(&p, 2));
	assert_true(owns(&p, 3));
	assert_true(owns(&p, 4));
	assert_false(owns(&p, 5));
	assert_false(tree_is_there(p.d, "upper/from"));
	close_pair(&p, BYTES);
}

static void test_copy_range__past_what_is_seen_from_below_needs_no_record(void **state)
{
	struct pair p = open_pair(*state);
	uint64_t before;

	assert_int_equal(cow_truncate(p.d->t, p.to, 0), 0);
	memset(p.want, 0, BYTES);
	before = mapfile_change(p.d->t->map, p.to->src.id);
	copy(&p, 0, 0, BYTES);
	assert_int_equal(mapfile_change(p.d->t->map, p.to->src.id), before);
	close_pair(&p, BYTES);
}

static void test_copy_range__cut_that_the_map_never_heard_of_holds(void **state)
{
	struct pair p = open_pair(*state);
	const size_t at = 60 * BLK_BYTES;
	int fd;

	assert_int_equal(cow_write(p.d->t, p.to, p.want, 1, 0), 0);
	tree_unmount(p.d);
	/* As a server leaves it that dies between the two. */
	fd = openat(p.d->s.fd, "upper/to", O_WRONLY);
	assert_int_equal(ftruncate(fd, 40000), 0);
	close(fd);
	tree_mount(p.d, "volatile");
	p.from = tree_get(p.d, "from");
	p.to = tree_get(p.d, "to");
	memset(p.want + 40000, 0, BYTES - 40000);
	copy(&p, 0, (off_t)at, 10000);
	close_pair(&p, at + 10000);
}

static void test_copy_range__all_kinds_of_runs_of_the_source(void **state)
{
	struct pair p = open_pair(*state);

	assert_int_equal(cow_write(p.d->t, p.from, p.want, 50000, 100001), 0);
	memcpy(p.data + 100001, p.want, 50000);
	assert_int_equal(cow_fallocate(p.d->t, p.from, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				       300000, 90000),
			 0);
	memset(p.data + 300000, 0, 90000);
	assert_int_equal(cow_truncate(p.d->t, p.from, 700001), 0);
	assert_int_equal(cow_truncate(p.d->t, p.from, (off_t)BYTES), 0);
	memset(p.data + 700001, 0, BYTES - 700001);
	assert_int_equal(cow_truncate(p.d->t, p.to, 0), 0);
	memset(p.want, 0, BYTES);
	copy(&p, 0, 0, BYTES);
	close_pair(&p, BYTES);
}

static void test_copy_range__ends_with_the_source(void **state)
{
	struct pair p = open_pair(*state);

	assert_int_equal(copy_range(p.d->t, p.from, BYTES, p.to, 0, 10), 0);
	assert_int_equal(copy_range(p.d->t, p.from, 2 * BYTES, p.to, 0, 10), 0);
	assert_int_equal(copy_range(p.d->t, p.from, BYTES - 4, p.to, 0, 10), 4);
	memcpy(p.want, p.data + BYTES - 4, 4);
	close_pair(&p, BYTES);
}

static void test_copy_range__within_one_file(void **state)
{
	struct pair p = open_pair(*state);

	assert_int_equal(copy_range(p.d->t, p.to, 0, p.to, CHUNK_BYTES, 100000), 100000);
	memcpy(p.want + CHUNK_BYTES, p.want, 100000);
	close_pair(&p, BYTES);
}

static void test_copy_range__parts_of_one_file_that_overlap_are_refused(void **state)
{
	struct pair p = open_pair(*state);

	assert_int_equal(copy_range(p.d->t, p.to, 0, p.to, 0, 1), -EINVAL);
	assert_int_equal(copy_range(p.d->t, p.to, 100, p.to, 0, 101), -EINVAL);
	assert_int_equal(copy_range(p.d->t, p.to, 0, p.to, 100, 101), -EINVAL);
	/* what is behind the end is not copied, and overlaps nothing */
	assert_int_equal(copy_range(p.d->t, p.to, BYTES - 10, p.to, BYTES, 100), 10);
	p.want = realloc(p.want, BYTES + 10);
	assert_non_null(p.want);
	memcpy(p.want + BYTES, p.want + BYTES - 10, 10);
	close_pair(&p, BYTES + 10);
}

struct copier {
	struct pair *p;
	bool is_back;
};

static void *copy_often(void *arg)
{
	struct copier *c = arg;
	struct inode *from = c->is_back ? c->p->to : c->p->from,
		     *to = c->is_back ? c->p->from : c->p->to;

	for (int n = 0; n < 300; n++)
		if (copy_range(c->p->d->t, from, n, to, BYTES + 10 * BLK_BYTES, 100) != 100)
			return c;
	return NULL;
}

static void test_copy_range__two_files_into_each_other_do_not_wait_for_ever(void **state)
{
	struct pair p = open_pair(*state);
	struct copier c[2] = { { &p, false }, { &p, true } };
	pthread_t threads[2];
	void *failed;

	for (int k = 0; k < 2; k++)
		assert_int_equal(pthread_create(&threads[k], NULL, copy_often, &c[k]), 0);
	for (int k = 0; k < 2; k++) {
		pthread_join(threads[k], &failed);
		assert_null(failed);
	}
	free(p.data);
	free(p.want);
}

static int copy_some(void *arg)
{
	struct pair *p = arg;

	return (int)copy_range(p->d->t, p->from, 1, p->to, 1, 1000);
}

/* Others tell only that the two files cannot be copied so. */
static void test_copy_range__errors_of_the_disk_are_told(void **state)
{
	static const int told[] = { ENOSPC, EDQUOT, EIO, EFBIG }, other[] = { EXDEV, EOPNOTSUPP };
	struct pair p = { .d = *state };

	free(tree_put_pattern(p.d, "upper/from", BYTES, 1));
	tree_put_text(p.d, "upper/to", "");
	tree_mount(p.d, "volatile");
	p.from = tree_get(p.d, "from");
	p.to = tree_get(p.d, "to");
	for (size_t k = 0; k < sizeof(told) / sizeof(*told); k++)
		assert_int_equal(scratch_run_denied(SYS_copy_file_range, told[k], copy_some, &p),
				 -told[k]);
	for (size_t k = 0; k < sizeof(other) / sizeof(*other); k++)
		assert_int_equal(scratch_run_denied(SYS_copy_file_range, other[k], copy_some, &p),
				 1000);
	tree_forget(p.d, p.from);
	tree_forget(p.d, p.to);
}

/* Or what is copied between ordinary files would soon take all of it. */
static void test_copy_range__room_that_was_claimed_is_given_back(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "upper/from", BYTES, 1);
	struct inode *from;

	tree_mount(d, "volatile,size=4M");
	from = tree_get(d, "from");
	for (unsigned round = 0; round < 40; round++) {
		struct inode *to = tree_make(d, "", "to", S_IFREG | 0600);

		assert_int_equal(copy_range(d->t, from, 1, to, 0, BYTES - 1), BYTES - 1);
		tree_expect_inode(d, to, data + 1, BYTES - 1);
		assert_int_equal(remove_file(d->t, d->t->root, "to"), 0);
		tree_forget(d, to);
	}
	tree_forget(d, from);
	free(data);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_copy_range__into_a_lower_file_owns_the_blocks_touched),
		row(test_copy_range__past_what_is_seen_from_below_needs_no_record),
		row(test_copy_range__cut_that_the_map_never_heard_of_holds),
		row(test_copy_range__all_kinds_of_runs_of_the_source),
		row(test_copy_range__ends_with_the_source),
		row(test_copy_range__within_one_file),
		row(test_copy_range__parts_of_one_file_that_overlap_are_refused),
		row(test_copy_range__two_files_into_each_other_do_not_wait_for_ever),
		row(test_copy_range__errors_of_the_disk_are_told),
		row(test_copy_range__room_that_was_claimed_is_given_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
