// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "data/partial_mark.h"
#include "veneer/data/copy_range.h"
#include "veneer/data/cow.h"
#include "veneer/data/cow_fallocate.h"
#include "veneer/data/create.h"
#include "veneer/layer/xattr_trust.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#define BYTES  ((size_t)CHUNK_BYTES + 5000)
#define PIECE  ((size_t)1 << 20)
#define PIECES (5 * PIECE + 777)

struct pair {
	struct tree_dirs *d;
	struct inode *from, *to;
	char *data;
};

static struct pair open_pair(struct tree_dirs *d)
{
	struct pair p = { .d = d, .data = tree_put_pattern(d, "lower/from", BYTES, 1) };

	tree_mount(d, "volatile");
	p.from = tree_get(d, "from");
	p.to = tree_make(d, "", "to", S_IFREG | 0600);
	return p;
}

static ssize_t copy(struct pair *p)
{
	return copy_range(p->d->t, p->from, 0, p->to, 0, BYTES + 1000000);
}

static void again(struct pair *p)
{
	tree_unmount(p->d);
	tree_mount(p->d, "volatile");
	p->from = tree_get(p->d, "from");
	p->to = tree_get(p->d, "to");
}

static void close_pair(struct pair *p)
{
	tree_expect(p->d, "from", p->data, BYTES);
	free(p->data);
}

static bool owns_any(struct pair *p)
{
	bool is_own;
	blk_t n;

	assert_int_equal(
		mapfile_run(p->d->t->map, p->to->src.id, 0, BYTES / BLK_BYTES + 1, &is_own, &n), 0);
	return is_own || n <= BYTES / BLK_BYTES;
}

static void test_copy_reference__has_no_block_and_its_own_number(void **state)
{
	struct pair p = open_pair(*state);
	const uint64_t ino = p.to->ino;

	assert_int_equal(copy(&p), BYTES);
	for (int k = 0; k < 2; k++) {
		assert_true(tree_is_partial(p.d, "upper/to"));
		assert_false(owns_any(&p));
		assert_null(p.to->lower);
		assert_int_equal(p.to->ino, ino);
		tree_expect_inode(p.d, p.to, p.data, BYTES);
		again(&p);
	}
	close_pair(&p);
}

static void test_copy_reference__is_made_once(void **state)
{
	struct pair p = open_pair(*state);
	file_id_t id;

	assert_int_equal(copy(&p), BYTES);
	id = p.to->src.id;
	assert_int_equal(copy(&p), BYTES);
	assert_int_equal(p.to->src.id, id);
	assert_false(owns_any(&p));
	/* What was written is copied over. */
	assert_int_equal(cow_write(p.d->t, p.to, "x", 1, 70000), 0);
	assert_int_equal(copy(&p), BYTES);
	assert_true(owns_any(&p));
	tree_expect_inode(p.d, p.to, p.data, BYTES);
	close_pair(&p);
}

/* As a server leaves it that dies before the size is set. */
static void test_copy_reference__without_its_size_is_an_empty_file(void **state)
{
	struct pair p = open_pair(*state);
	char want[3 * BLK_BYTES] = { 0 };
	int fd;

	assert_int_equal(copy(&p), BYTES);
	tree_unmount(p.d);
	fd = openat(p.d->s.fd, "upper/to", O_WRONLY);
	assert_int_equal(ftruncate(fd, 0), 0);
	close(fd);
	tree_mount(p.d, "volatile");
	p.from = tree_get(p.d, "from");
	p.to = tree_get(p.d, "to");
	tree_expect_inode(p.d, p.to, "", 0);
	assert_int_equal(cow_write(p.d->t, p.to, "x", 1, sizeof(want) - 1), 0);
	want[sizeof(want) - 1] = 'x';
	tree_expect_inode(p.d, p.to, want, sizeof(want));
	/* Copied byte by byte. */
	assert_int_equal(cow_truncate(p.d->t, p.to, 0), 0);
	assert_int_equal(copy(&p), BYTES);
	assert_true(owns_any(&p));
	again(&p);
	tree_expect_inode(p.d, p.to, p.data, BYTES);
	close_pair(&p);
}

static struct pair open_pieces(struct tree_dirs *d)
{
	struct pair p = { .d = d, .data = tree_put_pattern(d, "lower/from", PIECES, 1) };

	tree_mount(d, "volatile");
	p.from = tree_get(d, "from");
	p.to = tree_make(d, "", "to", S_IFREG | 0600);
	return p;
}

static void copy_piece(struct pair *p, size_t k)
{
	const off_t off = (off_t)(k * PIECE);
	const size_t left = PIECES - (size_t)off;

	assert_int_equal(copy_range(p->d->t, p->from, off, p->to, off, PIECE),
			 left < PIECE ? left : PIECE);
}

