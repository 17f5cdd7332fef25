// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "server/handoff_message.h"
#include "veneer/base/cleanup.h"
#include "veneer/server/sb_registry.h"

static void fill(struct handoff_message *b)
{
	*b = (struct handoff_message){ .owns_socket = true,
				       .listen_fd = 3,
				       .notify_fd = -1,
				       .hash_secret = 1ull << 60 | 7,
				       .last_key = 1ull << 40 };
	assert_int_equal(handoff_message_add_mount(b, 9), 0);
	assert_int_equal(handoff_message_add_mount(b, 300000), 0);
	assert_int_equal(handoff_message_add_fd(b, 3), 0);
	for (int fd = 9; fd < 30; fd++)
		assert_int_equal(handoff_message_add_fd(b, fd), 0);
	assert_int_equal(handoff_message_add_fd(b, 300000), 0);
	assert_int_equal(buf_put(&b->journal, "journal", 7), 0);
}

static int recode(const struct handoff_message *b, struct handoff_message *ret)
{
	_cleanup_(buf_release) struct buf bytes = { 0 };

	assert_int_equal(handoff_message_encode(b, &bytes), 0);
	return handoff_message_decode(bytes.data, bytes.len, ret);
}

static void test_handoff_message__comes_back_as_it_was(void **state)
{
	_cleanup_(handoff_message_release) struct handoff_message b, got;

	(void)state;
	fill(&b);
	assert_int_equal(recode(&b, &got), 0);
	assert_true(got.owns_socket);
	assert_int_equal(got.listen_fd, 3);
	assert_int_equal(got.notify_fd, -1);
	assert_true(got.hash_secret == b.hash_secret && got.last_key == b.last_key);
	assert_int_equal(got.n_mounts, 2);
	assert_memory_equal(got.mounts, b.mounts, 2 * sizeof(int));
	assert_int_equal(got.n_fds, 23);
	assert_memory_equal(got.fds, b.fds, 23 * sizeof(int));
	assert_int_equal(got.journal.len, 7);
	assert_memory_equal(got.journal.data, "journal", 7);
}

static void test_handoff_message__no_piece_of_one_is_taken(void **state)
{
	_cleanup_(buf_release) struct buf bytes = { 0 };
	_cleanup_(handoff_message_release) struct handoff_message b, got;

	(void)state;
	fill(&b);
	assert_int_equal(handoff_message_encode(&b, &bytes), 0);
	for (size_t len = 4; len < bytes.len; len++)
		assert_int_equal(handoff_message_decode(bytes.data, len, &got), -EBADMSG);
	assert_int_equal(buf_put_u8(&bytes, 0), 0);
	assert_int_equal(handoff_message_decode(bytes.data, bytes.len, &got), -EBADMSG);
	bytes.data[0]++;
	assert_int_equal(handoff_message_decode(bytes.data, bytes.len - 1, &got), -EPROTO);
}

static void test_handoff_message__counts_that_lie_are_no_memory(void **state)
{
	_cleanup_(buf_release) struct buf bytes = { 0 };
	_cleanup_(handoff_message_release) struct handoff_message b, got;

	(void)state;
	fill(&b);
	assert_int_equal(handoff_message_encode(&b, &bytes), 0);
	memset(bytes.data + 32, 0xff, 4);
	assert_int_equal(handoff_message_decode(bytes.data, bytes.len, &got), -EBADMSG);
}

static void test_handoff_message__each_number_it_names_must_come(void **state)
{
	_cleanup_(handoff_message_release) struct handoff_message b, got;

	(void)state;
	fill(&b);
	b.listen_fd = 4;
	assert_int_equal(recode(&b, &got), -EBADMSG);
	b.listen_fd = 3;
	b.notify_fd = 4;
	assert_int_equal(recode(&b, &got), -EBADMSG);
	b.notify_fd = 29;
	b.mounts[1] = 40;
	assert_int_equal(recode(&b, &got), -EBADMSG);
	b.mounts[1] = 29;
	b.fds[5] = -1;
	assert_int_equal(recode(&b, &got), -EBADMSG);
	b.fds[5] = 6;
	assert_int_equal(recode(&b, &got), 0);
}

static void test_handoff_message__only_the_same_versions_fit(void **state)
{
	char other[100];
	const char *own = handoff_message_versions();

	(void)state;
	assert_true(handoff_message_fits(own, strlen(own)));
	assert_false(handoff_message_fits(own, strlen(own) - 1));
	for (size_t i = 0; i < strlen(own); i++) {
		snprintf(other, sizeof(other), "%s", own);
		other[i]++;
		assert_false(handoff_message_fits(other, strlen(other)));
	}
	assert_non_null(strstr(own, "dossier 4"));
}

static void test_handoff_message__no_share_pages_is_another_version(void **state)
{
	bool is_said = strstr(handoff_message_versions(), ", no share=pages") != NULL;

	(void)state;
	assert_int_equal(is_said, !sb_registry_is_built());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_handoff_message__comes_back_as_it_was),
		cmocka_unit_test(test_handoff_message__no_piece_of_one_is_taken),
		cmocka_unit_test(test_handoff_message__counts_that_lie_are_no_memory),
		cmocka_unit_test(test_handoff_message__each_number_it_names_must_come),
		cmocka_unit_test(test_handoff_message__only_the_same_versions_fit),
		cmocka_unit_test(test_handoff_message__no_share_pages_is_another_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
