// SPDX-License-Identifier: Apache-2.0
#include "veneer/union/quota.h"

#include "support/scratch.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define KIB 1024u

static struct scratch s;
static struct quota *q;

static int make(void **state)
{
	(void)state;
	return scratch_enter(&s);
}

static int leave(void **state)
{
	(void)state;
	quota_free(q);
	q = NULL;
	scratch_leave(&s);
	return 0;
}

static struct quota_usage usage(void)
{
	struct quota_usage u;

	assert_true(quota_usage(q, &u));
	return u;
}

static int make_file(const char *name, size_t size)
{
	int fd = openat(s.fd, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	char buf[4096];

	assert_true(fd >= 0);
	memset(buf, 'x', sizeof(buf));
	for (; size; size -= sizeof(buf))
		assert_int_equal(write(fd, buf, sizeof(buf)), sizeof(buf));
	return fd;
}

static void test_quota__none_allows_everything(void **state)
{
	struct quota_usage u;
	uint64_t room;

	(void)state;
	assert_int_equal(quota_claim(NULL, UINT64_MAX, UINT64_MAX), 0);
	assert_int_equal(quota_claim_range(NULL, -1, 0, UINT64_MAX, &room), 0);
	assert_int_equal(room, 0);
	quota_settle(NULL, -1, 0, 0);
	quota_gone(NULL, 1);
	assert_false(quota_usage(NULL, &u));
}

static void test_quota__counts_what_is_there(void **state)
{
	struct stat st;

	(void)state;
	close(make_file("a", 64 * KIB));
	assert_int_equal(linkat(s.fd, "a", s.fd, "b", 0), 0);
	assert_int_equal(mkdirat(s.fd, "d", 0700), 0);
	assert_int_equal(mkdirat(s.fd, "d/e", 0700), 0);
	close(make_file("d/e/f", 4 * KIB));
	close(make_file("d/.wh.x", 0));
	assert_int_equal(quota_new(s.fd, 1 << 20, 10, &q), 0);
	assert_int_equal(quota_count(q), 0);
	assert_int_equal(usage().inodes, 5);
	assert_true(usage().bytes >= 68 * KIB && usage().bytes < 128 * KIB);
	assert_int_equal(fstatat(s.fd, "a", &st, 0), 0);
	quota_gone(q, st.st_ino);
	quota_gone(q, st.st_ino);
	assert_int_equal(usage().inodes, 4);
	assert_true(usage().bytes < 64 * KIB);
}

static void test_quota__claims_are_kept_until_settled(void **state)
{
	uint64_t room;
	int fd;

	(void)state;
	assert_int_equal(quota_new(s.fd, 100 * KIB, 2, &q), 0);
	assert_int_equal(quota_claim(q, 60 * KIB, 1), 0);
	assert_int_equal(quota_claim(q, 60 * KIB, 0), -ENOSPC);
	assert_int_equal(quota_claim(q, 0, 2), -ENOSPC);
	fd = make_file("f", 40 * KIB);
	quota_settle(q, fd, 60 * KIB, 1);
	assert_int_equal(usage().inodes, 1);
	assert_true(usage().bytes >= 40 * KIB && usage().bytes < 60 * KIB);
	assert_int_equal(quota_claim_range(q, fd, 0, 40 * KIB, &room), 0);
	assert_int_equal(room, 40 * KIB);
	/* Now there is room for nothing that is new, and for what is there. */
	assert_int_equal(quota_claim_range(q, fd, 40 * KIB, 40 * KIB, &room), -ENOSPC);
	assert_int_equal(room, 0);
	assert_int_equal(quota_claim_range(q, fd, 100, 39 * KIB, &room), 0);
	assert_int_equal(room, 0);
	quota_settle(q, fd, 40 * KIB, 0);
	assert_int_equal(ftruncate(fd, 0), 0);
	quota_note(q, fd);
	assert_true(usage().bytes < 8 * KIB);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quota__none_allows_everything),
		cmocka_unit_test_setup_teardown(test_quota__counts_what_is_there, make, leave),
		cmocka_unit_test_setup_teardown(test_quota__claims_are_kept_until_settled, make,
						leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
