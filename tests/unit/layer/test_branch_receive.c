// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/scratch.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/layer/branch_receive.h"
#include "veneer/map/mapfile.h"

#include <sys/stat.h>

static int setup(void **state)
{
	struct scratch *s = calloc(1, sizeof(*s));

	*state = s;
	return s ? scratch_enter(s) : -1;
}

static int teardown(void **state)
{
	scratch_leave(*state);
	free(*state);
	return 0;
}

static void put(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	close(fd);
}

static bool is_there(int dirfd, const char *name)
{
	return faccessat(dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static const struct branch_chain_entry one = { .id = 5, .name = "one" };

static void test_branch_receive__snapshot_gets_into_the_chain_at_once(void **state)
{
	const struct scratch *s = *state;
	struct branch_chain c = { 0 };
	struct branch_receive b;
	int fd;

	assert_int_equal(branch_receive_begin(s->fd, false, &b), 0);
	put(b.root, "file");
	assert_int_equal(branch_dir_load(s->fd, &c), -ENOENT);
	assert_int_equal(branch_receive_publish(s->fd, &b, &one, true), 0);
	branch_receive_release(&b);
	assert_int_equal(branch_dir_load(s->fd, &c), 0);
	assert_int_equal(c.n, 1);
	assert_int_equal(c.head, 5);
	assert_string_equal(c.entries[0].name, "one");
	fd = branch_dir_open(s->fd, 5);
	assert_true(is_there(fd, "file"));
	close(fd);
	branch_chain_release(&c);
	/* Nothing to go on with. */
	assert_int_equal(branch_receive_begin(s->fd, true, &b), -ENOENT);
	branch_receive_release(&b);
	assert_int_equal(branch_receive_abort(s->fd), -ENOENT);
}

static void test_branch_receive__one_that_stands_on_another_leaves_the_head(void **state)
{
	const struct branch_chain_entry two = { .id = 6, .parent = 5, .name = "two" },
					same = { .id = 7, .parent = 5, .name = "one" },
					lost = { .id = 8, .parent = 99, .name = "lost" };
	const struct scratch *s = *state;
	struct branch_chain c = { 0 };
	struct branch_receive b;

	assert_int_equal(branch_receive_begin(s->fd, false, &b), 0);
	assert_int_equal(branch_receive_publish(s->fd, &b, &one, true), 0);
	branch_receive_release(&b);
	assert_int_equal(branch_receive_begin(s->fd, false, &b), 0);
	put(b.root, "file");
	/* The live part does not stand on what it would have to stand on. */
	assert_int_equal(
		branch_receive_publish(
			s->fd, &b, &(struct branch_chain_entry){ .id = 6, .name = "two" }, true),
		-EBUSY);
	assert_int_equal(branch_receive_publish(s->fd, &b, &same, false), -EEXIST);
	assert_true(branch_receive_publish(s->fd, &b, &lost, false) < 0);
	/* It is as it was, and can be published once more. */
	assert_true(is_there(b.root, "file"));
	assert_int_equal(branch_receive_publish(s->fd, &b, &two, false), 0);
	branch_receive_release(&b);
	assert_int_equal(branch_dir_load(s->fd, &c), 0);
	assert_int_equal(c.n, 2);
	assert_int_equal(c.head, 5);
	branch_chain_release(&c);
}

static void test_branch_receive__one_process_receives_at_a_time(void **state)
{
	const struct scratch *s = *state;
	struct branch_receive a, b;

	assert_int_equal(branch_receive_begin(s->fd, false, &a), 0);
	assert_int_equal(branch_receive_begin(s->fd, false, &b), -EBUSY);
	branch_receive_release(&b);
	assert_int_equal(branch_receive_begin(s->fd, true, &b), -EBUSY);
	branch_receive_release(&b);
	assert_int_equal(branch_receive_abort(s->fd), -EBUSY);
	branch_receive_release(&a);
	assert_int_equal(branch_receive_begin(s->fd, false, &b), 0);
	branch_receive_release(&b);
}

static void test_branch_receive__chain_that_is_being_changed_is_waited_for_by_nobody(void **state)
{
	const struct scratch *s = *state;
	struct branch_receive b;
	int lock;

	assert_int_equal(branch_receive_begin(s->fd, false, &b), 0);
	lock = branch_dir_lock(s->fd);
	assert_true(lock >= 0);
	assert_int_equal(branch_receive_publish(s->fd, &b, &one, true), -EBUSY);
	close(lock);
	assert_int_equal(branch_receive_publish(s->fd, &b, &one, true), 0);
	branch_receive_release(&b);
}

static void expect_token(const struct scratch *s, const char *token)
{
	char got[BRANCH_RECEIVE_TOKEN_MAX] = "of before";

	assert_int_equal(branch_receive_token(s->fd, got), 0);
	assert_string_equal(got, token);
}

static void test_branch_receive__rest_of_an_earlier_call_goes_on(void **state)
{
	const struct scratch *s = *state;
	struct branch_receive b;

	expect_token(s, "");
	assert_int_equal(branch_receive_begin(s->fd, false, &b), 0);
	put(b.root, "file");
	expect_token(s, "");
	assert_int_equal(branch_receive_keep(&b, "half"), 0);
	assert_int_equal(branch_receive_keep(&b, "two thirds"), 0);
	branch_receive_release(&b);
	expect_token(s, "two thirds");
	assert_int_equal(branch_receive_begin(s->fd, true, &b), 0);
	assert_true(is_there(b.root, "file"));
	/* What is made from now on is not in it. */
	expect_token(s, "");
	branch_receive_release(&b);
	/* A new one begins anew. */
	assert_int_equal(branch_receive_begin(s->fd, false, &b), 0);
	assert_false(is_there(b.root, "file"));
	branch_receive_release(&b);
}

static void test_branch_receive__nothing_is_left_of_one_that_is_given_up(void **state)
{
	const struct scratch *s = *state;
	struct branch_receive b = BRANCH_RECEIVE_NONE;

	branch_receive_cancel(s->fd, &b);
	branch_receive_release(&b);
	assert_int_equal(branch_receive_begin(s->fd, false, &b), 0);
	put(b.root, "file");
	branch_receive_cancel(s->fd, &b);
	branch_receive_release(&b);
	assert_false(is_there(s->fd, BRANCH_DIR_NAME));
	assert_int_equal(branch_receive_begin(s->fd, false, &b), 0);
	assert_int_equal(branch_receive_keep(&b, "half"), 0);
	branch_receive_release(&b);
	assert_int_equal(branch_receive_abort(s->fd), 0);
	assert_false(is_there(s->fd, BRANCH_DIR_NAME));
	assert_int_equal(branch_receive_abort(s->fd), -ENOENT);
}

/* Anything may have been put there by another user of the host. */
static void test_branch_receive__place_that_others_may_write_in_is_not_used(void **state)
{
	const struct scratch *s = *state;
	struct branch_receive b;

	assert_int_equal(branch_receive_begin(s->fd, false, &b), 0);
	assert_int_equal(branch_receive_keep(&b, "half"), 0);
	assert_int_equal(fchmod(b.fd, 0722), 0);
	branch_receive_release(&b);
	assert_int_equal(branch_receive_begin(s->fd, true, &b), -EPERM);
	branch_receive_release(&b);
}

static void test_branch_receive__token_that_is_no_file_is_an_error(void **state)
{
	char longer[2 * BRANCH_RECEIVE_TOKEN_MAX], got[BRANCH_RECEIVE_TOKEN_MAX];
	const struct scratch *s = *state;
	struct branch_receive b;

	assert_int_equal(branch_receive_begin(s->fd, false, &b), 0);
	memset(longer, 't', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	assert_int_equal(branch_receive_keep(&b, longer), 0);
	assert_int_equal(branch_receive_token(s->fd, got), 0);
	assert_int_equal(strlen(got), BRANCH_RECEIVE_TOKEN_MAX - 1);
	assert_int_equal(unlinkat(b.fd, "token", 0), 0);
	assert_int_equal(symlinkat("/etc/passwd", b.fd, "token"), 0);
	assert_true(branch_receive_token(s->fd, got) < 0);
	assert_string_equal(got, "");
	branch_receive_release(&b);
}

static void test_branch_receive__empty_is_what_has_entries_of_its_own_alone(void **state)
{
	const struct scratch *s = *state;
	struct branch_receive b;
	int fd;

	assert_int_equal(branch_receive_is_empty(s->fd), 1);
	assert_int_equal(branch_receive_begin(s->fd, false, &b), 0);
	branch_receive_release(&b);
	put(s->fd, MAPFILE_NAME);
	assert_int_equal(branch_receive_is_empty(s->fd), 1);
	put(s->fd, "file");
	assert_int_equal(branch_receive_is_empty(s->fd), 0);
	/* What cannot be read is not empty. */
	fd = openat(s->fd, "file", O_RDONLY | O_CLOEXEC);
	assert_int_equal(branch_receive_is_empty(fd), -ENOTDIR);
	close(fd);
	assert_int_equal(branch_receive_is_empty(1000000), -EBADF);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_branch_receive__snapshot_gets_into_the_chain_at_once),
		row(test_branch_receive__one_that_stands_on_another_leaves_the_head),
		row(test_branch_receive__one_process_receives_at_a_time),
		row(test_branch_receive__chain_that_is_being_changed_is_waited_for_by_nobody),
		row(test_branch_receive__rest_of_an_earlier_call_goes_on),
		row(test_branch_receive__nothing_is_left_of_one_that_is_given_up),
		row(test_branch_receive__place_that_others_may_write_in_is_not_used),
		row(test_branch_receive__token_that_is_no_file_is_an_error),
		row(test_branch_receive__empty_is_what_has_entries_of_its_own_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
