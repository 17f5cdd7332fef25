// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/layer/mode_xattr.h"

static void test_mode_xattr__values_are_read_or_refused_whole(void **state)
{
	static const struct {
		const char *text;
		bool is_good;
		uid_t uid;
		gid_t gid;
		mode_t mode;
	} rows[] = {
		{ "0:0:0755", true, 0, 0, 0755 },
		{ "12:34:4750:file", true, 12, 34, 04750 },
		{ "1:2:100644", true, 1, 2, 0644 },
		{ "1:2:40755:dir", true, 1, 2, 0755 },
		{ "1:2:0600:char-1-3", true, 1, 2, 0600 },
		{ "4294967294:4294967294:7777", true, 4294967294, 4294967294, 07777 },
		{ "4294967295:0:644", false, 0, 0, 0 },
		{ "0:4294967295:644", false, 0, 0, 0 },
		{ "99999999999999999999:0:644", false, 0, 0, 0 },
		{ "-1:0:644", false, 0, 0, 0 },
		{ " 1:0:644", false, 0, 0, 0 },
		{ "+1:0:644", false, 0, 0, 0 },
		{ "1:0:8", false, 0, 0, 0 },
		{ "1:0:200000", false, 0, 0, 0 },
		{ "1:0:644x", false, 0, 0, 0 },
		{ "1:0", false, 0, 0, 0 },
		{ "1:0:", false, 0, 0, 0 },
		{ "", false, 0, 0, 0 },
	};

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		struct stat st = { .st_mode = S_IFREG | 0111, .st_uid = 77, .st_gid = 88 };
		bool is_good = mode_xattr_parse(rows[k].text, strlen(rows[k].text), &st);

		if (is_good != rows[k].is_good)
			fail_msg("%s is %s", rows[k].text, is_good ? "taken" : "refused");
		assert_int_equal(st.st_mode, S_IFREG | (is_good ? rows[k].mode : 0111));
		assert_int_equal(st.st_uid, is_good ? rows[k].uid : 77);
		assert_int_equal(st.st_gid, is_good ? rows[k].gid : 88);
	}
}

static void test_mode_xattr__length_counts_and_not_a_nul(void **state)
{
	struct stat st = { .st_mode = S_IFREG };
	char longest[300];

	(void)state;
	assert_false(mode_xattr_parse("1:2:644\0", 8, &st));
	assert_true(mode_xattr_parse("1:2:6444", 7, &st));
	assert_int_equal(st.st_mode & 07777, 0644);
	memset(longest, 'x', sizeof(longest));
	memcpy(longest, "1:2:644:", 8);
	assert_true(mode_xattr_parse(longest, 100, &st));
	assert_false(mode_xattr_parse(longest, sizeof(longest), &st));
}

static void test_mode_xattr__what_is_stored_reads_the_same(void **state)
{
	struct tree_dirs *d = *state;
	const struct stat want = { .st_uid = 123456, .st_gid = 7, .st_mode = S_IFREG | 06751 };
	struct stat st = { .st_mode = S_IFREG };
	int fd;

	tree_put_text(d, "lower/f", "x");
	fd = openat(d->s.fd, "lower/f", O_RDWR);
	assert_int_equal(mode_xattr_store(fd, mode_xattr_for_option(2), &want), 0);
	mode_xattr_apply(fd, "", mode_xattr_for_option(2), &st);
	close(fd);
	assert_int_equal(st.st_uid, 123456);
	assert_int_equal(st.st_gid, 7);
	assert_int_equal(st.st_mode, S_IFREG | 06751);
}

static void test_mode_xattr__types_other_than_files_and_directories_keep_their_own(void **state)
{
	struct tree_dirs *d = *state;
	const struct stat want = { .st_uid = 5, .st_gid = 5, .st_mode = S_IFREG | 0600 };
	struct stat st = { .st_mode = S_IFIFO | 0640 };
	int fd;

	tree_put_text(d, "lower/f", "x");
	fd = openat(d->s.fd, "lower/f", O_RDWR);
	assert_int_equal(mode_xattr_store(fd, mode_xattr_for_option(2), &want), 0);
	mode_xattr_apply(fd, "", mode_xattr_for_option(2), &st);
	mode_xattr_apply(fd, "", NULL, &st);
	close(fd);
	assert_int_equal(st.st_mode, S_IFIFO | 0640);
	assert_int_equal(st.st_uid, 0);
}

