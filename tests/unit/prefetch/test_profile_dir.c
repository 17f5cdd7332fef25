// SPDX-License-Identifier: Apache-2.0
#include "prefetch/profile_dir.h"

#include "prefetch/profile_format.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/veneer-profile-dir-XXXXXX";
static int dirfd_ = -1;

static int setup(void **state)
{
	(void)state;
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	assert_non_null(mkdtemp(dir));
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY);
	return dirfd_ < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	struct profile_dir_file *all;
	size_t n;

	(void)state;
	assert_int_equal(profile_dir_list(dirfd_, &all, &n), 0);
	for (size_t i = 0; i < n; i++) {
		char name[PROFILE_DIR_NAME_SIZE];

		profile_dir_name(all[i].key, name);
		unlinkat(dirfd_, name, 0);
	}
	free(all);
	unlinkat(dirfd_, PROFILE_LOCK, 0);
	close(dirfd_);
	return rmdir(dir);
}

static int write_key(uint64_t key)
{
	static char label[] = "/a";
	const struct profile_image img = { .key = key, .starts = 3, .label = label };
	struct buf bytes = { 0 };
	int r = profile_format_encode(&img, &bytes);

	r = r ?: profile_dir_write(dirfd_, key, &bytes);
	buf_release(&bytes);
	return r;
}

static int read_key(uint64_t key)
{
	struct profile_image img;
	int r = profile_dir_read(dirfd_, key, true, NULL, &img), starts = (int)img.starts;

	profile_image_release(&img);
	return r ?: starts;
}

static void make(const char *name)
{
	close(openat(dirfd_, name, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(faccessat(dirfd_, name, F_OK, 0), 0);
}

static void test_profile_dir__reads_what_it_wrote(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(read_key(0xab), -ENOENT);
	assert_int_equal(write_key(0xab), 0);
	assert_int_equal(write_key(0xab), 0);
	assert_int_equal(read_key(0xab), 3);
	assert_int_equal(fstatat(dirfd_, "profile-00000000000000ab", &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

/* A copy under the name of another image is none of that image. */
static void test_profile_dir__the_name_is_the_key(void **state)
{
	(void)state;
	assert_int_equal(write_key(1), 0);
	assert_int_equal(
		renameat(dirfd_, "profile-0000000000000001", dirfd_, "profile-0000000000000002"),
		0);
	assert_int_equal(read_key(2), -EUCLEAN);
}

static void test_profile_dir__one_writer_at_a_time(void **state)
{
	int first = profile_dir_lock(dirfd_), second;

	(void)state;
	assert_true(first >= 0);
	assert_int_equal(profile_dir_lock(dirfd_), -EBUSY);
	close(first);
	second = profile_dir_lock(dirfd_);
	assert_true(second >= 0);
	close(second);
}

static void test_profile_dir__lists_profiles_only(void **state)
{
	static const char *const others[] = { "profile-", "profile-1", "profile-00000000000000AB",
					      "profile-00000000000000ab1", "profiles" };
	struct profile_dir_file *all;
	size_t n;

	(void)state;
	assert_int_equal(write_key(7), 0);
	for (size_t i = 0; i < 5; i++)
		make(others[i]);
	assert_int_equal(profile_dir_list(dirfd_, &all, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(all[0].key, 7);
	assert_true(all[0].size > 0);
	free(all);
	for (size_t i = 0; i < 5; i++)
		unlinkat(dirfd_, others[i], 0);
}

static void test_profile_dir__sweeps_left_overs_and_the_oldest(void **state)
{
	static const char *const left[] = { "profile.new-12", "profile.db", "profile.db-wal",
					    "profile.db-shm" };

	(void)state;
	for (size_t i = 0; i < 4; i++)
		make(left[i]);
	make("another");
	for (uint64_t key = 1; key <= PROFILE_IMAGES_MAX + 2; key++)
		assert_int_equal(write_key(key), 0);
	profile_dir_sweep(dirfd_, 1);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(faccessat(dirfd_, left[i], F_OK, 0), -1);
	assert_int_equal(unlinkat(dirfd_, "another", 0), 0);
	assert_int_equal(read_key(1), 3);
	assert_int_equal(read_key(2), -ENOENT);
	assert_int_equal(read_key(3), -ENOENT);
	assert_int_equal(read_key(4), 3);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_profile_dir__##name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(reads_what_it_wrote),
		TEST(the_name_is_the_key),
		TEST(one_writer_at_a_time),
		TEST(lists_profiles_only),
		TEST(sweeps_left_overs_and_the_oldest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
