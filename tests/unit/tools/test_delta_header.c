// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "tools/archive_library.h"
#include "tools/delta_header.h"

/* clang-format off */
#define CALLS(CALL) \
	CALL(archive_entry_free) CALL(archive_entry_new) CALL(archive_entry_set_gid) \
	CALL(archive_entry_set_hardlink) CALL(archive_entry_set_mode) \
	CALL(archive_entry_set_mtime) CALL(archive_entry_set_rdev) CALL(archive_entry_set_size) \
	CALL(archive_entry_set_symlink) CALL(archive_entry_set_uid) \
	CALL(archive_entry_sparse_add_entry) CALL(archive_entry_xattr_add_entry)
/* clang-format on */

ARCHIVE_LIBRARY_LOADER(CALLS)

static struct archive_entry *make(mode_t mode)
{
	struct archive_entry *e;

	assert_int_equal(load(), 0);
	e = lib.archive_entry_new();
	assert_non_null(e);
	lib.archive_entry_set_mode(e, mode);
	lib.archive_entry_set_uid(e, 10);
	lib.archive_entry_set_gid(e, 20);
	lib.archive_entry_set_mtime(e, 1000, 5);
	lib.archive_entry_set_size(e, 100);
	return e;
}

static uint64_t sum_of(struct archive_entry *e, const char *path, bool is_written)
{
	uint64_t sum = 0;

	assert_int_equal(delta_header_sum(e, path, is_written, &sum), 0);
	return sum;
}

static void test_delta_header__each_field_is_in_the_sum(void **state)
{
	struct archive_entry *e = make(S_IFREG | 0644);
	uint64_t before = sum_of(e, "path", true), now;

	(void)state;
	assert_int_equal(sum_of(e, "path", true), before);
	assert_int_not_equal(sum_of(e, "other", true), before);
#define CHANGES(call)                              \
	do {                                       \
		call;                              \
		now = sum_of(e, "path", true);     \
		assert_int_not_equal(now, before); \
		before = now;                      \
	} while (0)
	CHANGES(lib.archive_entry_set_mode(e, S_IFREG | 0600));
	CHANGES(lib.archive_entry_set_uid(e, 11));
	CHANGES(lib.archive_entry_set_gid(e, 21));
	CHANGES(lib.archive_entry_set_mtime(e, 1001, 5));
	CHANGES(lib.archive_entry_set_mtime(e, 1001, 6));
	CHANGES(lib.archive_entry_set_size(e, 101));
	CHANGES(lib.archive_entry_xattr_add_entry(e, "user.a", "1", 1));
	CHANGES(lib.archive_entry_xattr_add_entry(e, "user.b", "1", 1));
	CHANGES(lib.archive_entry_sparse_add_entry(e, 0, 10));
	lib.archive_entry_free(e);
}

static void test_delta_header__order_of_attributes_does_not_matter(void **state)
{
	struct archive_entry *a = make(S_IFREG | 0644), *b = make(S_IFREG | 0644);

	(void)state;
	lib.archive_entry_xattr_add_entry(a, "user.x", "1", 1);
	lib.archive_entry_xattr_add_entry(a, "user.y", "2", 1);
	lib.archive_entry_xattr_add_entry(b, "user.y", "2", 1);
	assert_int_not_equal(sum_of(a, "p", true), sum_of(b, "p", true));
	lib.archive_entry_xattr_add_entry(b, "user.x", "1", 1);
	assert_int_equal(sum_of(a, "p", true), sum_of(b, "p", true));
	lib.archive_entry_free(a);
	lib.archive_entry_free(b);
}

/* The library has spelled it with %XX on the way. */
static void test_delta_header__name_that_pax_cannot_have_is_the_same_at_both_ends(void **state)
{
	struct archive_entry *a = make(S_IFREG | 0644), *b = make(S_IFREG | 0644);

	(void)state;
	lib.archive_entry_xattr_add_entry(a, "user.a=b c", "1", 1);
	lib.archive_entry_xattr_add_entry(b, "user.a%3Db%20c", "1", 1);
	assert_int_equal(sum_of(a, "p", true), sum_of(b, "p", false));
	lib.archive_entry_free(a);
	lib.archive_entry_free(b);
}

static void test_delta_header__a_link_says_its_name_alone(void **state)
{
	struct archive_entry *a = make(S_IFREG | 0644), *b = make(S_IFREG | 0600);

	(void)state;
	lib.archive_entry_set_hardlink(a, "first");
	lib.archive_entry_set_hardlink(b, "first");
	assert_int_equal(sum_of(a, "p", true), sum_of(b, "p", true));
	lib.archive_entry_set_hardlink(b, "second");
	assert_int_not_equal(sum_of(a, "p", true), sum_of(b, "p", true));
	lib.archive_entry_free(a);
	lib.archive_entry_free(b);
}

static void test_delta_header__target_and_device_count_where_there_are_any(void **state)
{
	struct archive_entry *a = make(S_IFLNK | 0777), *b = make(S_IFLNK | 0777);
	struct archive_entry *c = make(S_IFCHR | 0600), *d = make(S_IFCHR | 0600);

	(void)state;
	lib.archive_entry_set_symlink(a, "one");
	lib.archive_entry_set_symlink(b, "one");
	/* A link has no size of its own. */
	lib.archive_entry_set_size(b, 3);
	assert_int_equal(sum_of(a, "p", true), sum_of(b, "p", true));
	lib.archive_entry_set_symlink(b, "two");
	assert_int_not_equal(sum_of(a, "p", true), sum_of(b, "p", true));
	lib.archive_entry_set_rdev(c, 5);
	lib.archive_entry_set_rdev(d, 6);
	assert_int_not_equal(sum_of(c, "p", true), sum_of(d, "p", true));
	lib.archive_entry_free(a);
	lib.archive_entry_free(b);
	lib.archive_entry_free(c);
	lib.archive_entry_free(d);
}

static void expect_name(const char *text, const char *name)
{
	/* Of just its length: nothing behind its end is read. */
	char *copy = strdup(text);

	delta_header_decode_name(copy);
	assert_string_equal(copy, name);
	free(copy);
}

static void test_delta_header__names_are_decoded_as_far_as_they_are_spelled(void **state)
{
	(void)state;
	expect_name("", "");
	expect_name("user.plain", "user.plain");
	expect_name("user.a%3Db", "user.a=b");
	expect_name("%25%25", "%%");
	expect_name("100%", "100%");
	expect_name("%2", "%2");
	expect_name("%ZZ", "%ZZ");
	expect_name("%2g", "%2g");
	/* Only as the library writes them; and none that ends the name. */
	expect_name("%3d", "%3d");
	expect_name("a%00b", "a%00b");
	expect_name("%%3D", "%=");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_delta_header__each_field_is_in_the_sum),
		cmocka_unit_test(test_delta_header__order_of_attributes_does_not_matter),
		cmocka_unit_test(
			test_delta_header__name_that_pax_cannot_have_is_the_same_at_both_ends),
		cmocka_unit_test(test_delta_header__a_link_says_its_name_alone),
		cmocka_unit_test(test_delta_header__target_and_device_count_where_there_are_any),
		cmocka_unit_test(test_delta_header__names_are_decoded_as_far_as_they_are_spelled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
