// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "map/mapfile-internal.h"
#include "veneer/cleanup.h"
#include "veneer/cow.h"
#include "veneer/layer.h"
#include "veneer/mark.h"
#include "veneer/recover.h"
#include "veneer/source.h"

#define BIG (20 * BLK_BYTES)

struct blocks {
	uint64_t bits;
	int result;
};

static int note(void *arg, blk_t blk, blk_t n)
{
	struct blocks *b = arg;

	for (blk_t k = blk; k < blk + n && k < 64; k++)
		b->bits |= (uint64_t)1 << k;
	return b->result;
}

/* A partial file dir/f with blocks 3 and 7 own, and its mark. */
static void make_partial(struct tree_dirs *d, struct mark *m)
{
	char path[PATH_MAX + 64];
	struct inode *i;

	free(tree_put_pattern(d, "lower/dir/f", BIG, 1));
	tree_mount(d, "volatile");
	i = tree_get(d, "dir/f");
	assert_int_equal(cow_write(d->t, i, "x", 1, 3 * BLK_BYTES + 5), 0);
	assert_int_equal(cow_write(d->t, i, "x", 1, 7 * BLK_BYTES), 0);
	tree_unmount(d);
	snprintf(path, sizeof(path), "%s/upper/dir/f", d->s.path);
	assert_int_equal(source_read_mark(AT_FDCWD, path, m, NULL), 1);
}

static int ask(struct tree_dirs *d, file_id_t id, bool has_true_extents, struct blocks *b)
{
	_cleanup_(closep) int fd = openat(d->s.fd, "upper", O_RDONLY | O_DIRECTORY);
	struct recover r;
	int result;

	recover_init(&r, fd, "upper", has_true_extents);
	result = r.hook.extents(r.hook.arg, id, note, b);
	recover_release(&r);
	return result;
}

static void test_recover__allocated_blocks_are_own(void **state)
{
	struct tree_dirs *d = *state;
	struct blocks b = { 0 };
	struct mark m;
	int r;

	make_partial(d, &m);
	r = ask(d, m.file_id, true, &b);
	if (r == -EOPNOTSUPP)
		skip();
	assert_int_equal(r, 0);
	assert_int_equal(b.bits, 1u << 3 | 1u << 7);
}

static void test_recover__callback_that_fails_ends_it(void **state)
{
	struct tree_dirs *d = *state;
	struct blocks b = { .result = -ENOMEM };
	struct mark m;
	int r;

	make_partial(d, &m);
	r = ask(d, m.file_id, true, &b);
	if (r == -EOPNOTSUPP)
		skip();
	assert_int_equal(r, -ENOMEM);
}

static void test_recover__unknown_id_has_no_file(void **state)
{
	struct tree_dirs *d = *state;
	struct blocks b = { 0 };
	struct mark m;

	make_partial(d, &m);
	assert_int_equal(ask(d, m.file_id + 1, true, &b), -ENOENT);
	assert_int_equal(b.bits, 0);
}

static void test_recover__extents_that_lie_are_not_asked(void **state)
{
	struct tree_dirs *d = *state;
	struct blocks b = { 0 };
	struct mark m;

	make_partial(d, &m);
	assert_int_equal(ask(d, m.file_id, false, &b), -EOPNOTSUPP);
	assert_int_equal(b.bits, 0);
}

static struct layer *open_upper(struct tree_dirs *d)
{
	char path[PATH_MAX + 64];
	struct layer *l;

	snprintf(path, sizeof(path), "%s/upper", d->s.path);
	assert_int_equal(layer_open(path, &l), 0);
	return l;
}

static void test_recover__adopting_takes_only_what_may_have_been_lost(void **state)
{
	struct tree_dirs *d = *state;
	struct mapfile *map;
	struct layer *l;
	struct mark m;

	make_partial(d, &m);
	l = open_upper(d);
	assert_int_equal(layer_map(l, &map), 0);
	/* It is known. */
	assert_int_equal(recover_adopt(l, map, &m), 0);
	/* No unclean boot lost this one. */
	m.file_id += 5;
	assert_int_equal(recover_adopt(l, map, &m), -ENOENT);
	m.uuid_low++;
	assert_int_equal(recover_adopt(l, map, &m), -ENOENT);
	layer_unref(l);
}

static void test_recover__file_whose_record_was_lost_keeps_its_lower_bytes(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/dir/f", BIG, 1);
	struct inode *i;

	mapload_test_epoch = 0xaaaa;
	tree_mount(d, "volatile");
	i = tree_get(d, "dir/f");
	assert_int_equal(cow_write(d->t, i, "x", 1, 3 * BLK_BYTES), 0);
	tree_unmount(d);
	mapload_test_epoch = 0xbbbb;
	tree_mount(d, "volatile");
	/* Where extents tell the truth the write is there, elsewhere the old byte is: both are
	 * right. */
	i = tree_get(d, "dir/f");
	if (!d->t->can.has_true_extents) {
		tree_expect_inode(d, i, data, BIG);
	} else {
		data[3 * BLK_BYTES] = 'x';
		tree_expect_inode(d, i, data, BIG);
	}
	assert_int_equal(cow_write(d->t, i, "y", 1, 5 * BLK_BYTES), 0);
	data[5 * BLK_BYTES] = 'y';
	tree_expect_inode(d, i, data, BIG);
	tree_unmount(d);
	tree_mount(d, "volatile");
	tree_expect(d, "dir/f", data, BIG);
	tree_unmount(d);
	mapload_test_epoch = 0;
	free(data);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_recover__allocated_blocks_are_own),
		row(test_recover__callback_that_fails_ends_it),
		row(test_recover__unknown_id_has_no_file),
		row(test_recover__extents_that_lie_are_not_asked),
		row(test_recover__adopting_takes_only_what_may_have_been_lost),
		row(test_recover__file_whose_record_was_lost_keeps_its_lower_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
