// SPDX-License-Identifier: Apache-2.0
#include "support/peer.h"
#include "support/served.h"

#include "server/client_conn.h"
#include "server/sandbox.h"
#include "veneer/base/cleanup.h"

#include <sys/socket.h>

#define VOLATILE "volatile,io=cached,copies=all"

struct talk {
	struct served *s;
	struct peer_end p;
	struct client_conn *c;
};

static void open_talk(struct talk *t)
{
	int fd;

	peer_end_open(&t->p, &fd);
	assert_int_equal(client_conn_new(fd, &t->c), 0);
	assert_int_equal(client_conn_fd(t->c), fd);
}

static void close_talk(struct talk *t)
{
	client_conn_free(t->c);
	peer_end_close(&t->p);
}

static int setup(void **state)
{
	struct talk *t = calloc(1, sizeof(*t));

	if (!t || served_setup((void **)&t->s) < 0)
		return -1;
	client_conn_note_starter();
	open_talk(t);
	*state = t;
	return 0;
}

static int teardown(void **state)
{
	struct talk *t = *state;

	close_talk(t);
	served_teardown((void **)&t->s);
	free(t);
	return 0;
}

static void greet(struct talk *t)
{
	peer_end_say_text(&t->p, WIRE_HELLO, "0.1.0");
	assert_int_equal(client_conn_receive(t->c), CLIENT_CONN_LISTENING);
	peer_end_expect(&t->p, WIRE_HELLO);
}

static int stats(void *arg, char **ret_json)
{
	if (!arg)
		return -ENOMEM;
	*ret_json = strdup(arg);
	return 0;
}

static void answer(struct talk *t, void *stats_arg)
{
	const struct client_conn_host host = { .mount_table = t->s->table,
					       .stats = stats,
					       .arg = stats_arg };

	client_conn_answer(t->c, &host);
}

static void test_client_conn__ping_is_answered_with_process_and_mounts(void **state)
{
	struct talk *t = *state;

	greet(t);
	peer_end_say_type(&t->p, WIRE_PING);
	assert_int_equal(client_conn_receive(t->c), CLIENT_CONN_ASKED);
	assert_false(client_conn_takes_long(t->c));
	mount_table_expect(t->s->table, 2);
	answer(t, NULL);
	mount_table_expect(t->s->table, -2);
	peer_end_expect(&t->p, WIRE_PONG);
	assert_int_equal(t->p.m.size, getpid());
	assert_int_equal(t->p.m.count, 2);
}

static void test_client_conn__statistics_come_in_pieces(void **state)
{
	struct talk *t = *state;
	const size_t len = 3 * WIRE_PAYLOAD_MAX / 2 + 1;
	char *text = malloc(len + 1);
	size_t got = 0;

	assert_non_null(text);
	tree_pattern(text, len, 1);
	text[len] = '\0';
	greet(t);
	peer_end_say_type(&t->p, WIRE_STATS);
	assert_int_equal(client_conn_receive(t->c), CLIENT_CONN_ASKED);
	answer(t, text);
	while (got < len) {
		peer_end_expect(&t->p, WIRE_TEXT);
		assert_true(got + t->p.m.text_len <= len);
		assert_memory_equal(t->p.m.text, text + got, t->p.m.text_len);
		got += t->p.m.text_len;
	}
	peer_end_expect(&t->p, WIRE_OK);
	free(text);
	answer(t, NULL);
	peer_end_expect_error(&t->p, "memory");
}

static void test_client_conn__order_of_messages_is_kept(void **state)
{
	static const enum wire_type first[] = { WIRE_PING, WIRE_STATS, WIRE_OK };
	struct talk *t = *state;

	for (size_t i = 0; i < 3; i++) {
		peer_end_say_type(&t->p, first[i]);
		assert_int_equal(client_conn_receive(t->c), CLIENT_CONN_OVER);
		peer_end_expect_error(&t->p, "out of place");
		close_talk(t);
		open_talk(t);
	}
	greet(t);
	/* Once only. */
	peer_end_say_text(&t->p, WIRE_HELLO, "0.1.0");
	assert_int_equal(client_conn_receive(t->c), CLIENT_CONN_OVER);
	peer_end_expect_error(&t->p, "out of place");
	close_talk(t);
	/* Messages of a server. */
	open_talk(t);
	greet(t);
	peer_end_say_type(&t->p, WIRE_PONG);
	assert_int_equal(client_conn_receive(t->c), CLIENT_CONN_OVER);
	peer_end_expect_error(&t->p, "out of place");
}