static bool owns_between(struct pair *p, size_t off, size_t end)
{
	const blk_t len = (end - off + BLK_BYTES - 1) / BLK_BYTES;
	bool is_own;
	blk_t n;

	assert_int_equal(
		mapfile_run(p->d->t->map, p->to->src.id, off / BLK_BYTES, len, &is_own, &n), 0);
	return is_own || n < len;
}

static void close_pieces(struct pair *p)
{
	tree_expect(p->d, "from", p->data, PIECES);
	free(p->data);
}

static void test_copy_reference__grows_piece_by_piece(void **state)
{
	struct pair p = open_pieces(*state);

	for (size_t k = 0; k * PIECE < PIECES; k++) {
		copy_piece(&p, k);
		copy_piece(&p, k); /* of a server that was killed */
		tree_expect_inode(p.d, p.to, p.data, k < 5 ? (k + 1) * PIECE : PIECES);
		/* The next server goes on. */
		again(&p);
	}
	assert_false(owns_between(&p, 0, PIECES));
	tree_expect_inode(p.d, p.to, p.data, PIECES);
	close_pieces(&p);
}

static void test_copy_reference__ends_with_what_is_copied(void **state)
{
	struct pair p = open_pieces(*state);
	char *want = calloc(1, PIECES);

	assert_non_null(want);
	copy_piece(&p, 0);
	memcpy(want, p.data, PIECE);
	tree_expect_inode(p.d, p.to, want, PIECE);
	/* What grows otherwise has zeros there, and no piece is added. */
	assert_int_equal(cow_truncate(p.d->t, p.to, 2 * PIECE + 100), 0);
	tree_expect_inode(p.d, p.to, want, 2 * PIECE + 100);
	assert_int_equal(cow_truncate(p.d->t, p.to, 2 * PIECE), 0);
	copy_piece(&p, 2);
	memcpy(want + 2 * PIECE, p.data + 2 * PIECE, PIECE);
	tree_expect_inode(p.d, p.to, want, 3 * PIECE);
	again(&p);
	tree_expect_inode(p.d, p.to, want, 3 * PIECE);
	free(want);
	close_pieces(&p);
}

static void test_copy_reference__piece_after_a_write_or_cut(void **state)
{
	struct pair p = open_pieces(*state);
	char *want = malloc(PIECES);

	assert_non_null(want);
	memcpy(want, p.data, PIECES);
	copy_piece(&p, 0);
	copy_piece(&p, 1);
	assert_int_equal(cow_write(p.d->t, p.to, "x", 1, 70000), 0);
	want[70000] = 'x';
	copy_piece(&p, 2);
	assert_false(owns_between(&p, PIECE, 3 * PIECE));
	tree_expect_inode(p.d, p.to, want, 3 * PIECE);
	/* Cut, and filled again. */
	assert_int_equal(cow_truncate(p.d->t, p.to, (off_t)PIECE), 0);
	copy_piece(&p, 1);
	copy_piece(&p, 2);
	tree_expect_inode(p.d, p.to, want, 3 * PIECE);
	/* Over bytes of its own. */
	copy_piece(&p, 0);
	want[70000] = p.data[70000];
	tree_expect_inode(p.d, p.to, want, 3 * PIECE);
	again(&p);
	tree_expect_inode(p.d, p.to, want, 3 * PIECE);
	free(want);
	close_pieces(&p);
}

/* As a server leaves it that dies before the map hears of a cut. */
static void test_copy_reference__cut_that_the_map_never_heard_of_hides_own_blocks(void **state)
{
	struct pair p = open_pieces(*state);
	int fd;

	for (size_t k = 0; k * PIECE < PIECES; k++)
		copy_piece(&p, k);
	assert_int_equal(cow_write(p.d->t, p.to, "own", 3, (off_t)PIECE + 50000), 0);
	tree_unmount(p.d);
	fd = openat(p.d->s.fd, "upper/to", O_WRONLY);
	assert_int_equal(ftruncate(fd, (off_t)PIECE), 0);
	close(fd);
	tree_mount(p.d, "volatile");
	p.from = tree_get(p.d, "from");
	p.to = tree_get(p.d, "to");
	copy_piece(&p, 1);
	tree_expect_inode(p.d, p.to, p.data, 2 * PIECE);
	again(&p);
	tree_expect_inode(p.d, p.to, p.data, 2 * PIECE);
	close_pieces(&p);
}

static bool is_sealed(struct tree_dirs *d)
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/upper/to", d->s.path);
	return lgetxattr(path, XATTR_TRUST_SEAL_ATTR, NULL, 0) > 0;
}

static void lose_seal(struct tree_dirs *d)
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/upper/to", d->s.path);
	assert_int_equal(lremovexattr(path, XATTR_TRUST_SEAL_ATTR), 0);
	assert_false(is_sealed(d));
}

