// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "layer/source_mark.h"
#include "veneer/data/cow.h"
#include "veneer/layer/metacopy_guard.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/map/format.h"

#define BIG ((size_t)8 * BLK_BYTES)

static int kind(struct tree_dirs *d, const char *rel, bool *ret_is_unresolved, bool *ret_has_acl)
{
	struct partial_xattr m;

	return source_mark_kind(d->s.fd, rel, &m, ret_is_unresolved, ret_has_acl);
}

static void make_partial(struct tree_dirs *d)
{
	struct inode *i;

	free(tree_put_pattern(d, "lower/big", BIG, 1));
	tree_mount(d, "volatile");
	i = tree_get(d, "big");
	assert_int_equal(cow_write(d->t, i, "x", 1, 3 * BLK_BYTES), 0);
	tree_forget(d, i);
	tree_unmount(d);
}

static void set(struct tree_dirs *d, const char *rel, const char *name, const void *value,
		size_t len)
{
	int fd = openat(d->s.fd, rel, O_RDONLY | O_CLOEXEC);

	assert_int_equal(fsetxattr(fd, name, value, len, 0), 0);
	close(fd);
}

static void test_source_mark__kinds_of_files(void **state)
{
	struct tree_dirs *d = *state;
	bool is_unresolved, has_acl;

	make_partial(d);
	tree_put_text(d, "upper/plain", "x");
	assert_int_equal(kind(d, "upper/plain", &is_unresolved, &has_acl), SOURCE_MARK_OWN);
	assert_true(is_unresolved);
	assert_false(has_acl);
	set(d, "upper/plain", "user.any", "1", 1);
	assert_int_equal(kind(d, "upper/plain", &is_unresolved, NULL), SOURCE_MARK_OWN);
	assert_false(is_unresolved);
	assert_int_equal(kind(d, "upper/big", &is_unresolved, &has_acl), SOURCE_MARK_PARTIAL);
	assert_int_equal(kind(d, "upper/none", NULL, NULL), -ENOENT);
}

static void test_source_mark__mark_that_says_nothing_is_damage(void **state)
{
	struct tree_dirs *d = *state;
	struct partial_xattr m;

	tree_put_text(d, "upper/file", "x");
	set(d, "upper/file", FORMAT_PARTIAL_ATTR, "nonsense", 8);
	assert_int_equal(kind(d, "upper/file", NULL, NULL), -EUCLEAN);
	set(d, "upper/file", FORMAT_PARTIAL_ATTR, "", 0);
	assert_int_equal(source_read_mark(d->s.fd, "upper/file", &m, NULL), -EUCLEAN);
}

/* The owner of a file may write it, and would get what he may not read. */
static void test_source_mark__metacopy_of_a_user_is_not_followed(void **state)
{
	struct tree_dirs *d = *state;
	struct partial_xattr m;

	tree_put_text(d, "upper/file", "x");
	set(d, "upper/file", METACOPY_GUARD_USER_ATTR, "", 0);
	assert_int_equal(kind(d, "upper/file", NULL, NULL), -EUCLEAN);
	/* Beside a mark it is its guard. */
	make_partial(d);
	set(d, "upper/big", METACOPY_GUARD_USER_ATTR, "", 0);
	assert_int_equal(source_read_mark(d->s.fd, "upper/big", &m, NULL), SOURCE_MARK_PARTIAL);
}

static void test_source_mark__changed_base_does_not_fit(void **state)
{
	struct tree_dirs *d = *state;
	struct partial_xattr m;
	struct stat st;

	make_partial(d);
	assert_int_equal(source_read_mark(d->s.fd, "upper/big", &m, NULL), SOURCE_MARK_PARTIAL);
	assert_int_equal(m.lower_size, BIG);
	assert_int_equal(fstatat(d->s.fd, "lower/big", &st, 0), 0);
	assert_true(source_fits_mark(&m, &st, "big", "layer"));
	st.st_size++;
	assert_false(source_fits_mark(&m, &st, "big", "layer"));
	st.st_size--;
	st.st_mtim.tv_nsec ^= 1;
	assert_false(source_fits_mark(&m, &st, "big", "layer"));
}

static void test_source_mark__lower_file_is_needed_as_long_as_a_block_is_its(void **state)
{
	struct tree_dirs *d = *state;
	char *bytes = malloc(BIG);
	struct partial_xattr m;
	struct inode *i;

	make_partial(d);
	assert_int_equal(source_read_mark(d->s.fd, "upper/big", &m, NULL), SOURCE_MARK_PARTIAL);
	tree_mount(d, "volatile");
	assert_int_equal(source_needs_lower(d->t->map, &m, BIG), 1);
	/* None of it is seen. */
	assert_int_equal(source_needs_lower(d->t->map, &m, 0), 0);
	tree_pattern(bytes, BIG, 9);
	i = tree_get(d, "big");
	assert_int_equal(cow_write(d->t, i, bytes, 7 * BLK_BYTES, 0), 0);
	assert_int_equal(source_needs_lower(d->t->map, &m, 7 * BLK_BYTES), 0);
	assert_int_equal(source_needs_lower(d->t->map, &m, 7 * BLK_BYTES + 1), 1);
	/* Of another layer's map. */
	m.uuid_low ^= 1;
	assert_int_equal(source_needs_lower(d->t->map, &m, BIG), -ENOENT);
	tree_forget(d, i);
	free(bytes);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_source_mark__kinds_of_files),
		row(test_source_mark__mark_that_says_nothing_is_damage),
		row(test_source_mark__metacopy_of_a_user_is_not_followed),
		row(test_source_mark__changed_base_does_not_fit),
		row(test_source_mark__lower_file_is_needed_as_long_as_a_block_is_its),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