static void test_client_conn__bytes_that_are_no_message_end_the_connection(void **state)
{
	static uint8_t junk[WIRE_MESSAGE_MAX + 1];
	struct talk *t = *state;

	peer_end_say_bytes(&t->p, "x", 1);
	assert_int_equal(client_conn_receive(t->c), CLIENT_CONN_OVER);
	peer_end_expect_error(&t->p, "cannot be understood");
	close_talk(t);
	open_talk(t);
	peer_end_say_bytes(&t->p, junk, sizeof(junk));
	assert_int_equal(client_conn_receive(t->c), CLIENT_CONN_OVER);
	peer_end_expect_error(&t->p, "too long");
	close_talk(t);
	open_talk(t);
	{
		_cleanup_(buf_release) struct buf b = { 0 };

		assert_int_equal(wire_encode(&(struct wire_message){ .type = WIRE_PING }, &b), 0);
		b.data[4] = WIRE_VERSION + 1;
		peer_end_say_bytes(&t->p, b.data, b.len);
	}
	assert_int_equal(client_conn_receive(t->c), CLIENT_CONN_OVER);
	peer_end_expect_error(&t->p, "version");
	close_talk(t);
	open_talk(t);
	peer_end_close(&t->p);
	assert_int_equal(client_conn_receive(t->c), CLIENT_CONN_OVER);
}

static void test_client_conn__descriptors_that_nothing_asks_for_are_closed(void **state)
{
	struct talk *t = *state;
	int ends[2];
	char byte;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	greet(t);
	peer_end_say(&t->p, &(struct wire_message){ .type = WIRE_PING }, &ends[1], 1);
	close(ends[1]);
	assert_int_equal(client_conn_receive(t->c), CLIENT_CONN_OVER);
	peer_end_expect_error(&t->p, "out of place");
	/* The end of the pipe says that nobody has it. */
	assert_int_equal(read(ends[0], &byte, 1), 0);
	close(ends[0]);
}

static void test_client_conn__directories_are_counted(void **state)
{
	const struct wire_message upper = { .type = WIRE_DIRS, .role = WIRE_UPPER, .n_fds = 1 };
	const struct wire_message two = { .type = WIRE_DIRS, .role = WIRE_LOWER, .n_fds = 2 };
	int fds[2] = { open("/", O_RDONLY | O_CLOEXEC), open("/", O_RDONLY | O_CLOEXEC) };
	struct talk *t = *state;

	greet(t);
	peer_end_say(&t->p, &two, fds, 2);
	assert_int_equal(client_conn_receive(t->c), CLIENT_CONN_LISTENING);
	peer_end_say(&t->p, &upper, fds, 1);
	assert_int_equal(client_conn_receive(t->c), CLIENT_CONN_LISTENING);
	/* A second one of it. */
	peer_end_say(&t->p, &upper, fds, 1);
	assert_int_equal(client_conn_receive(t->c), CLIENT_CONN_OVER);
	close_talk(t);
	open_talk(t);
	greet(t);
	/* Fewer than are said. */
	peer_end_say(&t->p, &two, fds, 1);
	assert_int_equal(client_conn_receive(t->c), CLIENT_CONN_OVER);
	close_talk(t);
	open_talk(t);
	greet(t);
	peer_end_say(&t->p, &two, NULL, 0);
	assert_int_equal(client_conn_receive(t->c), CLIENT_CONN_OVER);
	close(fds[0]);
	close(fds[1]);
}

static void test_client_conn__arguments_are_bounded_and_must_be_all_there(void **state)
{
	struct wire_message m = { .type = WIRE_MOUNT, .count = 1, .size = 5 };
	struct talk *t = *state;
	char *piece = calloc(1, WIRE_PAYLOAD_MAX / 2 + 1);
	enum client_conn_state state_ = CLIENT_CONN_LISTENING;
	size_t sent = 0;

	assert_non_null(piece);
	memset(piece, 'a', WIRE_PAYLOAD_MAX / 2);
	greet(t);
	peer_end_say(&t->p, &m, NULL, 0);
	assert_int_equal(client_conn_receive(t->c), CLIENT_CONN_OVER);
	close_talk(t);
	open_talk(t);
	greet(t);
	while (state_ == CLIENT_CONN_LISTENING) {
		peer_end_say_text(&t->p, WIRE_ARGS, piece);
		sent += WIRE_PAYLOAD_MAX / 2;
		state_ = client_conn_receive(t->c);
	}
	assert_int_equal(state_, CLIENT_CONN_OVER);
	assert_true(sent > WIRE_ARGS_MAX);
	assert_true(sent <= WIRE_ARGS_MAX + WIRE_PAYLOAD_MAX);
	free(piece);
}

