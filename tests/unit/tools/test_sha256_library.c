// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "tools/sha256_library.h"

#include <sys/mman.h>

static void expect_digest(const void *data, size_t len, const char *digest)
{
	char got[SHA256_LIBRARY_HEX + 1];
	int fd = memfd_create("sha256", MFD_CLOEXEC);

	assert_int_equal(pwrite(fd, data, len, 0), len);
	/* From the beginning, wherever the descriptor stands. */
	lseek(fd, 3, SEEK_SET);
	assert_int_equal(sha256_library_file(fd, got), 0);
	assert_string_equal(got, digest);
	assert_int_equal(lseek(fd, 0, SEEK_CUR), 3);
	close(fd);
}

/* The examples of FIPS 180-4. */
static void test_sha256_library__digests_of_the_standard(void **state)
{
	char *million = malloc(1000000);

	(void)state;
	assert_non_null(million);
	expect_digest("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	expect_digest("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	expect_digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
		      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
	memset(million, 'a', 1000000);
	expect_digest(million, 1000000,
		      "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
	free(million);
}

static void test_sha256_library__file_of_several_steps(void **state)
{
	/* One step is a mebibyte: two of zeros, as sha256sum(1) has it, and a byte more. */
	static const char digest[] =
		"5647f05ec18958947d32874eeb788fa396a05d0bab7c1b71f112ceb7e9b31eee";
	char *zeros = calloc(1, (2u << 20) + 1), got[SHA256_LIBRARY_HEX + 1],
	     again[SHA256_LIBRARY_HEX + 1];
	int fd = memfd_create("sha256", MFD_CLOEXEC);

	(void)state;
	assert_non_null(zeros);
	expect_digest(zeros, 2u << 20, digest);
	/* A hole reads as zeros. */
	assert_int_equal(ftruncate(fd, 2 << 20), 0);
	assert_int_equal(sha256_library_file(fd, got), 0);
	assert_string_equal(got, digest);
	assert_int_equal(ftruncate(fd, (2 << 20) + 1), 0);
	assert_int_equal(sha256_library_file(fd, again), 0);
	assert_string_not_equal(again, got);
	close(fd);
	free(zeros);
}

static void test_sha256_library__file_that_cannot_be_read(void **state)
{
	char got[SHA256_LIBRARY_HEX + 1];
	int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

	(void)state;
	assert_int_equal(sha256_library_file(-1, got), -EBADF);
	assert_int_equal(sha256_library_file(fd, got), -EBADF);
	close(fd);
	fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(sha256_library_file(fd, got), -EISDIR);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sha256_library__digests_of_the_standard),
		cmocka_unit_test(test_sha256_library__file_of_several_steps),
		cmocka_unit_test(test_sha256_library__file_that_cannot_be_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
