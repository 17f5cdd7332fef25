// SPDX-License-Identifier: Apache-2.0
#include "server/wire.h"

#include "veneer/base/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char hello[] = "0.1.0";

/* One of each type, with every field it has set. */
static struct wire_message sample(enum wire_type type)
{
	struct wire_message m = { .version = WIRE_VERSION, .type = type };

	switch (type) {
	case WIRE_DIRS:
		m.role = WIRE_LOWER;
		m.n_fds = 128;
		break;
	case WIRE_MOUNT:
		m.count = 4;
		m.flags = WIRE_MOUNT_IS_ROOT | WIRE_MOUNT_NO_DEVICE_WHITEOUTS |
			  WIRE_MOUNT_CAN_SHARE;
		m.size = 1000;
		break;
	case WIRE_READY:
		m.flags = WIRE_READY_READONLY;
		break;
	case WIRE_SNAPSHOT:
	case WIRE_ROLLBACK:
	case WIRE_SQUASH:
		m.text = hello;
		m.text_len = strlen(hello);
		/* fall through */
	case WIRE_FLATTEN:
		m.size = 1234567;
		m.dev_major = 8;
		m.dev_minor = 1;
		break;
	case WIRE_FUSE:
		m.dev_minor = 77;
		m.dev_major = 3;
		m.n_fds = 1;
		break;
	case WIRE_ERROR:
		m.count = 1;
		m.text = hello;
		m.text_len = strlen(hello);
		break;
	case WIRE_HELLO:
	case WIRE_ARGS:
	case WIRE_TEXT:
	case WIRE_UPGRADE:
		m.text = hello;
		m.text_len = strlen(hello);
		break;
	case WIRE_PONG:
		m.size = 1ull << 40;
		m.count = 64;
		break;
	case WIRE_HANDOFF_MESSAGE:
	case WIRE_SHARED:
		m.count = 100;
		break;
	default:
		break;
	}
	return m;
}

static void assert_same(const struct wire_message *a, const struct wire_message *b)
{
	assert_int_equal(a->version, b->version);
	assert_int_equal(a->type, b->type);
	assert_int_equal(a->role, b->role);
	assert_int_equal(a->n_fds, b->n_fds);
	assert_int_equal(a->flags, b->flags);
	assert_int_equal(a->count, b->count);
	assert_int_equal(a->dev_major, b->dev_major);
	assert_int_equal(a->dev_minor, b->dev_minor);
	assert_int_equal(a->size, b->size);
	assert_int_equal(a->text_len, b->text_len);
	if (a->text_len)
		assert_memory_equal(a->text, b->text, a->text_len);
}

static void test_wire__every_message_comes_back_as_it_was(void **state)
{
	(void)state;
	for (enum wire_type type = WIRE_HELLO; type < WIRE_TYPES; type++) {
		_cleanup_(buf_release) struct buf b = { 0 };
		struct wire_message m = sample(type), back;

		assert_int_equal(wire_encode(&m, &b), 0);
		assert_int_equal(wire_decode(b.data, b.len, &back), 0);
		assert_same(&m, &back);
	}
}

static void test_wire__every_length_but_the_right_one_is_refused(void **state)
{
	(void)state;
	for (enum wire_type type = WIRE_HELLO; type < WIRE_TYPES; type++) {
		_cleanup_(buf_release) struct buf b = { 0 };
		struct wire_message m = sample(type), back;

		assert_int_equal(wire_encode(&m, &b), 0);
		for (size_t len = 0; len < b.len; len++)
			assert_int_equal(wire_decode(b.data, len, &back), -EBADMSG);
		assert_int_equal(buf_put_u8(&b, 0), 0);
		assert_int_equal(wire_decode(b.data, b.len, &back), -EBADMSG);
	}
}

static int decode_with(struct wire_message m, size_t off, uint8_t value, struct wire_message *back)
{
	_cleanup_(buf_release) struct buf b = { 0 };

	assert_int_equal(wire_encode(&m, &b), 0);
	b.data[off] = value;
	return wire_decode(b.data, b.len, back);
}