/* As a client sends it: the directories, the arguments in pieces, and what they come to. */
static void ask_for_mount(struct talk *t, bool has_upper)
{
	struct wire_message m = { .type = WIRE_MOUNT };
	struct mount_record d;
	struct mount_dirs dirs;

	served_request(t->s, "", VOLATILE, &d, &dirs);
	peer_end_say(&t->p,
		     &(struct wire_message){ .type = WIRE_DIRS, .role = WIRE_LOWER, .n_fds = 1 },
		     dirs.lower, 1);
	if (has_upper)
		peer_end_say(
			&t->p,
			&(struct wire_message){ .type = WIRE_DIRS, .role = WIRE_UPPER, .n_fds = 1 },
			&dirs.upper, 1);
	peer_end_say(&t->p,
		     &(struct wire_message){ .type = WIRE_DIRS, .role = WIRE_WORK, .n_fds = 1 },
		     &dirs.work, 1);
	for (size_t at = 0; at < d.args.len; at += 7) {
		size_t len = d.args.len - at < 7 ? d.args.len - at : 7;

		peer_end_say(&t->p,
			     &(struct wire_message){ .type = WIRE_ARGS,
						     .text = (const char *)d.args.data + at,
						     .text_len = len },
			     NULL, 0);
	}
	m.count = d.argc;
	m.flags = d.flags;
	m.size = d.args.len;
	peer_end_say(&t->p, &m, NULL, 0);
	mount_dirs_release(&dirs);
	mount_record_release(&d);
}

static void test_client_conn__mount_is_opened_and_ends_with_a_client_that_goes(void **state)
{
	struct talk *t = *state;

	greet(t);
	ask_for_mount(t, true);
	assert_int_equal(client_conn_receive(t->c), CLIENT_CONN_ASKED);
	assert_true(client_conn_takes_long(t->c));
	/* It is gone when READY is said. */
	shutdown(t->p.fd, SHUT_WR);
	answer(t, NULL);
	peer_end_expect(&t->p, WIRE_READY);
	assert_int_equal(t->p.m.flags, 0);
	assert_int_equal(mount_table_count(t->s->table), 0);
}

static void test_client_conn__descriptor_that_is_not_of_fuse_is_refused(void **state)
{
	struct talk *t = *state;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	greet(t);
	ask_for_mount(t, true);
	assert_int_equal(client_conn_receive(t->c), CLIENT_CONN_ASKED);
	peer_end_say(&t->p, &(struct wire_message){ .type = WIRE_FUSE, .n_fds = 1 }, &null, 1);
	answer(t, NULL);
	peer_end_expect(&t->p, WIRE_READY);
	peer_end_expect_error(&t->p, "out of place");
	assert_int_equal(mount_table_count(t->s->table), 0);
	close(null);
}

static void test_client_conn__directories_that_do_not_fit_the_options_are_refused(void **state)
{
	struct talk *t = *state;

	greet(t);
	ask_for_mount(t, false);
	assert_int_equal(client_conn_receive(t->c), CLIENT_CONN_ASKED);
	answer(t, NULL);
	peer_end_expect_error(&t->p, "director");
	assert_int_equal(mount_table_count(t->s->table), 0);
}

static void test_client_conn__server_that_runs_alone_is_not_upgraded(void **state)
{
	struct talk *t = *state;

	greet(t);
	peer_end_say_text(&t->p, WIRE_UPGRADE, "1");
	if (client_conn_receive(t->c) != CLIENT_CONN_ASKED) {
		/* A control group or a mount namespace of its own bars it before. */
		peer_end_expect(&t->p, WIRE_ERROR);
		return;
	}
	answer(t, NULL);
	peer_end_expect_error(&t->p, "runs alone");
}

static void test_client_conn__stalled_server_says_so(void **state)
{
	struct talk *t = *state;

	greet(t);
	client_conn_refuse_stalled(t->c, 17);
	peer_end_expect_error(&t->p, "17 requests");
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_client_conn__ping_is_answered_with_process_and_mounts),
		row(test_client_conn__statistics_come_in_pieces),
		row(test_client_conn__order_of_messages_is_kept),
		row(test_client_conn__bytes_that_are_no_message_end_the_connection),
		row(test_client_conn__descriptors_that_nothing_asks_for_are_closed),
		row(test_client_conn__directories_are_counted),
		row(test_client_conn__arguments_are_bounded_and_must_be_all_there),
		row(test_client_conn__mount_is_opened_and_ends_with_a_client_that_goes),
		row(test_client_conn__descriptor_that_is_not_of_fuse_is_refused),
		row(test_client_conn__directories_that_do_not_fit_the_options_are_refused),
		row(test_client_conn__server_that_runs_alone_is_not_upgraded),
		row(test_client_conn__stalled_server_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
