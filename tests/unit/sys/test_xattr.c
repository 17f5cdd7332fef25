// SPDX-License-Identifier: Apache-2.0
/* Every behaviour is tried as this kernel has it, and again with the *at calls refused. */
#include "veneer/sys/xattr.h"

#include "support/scratch.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>

enum { NR_SETXATTRAT = 463, NR_REMOVEXATTRAT = 466 };

static struct scratch dir;
static bool is_again;

static int setup(void **state)
{
	(void)state;
	assert_int_equal(scratch_enter(&dir), 0);
	close(openat(dir.fd, "file", O_CREAT | O_WRONLY, 0600));
	assert_int_equal(mkdirat(dir.fd, "sub", 0700), 0);
	assert_int_equal(symlinkat("file", dir.fd, "link"), 0);
	assert_int_equal(symlinkat("nowhere", dir.fd, "dangling"), 0);
	if (xattr_set(dir.fd, "file", "user.probe", "", 0, 0) < 0) {
		scratch_leave(&dir);
		print_message("no user.* attributes on this file system\n");
		exit(77);
	}
	assert_int_equal(xattr_remove(dir.fd, "file", "user.probe"), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	scratch_leave(&dir);
	return 0;
}

/* Set, get, list, remove, and their usual errors. */
static void exercise(int dirfd, const char *name)
{
	char value[64];

	assert_int_equal(xattr_get(dirfd, name, "user.a", value, sizeof(value)), -ENODATA);
	assert_int_equal(xattr_remove(dirfd, name, "user.a"), -ENODATA);
	assert_int_equal(xattr_set(dirfd, name, "user.a", "x", 1, XATTR_REPLACE), -ENODATA);
	assert_int_equal(xattr_set(dirfd, name, "user.a", "hello", 5, XATTR_CREATE), 0);
	assert_int_equal(xattr_set(dirfd, name, "user.a", "x", 1, XATTR_CREATE), -EEXIST);
	assert_int_equal(xattr_get(dirfd, name, "user.a", value, sizeof(value)), 5);
	assert_memory_equal(value, "hello", 5);
	assert_int_equal(xattr_get(dirfd, name, "user.a", NULL, 0), 5);
	assert_int_equal(xattr_get(dirfd, name, "user.a", value, 0), 5);
	assert_int_equal(xattr_get(dirfd, name, "user.a", value, 2), -ERANGE);
	assert_int_equal(xattr_list(dirfd, name, value, sizeof(value)), 7);
	assert_memory_equal(value, "user.a", 7);
	assert_int_equal(xattr_list(dirfd, name, NULL, 0), 7);
	assert_int_equal(xattr_list(dirfd, name, value, 3), -ERANGE);
	assert_int_equal(xattr_remove(dirfd, name, "user.a"), 0);
	assert_int_equal(xattr_list(dirfd, name, value, sizeof(value)), 0);
}

static void test_xattr__name_in_a_directory(void **state)
{
	int dirfd = open(dir.path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	(void)state;
	exercise(dir.fd, "file");
	exercise(dirfd, "file");
	exercise(dirfd, "sub");
	exercise(dirfd, ".");
	close(dirfd);
}

static void test_xattr__empty_name_is_the_descriptor(void **state)
{
	int fd = openat(dir.fd, "file", O_RDWR | O_CLOEXEC);

	(void)state;
	exercise(dir.fd, "");
	exercise(fd, "");
	close(fd);
}

static void test_xattr__o_path_descriptor(void **state)
{
	int fd = openat(dir.fd, "file", O_PATH | O_NOFOLLOW | O_CLOEXEC);
	int dirfd = openat(dir.fd, "sub", O_PATH | O_CLOEXEC);

	(void)state;
	exercise(fd, "");
	exercise(dirfd, "");
	close(fd);
	close(dirfd);
}

static void test_xattr__o_path_descriptor_of_an_unlinked_file(void **state)
{
	close(openat(dir.fd, "gone", O_CREAT | O_WRONLY, 0600));

	int fd = openat(dir.fd, "gone", O_PATH | O_NOFOLLOW | O_CLOEXEC);

	(void)state;
	assert_int_equal(unlinkat(dir.fd, "gone", 0), 0);
	exercise(fd, "");
	close(fd);
}

/* user.* is refused on symlinks, so their targets tell whether one was followed. */
static void test_xattr__last_symlink_is_not_followed(void **state)
{
	int fd = openat(dir.fd, "link", O_PATH | O_NOFOLLOW | O_CLOEXEC);
	char value[8];

	(void)state;
	assert_int_equal(xattr_set(dir.fd, "file", "user.seen", "y", 1, 0), 0);
	assert_true(xattr_get(dir.fd, "link", "user.seen", value, sizeof(value)) < 0);
	assert_true(xattr_get(fd, "", "user.seen", value, sizeof(value)) < 0);
	assert_int_equal(xattr_set(dir.fd, "link", "user.new", "y", 1, 0), -EPERM);
	assert_int_equal(xattr_set(fd, "", "user.new", "y", 1, 0), -EPERM);
	assert_int_equal(xattr_list(dir.fd, "dangling", NULL, 0), 0);
	assert_int_equal(xattr_list(fd, "", NULL, 0), 0);
	assert_int_equal(xattr_remove(dir.fd, "file", "user.seen"), 0);
	close(fd);
	if (xattr_set(dir.fd, "dangling", "trusted.veneer", "y", 1, 0) == 0) {
		assert_int_equal(xattr_get(dir.fd, "dangling", "trusted.veneer", value, 8), 1);
		assert_int_equal(xattr_remove(dir.fd, "dangling", "trusted.veneer"), 0);
	}
}

static void test_xattr__missing_names_and_bad_descriptors(void **state)
{
	char value[8];

	(void)state;
	assert_int_equal(xattr_get(dir.fd, "none", "user.a", value, sizeof(value)), -ENOENT);
	assert_int_equal(xattr_set(dir.fd, "none", "user.a", "x", 1, 0), -ENOENT);
	assert_int_equal(xattr_remove(dir.fd, "none", "user.a"), -ENOENT);
	assert_int_equal(xattr_list(dir.fd, "none", value, sizeof(value)), -ENOENT);
	assert_true(xattr_get(-1, "", "user.a", value, sizeof(value)) < 0);
	assert_int_equal(xattr_get(dir.fd, "file", "nonsense", value, sizeof(value)), -EOPNOTSUPP);
	assert_int_equal(xattr_set(dir.fd, "file", "user.a", dir.path, (size_t)1 << 33, 0), -E2BIG);
}

static void test_xattr__whole_values_of_any_size(void **state)
{
	/* Around the first guess; ext4 holds some 4000 bytes in all. */
	static const size_t sizes[] = { 0, 1, 255, 256, 257, 1000, 3000 };
	char in[3000];

	(void)state;
	memset(in, 'v', sizeof(in));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		char *value = NULL;

		assert_int_equal(xattr_set(dir.fd, "file", "user.v", in, sizes[i], 0), 0);
		assert_int_equal(xattr_get_alloc(dir.fd, "file", "user.v", &value), sizes[i]);
		assert_non_null(value);
		assert_memory_equal(value, in, sizes[i]);
		assert_int_equal(value[sizes[i]], '\0');
		free(value);
	}
	assert_int_equal(xattr_remove(dir.fd, "file", "user.v"), 0);

	char *untouched = in;

	assert_int_equal(xattr_get_alloc(dir.fd, "file", "user.v", &untouched), -ENODATA);
	assert_ptr_equal(untouched, in);
}

static void test_xattr__whole_lists_of_any_size(void **state)
{
	char *list = (char *)"";
	char attr[64];

	(void)state;
	assert_int_equal(xattr_list_alloc(dir.fd, "file", &list), 0);
	assert_null(list);
	for (int i = 0; i < 20; i++) {
		snprintf(attr, sizeof(attr), "user.a-rather-long-name-%02d", i);
		assert_int_equal(xattr_set(dir.fd, "file", attr, "", 0, 0), 0);
	}

	ssize_t n = xattr_list_alloc(dir.fd, "file", &list);

	assert_int_equal(n, 20 * 27);
	for (int i = 0; i < 20; i++) {
		snprintf(attr, sizeof(attr), "user.a-rather-long-name-%02d", i);
		assert_non_null(memmem(list, (size_t)n, attr, strlen(attr) + 1));
		assert_int_equal(xattr_remove(dir.fd, "file", attr), 0);
	}
	free(list);
}

static void *hammer(void *name)
{
	for (int i = 0; i < 200; i++) {
		char *value = NULL;

		if (xattr_set(dir.fd, name, "user.t", name, strlen(name), 0) < 0 ||
		    xattr_get_alloc(dir.fd, name, "user.t", &value) != (ssize_t)strlen(name))
			return NULL;
		free(value);
	}
	return name;
}

static void test_xattr__threads_do_not_disturb_each_other(void **state)
{
	static char names[4][8] = { "t0", "t1", "t2", "t3" };
	pthread_t threads[4];

	(void)state;
	for (int i = 0; i < 4; i++) {
		close(openat(dir.fd, names[i], O_CREAT | O_WRONLY, 0600));
		assert_int_equal(pthread_create(&threads[i], NULL, hammer, names[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		void *ret;

		assert_int_equal(pthread_join(threads[i], &ret), 0);
		assert_ptr_equal(ret, names[i]);
	}
}

static bool is_wanted(const char *attr)
{
	return strcmp(attr, "user.b") != 0;
}

static void test_xattr__those_that_count_are_copied(void **state)
{
	int from = memfd_create("from", 0), to = memfd_create("to", 0);
	char value[8];

	(void)state;
	/* Where the memory's file system has none there is nothing to see. */
	if (fsetxattr(from, "user.a", "A", 1, 0) < 0) {
		assert_int_equal(xattr_copy(from, to, NULL), 0);
	} else {
		assert_int_equal(fsetxattr(from, "user.b", "B", 1, 0), 0);
		assert_int_equal(xattr_copy(from, to, is_wanted), 0);
		assert_int_equal(fgetxattr(to, "user.a", value, sizeof(value)), 1);
		assert_int_equal(fgetxattr(to, "user.b", value, sizeof(value)), -1);
		assert_int_equal(xattr_copy(from, to, NULL), 0);
		assert_int_equal(fgetxattr(to, "user.b", value, sizeof(value)), 1);
	}
	close(from);
	close(to);
}

static void test_xattr__same_without_the_at_calls(void **state)
{
	(void)state;
	if (is_again)
		return;
	assert_int_equal(scratch_run_self("ENOSYS"), 0);
	assert_int_equal(scratch_run_self("EPERM"), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_xattr__name_in_a_directory),
		cmocka_unit_test(test_xattr__empty_name_is_the_descriptor),
		cmocka_unit_test(test_xattr__o_path_descriptor),
		cmocka_unit_test(test_xattr__o_path_descriptor_of_an_unlinked_file),
		cmocka_unit_test(test_xattr__last_symlink_is_not_followed),
		cmocka_unit_test(test_xattr__missing_names_and_bad_descriptors),
		cmocka_unit_test(test_xattr__whole_values_of_any_size),
		cmocka_unit_test(test_xattr__whole_lists_of_any_size),
		cmocka_unit_test(test_xattr__threads_do_not_disturb_each_other),
		cmocka_unit_test(test_xattr__those_that_count_are_copied),
		cmocka_unit_test(test_xattr__same_without_the_at_calls),
	};

	is_again = argc > 1;
	for (int nr = NR_SETXATTRAT; is_again && nr <= NR_REMOVEXATTRAT; nr++) {
		if (scratch_deny(nr, strcmp(argv[1], "EPERM") ? ENOSYS : EPERM) < 0)
			return 77;
	}
	return cmocka_run_group_tests(tests, setup, teardown);
}