static void test_wire__other_versions_are_told_apart_from_damage(void **state)
{
	struct wire_message back;

	(void)state;
	assert_int_equal(decode_with(sample(WIRE_PING), 4, WIRE_VERSION + 1, &back), -EPROTO);
	assert_int_equal(back.version, WIRE_VERSION + 1);
	assert_int_equal(decode_with(sample(WIRE_PING), 0, 'X', &back), -EBADMSG);
	/* A refusal is understood whatever version it is of. */
	assert_int_equal(decode_with(sample(WIRE_ERROR), 4, WIRE_VERSION + 1, &back), 0);
	assert_int_equal(back.count, 1);
	assert_int_equal(back.text_len, strlen(hello));
}

static void test_wire__numbers_out_of_bounds_are_refused(void **state)
{
	struct wire_message m, back;

	(void)state;
	assert_int_equal(decode_with(sample(WIRE_PING), 6, 0, &back), -EBADMSG);
	assert_int_equal(decode_with(sample(WIRE_PING), 6, WIRE_TYPES, &back), -EBADMSG);
	assert_int_equal(decode_with(sample(WIRE_DIRS), 12, WIRE_CLONE + 1, &back), -EBADMSG);
	assert_int_equal(decode_with(sample(WIRE_DIRS), 14, 129, &back), -EBADMSG);
	assert_int_equal(decode_with(sample(WIRE_DIRS), 14, 0, &back), -EBADMSG);
	/* More than one upper. */
	assert_int_equal(decode_with(sample(WIRE_DIRS), 12, WIRE_UPPER, &back), -EBADMSG);
	assert_int_equal(decode_with(sample(WIRE_MOUNT), 12, 8, &back), -EBADMSG);
	assert_int_equal(decode_with(sample(WIRE_READY), 12, 2, &back), -EBADMSG);
	m = sample(WIRE_MOUNT);
	m.size = WIRE_ARGS_MAX + 1;
	assert_int_equal(decode_with(m, 0, 'V', &back), -EBADMSG);
	m = sample(WIRE_MOUNT);
	m.count = WIRE_ARGC_MAX + 1;
	assert_int_equal(decode_with(m, 0, 'V', &back), -EBADMSG);
	m = sample(WIRE_ERROR);
	m.count = 0;
	assert_int_equal(decode_with(m, 0, 'V', &back), -EBADMSG);
	m.text_len = WIRE_PAYLOAD_MAX;
	assert_int_equal(wire_encode(&m, &(struct buf){ 0 }), -EMSGSIZE);
}

static void test_wire__arguments_come_back_as_they_were(void **state)
{
	static const char *const words[] = { "/cwd", "veneer", "-o", "", "a=b,c" };
	_cleanup_(buf_release) struct buf b = { 0 };
	_cleanup_(freep) char **argv = NULL;
	const char *cwd;

	(void)state;
	for (size_t i = 0; i < 5; i++)
		assert_int_equal(wire_put_arg(&b, words[i]), 0);
	assert_int_equal(wire_split_args((char *)b.data, b.len, 4, &cwd, &argv), 0);
	assert_string_equal(cwd, words[0]);
	for (size_t i = 0; i < 4; i++)
		assert_string_equal(argv[i], words[i + 1]);
	assert_null(argv[4]);
}

static void test_wire__arguments_that_are_too_few_or_many_are_refused(void **state)
{
	char text[] = "/cwd\0veneer\0-o";
	const char *cwd;
	char **argv;

	(void)state;
	assert_int_equal(wire_split_args(text, sizeof(text), 1, &cwd, &argv), -EBADMSG);
	assert_int_equal(wire_split_args(text, sizeof(text), 3, &cwd, &argv), -EBADMSG);
	assert_int_equal(wire_split_args(text, sizeof(text), 0, &cwd, &argv), -EBADMSG);
	/* The last one has no end. */
	assert_int_equal(wire_split_args(text, sizeof(text) - 1, 2, &cwd, &argv), -EBADMSG);
	assert_int_equal(wire_split_args(text, 0, 1, &cwd, &argv), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wire__every_message_comes_back_as_it_was),
		cmocka_unit_test(test_wire__every_length_but_the_right_one_is_refused),
		cmocka_unit_test(test_wire__other_versions_are_told_apart_from_damage),
		cmocka_unit_test(test_wire__numbers_out_of_bounds_are_refused),
		cmocka_unit_test(test_wire__arguments_come_back_as_they_were),
		cmocka_unit_test(test_wire__arguments_that_are_too_few_or_many_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