/* As by a tar without trusted.*. */
static void test_copy_reference__lost_seal_is_made_again_while_bytes_are_foreign(void **state)
{
	struct pair p = open_pair(*state);
	struct stat st;

	if (!p.d->t->style.has_trusted)
		skip();
	assert_int_equal(copy(&p), BYTES);
	assert_true(is_sealed(p.d));
	lose_seal(p.d);
	st = tree_stat(p.d, "to");
	assert_int_equal(partial_mark_fix(p.d->t, p.to, &st), 0);
	assert_true(is_sealed(p.d));
	lose_seal(p.d);
	/* All bytes are its own, and the lower file is gone. */
	assert_int_equal(cow_write(p.d->t, p.to, p.data, BYTES, 0), 0);
	tree_unmount(p.d);
	assert_int_equal(unlinkat(p.d->s.fd, "lower/from", 0), 0);
	tree_mount(p.d, "volatile");
	p.to = tree_get(p.d, "to");
	assert_int_not_equal(p.to->src.id, 0);
	assert_null(p.to->src.below);
	assert_int_equal(partial_mark_fix(p.d->t, p.to, &st), 0);
	assert_false(is_sealed(p.d));
	tree_expect_inode(p.d, p.to, p.data, BYTES);
	free(p.data);
}

static void test_copy_reference__look_up_under_way_looks_again(void **state)
{
	struct pair p = open_pair(*state);
	const uint64_t before = inode_dir_version(p.d->t->root);

	assert_int_equal(copy(&p), BYTES);
	assert_int_not_equal(inode_dir_version(p.d->t->root), before);
	close_pair(&p);
}

static void test_copy_reference__not_of_a_file_that_is_not_what_it_was(void **state)
{
	struct pair p = open_pair(*state);
	const struct timespec times[2] = { { .tv_sec = 5 }, { .tv_sec = 5 } };
	struct stat st = tree_stat(p.d, "from");

	assert_int_equal(st.st_size, BYTES);
	assert_int_equal(utimensat(p.d->s.fd, "lower/from", times, 0), 0);
	assert_int_equal(copy(&p), BYTES);
	assert_false(tree_is_partial(p.d, "upper/to"));
	tree_expect_inode(p.d, p.to, p.data, BYTES);
	close_pair(&p);
}

static void test_copy_reference__not_of_a_file_that_was_written_to(void **state)
{
	struct pair p = open_pair(*state);

	assert_int_equal(cow_write(p.d->t, p.from, "new", 3, 70000), 0);
	memcpy(p.data + 70000, "new", 3);
	assert_int_equal(copy(&p), BYTES);
	assert_false(tree_is_partial(p.d, "upper/to"));
	tree_expect_inode(p.d, p.to, p.data, BYTES);
	close_pair(&p);
}

static void test_copy_reference__not_into_room_allocated_ahead(void **state)
{
	struct pair p = open_pair(*state);

	assert_int_equal(cow_fallocate(p.d->t, p.to, FALLOC_FL_KEEP_SIZE, 0, BYTES), 0);
	assert_int_equal(copy(&p), BYTES);
	assert_false(tree_is_partial(p.d, "upper/to"));
	tree_expect_inode(p.d, p.to, p.data, BYTES);
	close_pair(&p);
}

static void test_copy_reference__not_into_what_has_two_names(void **state)
{
	struct pair p = open_pair(*state);
	struct stat st;

	assert_int_equal(create_link(p.d->t, p.to, p.d->t->root, "second", &st), 0);
	assert_int_equal(copy(&p), BYTES);
	assert_false(tree_is_partial(p.d, "upper/to"));
	tree_expect(p.d, "second", p.data, BYTES);
	close_pair(&p);
}

static void test_copy_reference__not_with_bytes_or_of_a_part(void **state)
{
	struct pair p = open_pair(*state);

	assert_int_equal(copy_range(p.d->t, p.from, 0, p.to, 0, BYTES - 1), BYTES - 1);
	assert_false(tree_is_partial(p.d, "upper/to"));
	assert_int_equal(copy(&p), BYTES);
	assert_false(tree_is_partial(p.d, "upper/to"));
	tree_expect_inode(p.d, p.to, p.data, BYTES);
	close_pair(&p);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_copy_reference__has_no_block_and_its_own_number),
		row(test_copy_reference__is_made_once),
		row(test_copy_reference__without_its_size_is_an_empty_file),
		row(test_copy_reference__grows_piece_by_piece),
		row(test_copy_reference__ends_with_what_is_copied),
		row(test_copy_reference__piece_after_a_write_or_cut),
		row(test_copy_reference__cut_that_the_map_never_heard_of_hides_own_blocks),
		row(test_copy_reference__lost_seal_is_made_again_while_bytes_are_foreign),
		row(test_copy_reference__look_up_under_way_looks_again),
		row(test_copy_reference__not_of_a_file_that_is_not_what_it_was),
		row(test_copy_reference__not_of_a_file_that_was_written_to),
		row(test_copy_reference__not_into_room_allocated_ahead),
		row(test_copy_reference__not_into_what_has_two_names),
		row(test_copy_reference__not_with_bytes_or_of_a_part),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