static void test_mode_xattr__root_tells_which_attribute_the_first_in_order_wins(void **state)
{
	struct tree_dirs *d = *state;
	int fd = openat(d->s.fd, "lower", O_RDONLY | O_DIRECTORY);

	assert_null(mode_xattr_detect(fd));
	assert_int_equal(fsetxattr(fd, "user.fuseoverlayfs.override_stat", "0:0:755", 7, 0), 0);
	assert_string_equal(mode_xattr_detect(fd), "user.fuseoverlayfs.override_stat");
	assert_int_equal(fsetxattr(fd, "user.containers.override_stat", "0:0:755", 7, 0), 0);
	assert_string_equal(mode_xattr_detect(fd), "user.containers.override_stat");
	close(fd);
	assert_null(mode_xattr_for_option(0));
	assert_true(mode_xattr_is_attr(mode_xattr_for_option(1)));
	assert_false(mode_xattr_is_attr("user.containers.override_stats"));
}

static void test_mode_xattr__real_mode_is_one_that_we_can_use(void **state)
{
	(void)state;
	assert_int_equal(mode_xattr_real_mode(S_IFREG | 06000), S_IFREG | 0755);
	assert_int_equal(mode_xattr_real_mode(S_IFDIR | 0777), S_IFDIR | 0777);
	assert_int_equal(mode_xattr_acl_mode(S_IFREG | 06000), S_IFREG | 0700);
	assert_int_equal(mode_xattr_acl_mode(S_IFREG | 0247), S_IFREG | 0747);
}

/* Tag, permissions, id; the first entry is the version. */
static void test_mode_xattr__a_mode_limits_an_access_acl(void **state)
{
	static const uint8_t with_mask[] = { 2,	  0,   0,   0,	 1,   0,   7,  0,   255, 255, 255,
					     255, 2,   0,   7,	 0,   232, 3,  0,   0,	 4,   0,
					     5,	  0,   255, 255, 255, 255, 16, 0,   7,	 0,   255,
					     255, 255, 255, 32,	 0,   5,   0,  255, 255, 255, 255 };
	static const uint8_t other_version[] = { 3, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255 };
	uint8_t acl[sizeof(with_mask)];

	(void)state;
	memcpy(acl, with_mask, sizeof(acl));
	mode_xattr_limit_acl(acl, sizeof(acl), S_IFREG | 0642);
	assert_int_equal(acl[6], 6);
	assert_int_equal(acl[14], 7);
	assert_int_equal(acl[22], 5);
	assert_int_equal(acl[30], 4);
	assert_int_equal(acl[38], 2);
	/* without the mask */
	memcpy(acl, with_mask, sizeof(acl));
	mode_xattr_limit_acl(acl, 28, S_IFREG | 0642);
	assert_int_equal(acl[22], 4);
	/* what is no ACL */
	memcpy(acl, with_mask, sizeof(acl));
	for (size_t n = 0; n < 4; n++)
		mode_xattr_limit_acl(acl, n, 0);
	mode_xattr_limit_acl(acl, 27, 0);
	assert_memory_equal(acl, with_mask, sizeof(acl));
	memcpy(acl, other_version, sizeof(other_version));
	mode_xattr_limit_acl(acl, sizeof(other_version), 0);
	assert_memory_equal(acl, other_version, sizeof(other_version));
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_mode_xattr__values_are_read_or_refused_whole),
		row(test_mode_xattr__length_counts_and_not_a_nul),
		row(test_mode_xattr__what_is_stored_reads_the_same),
		row(test_mode_xattr__types_other_than_files_and_directories_keep_their_own),
		row(test_mode_xattr__root_tells_which_attribute_the_first_in_order_wins),
		row(test_mode_xattr__real_mode_is_one_that_we_can_use),
		row(test_mode_xattr__a_mode_limits_an_access_acl),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
