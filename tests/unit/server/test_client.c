// SPDX-License-Identifier: Apache-2.0
#include "support/peer.h"

#include "server/client-internal.h"
#include "veneer/server/client.h"
#include "veneer/sys/sock.h"

#include <sys/socket.h>

struct talk {
	struct peer_end p; /* the server's end here: its answers wait when the client asks */
	int fd; /* the client's */
	char err[256];
};

static int setup(void **state)
{
	struct talk *t = calloc(1, sizeof(*t));

	if (!t)
		return -1;
	peer_end_open(&t->p, &t->fd);
	*state = t;
	return 0;
}

static int teardown(void **state)
{
	struct talk *t = *state;

	peer_end_close(&t->p);
	close(t->fd);
	free(t);
	return 0;
}

static void say_elsewhere(struct talk *t)
{
	peer_end_say(&t->p,
		     &(struct wire_message){ .type = WIRE_ERROR,
					     .count = WIRE_EXIT_ELSEWHERE,
					     .text = "elsewhere",
					     .text_len = 9 },
		     NULL, 0);
}

static void test_client__statistics_are_put_together(void **state)
{
	struct talk *t = *state;
	char *json = NULL;

	peer_end_say_text(&t->p, WIRE_TEXT, "{ \"a\":");
	peer_end_say_text(&t->p, WIRE_TEXT, " 1 }");
	peer_end_say_type(&t->p, WIRE_OK);
	assert_int_equal(client_stats(t->fd, &json, t->err, sizeof(t->err)), 0);
	assert_string_equal(json, "{ \"a\": 1 }");
	free(json);
	peer_end_expect(&t->p, WIRE_STATS);
}

static void test_client__answer_that_is_none_gets_a_sentence_and_no_text(void **state)
{
	struct talk *t = *state;
	char *json = NULL;

	strcpy(t->err, "of another call");
	peer_end_say_text(&t->p, WIRE_TEXT, "{");
	peer_end_say_type(&t->p, WIRE_PING);
	assert_int_equal(client_stats(t->fd, &json, t->err, sizeof(t->err)), -EBADMSG);
	assert_non_null(strstr(t->err, "answer cannot be used"));
	peer_end_say_bytes(&t->p, "junk", 4);
	assert_int_equal(client_stats(t->fd, &json, t->err, sizeof(t->err)), -EBADMSG);
	assert_string_equal(t->err, "the server's answer cannot be understood");
	peer_end_say(&t->p,
		     &(struct wire_message){
			     .type = WIRE_ERROR, .count = 1, .text = "a sentence", .text_len = 10 },
		     NULL, 0);
	assert_int_equal(client_stats(t->fd, &json, t->err, sizeof(t->err)), -EREMOTEIO);
	assert_string_equal(t->err, "a sentence");
	shutdown(t->p.fd, SHUT_WR);
	assert_int_equal(client_stats(t->fd, &json, t->err, sizeof(t->err)), -EPIPE);
	assert_string_equal(t->err, "the server is gone");
	assert_null(json);
}

static void test_client__version_of_another_server_is_named(void **state)
{
	struct client_packet p;
	struct talk *t = *state;
	struct buf b = { 0 };

	assert_int_equal(wire_encode(&(struct wire_message){ .type = WIRE_OK }, &b), 0);
	b.data[4] = WIRE_VERSION + 1;
	peer_end_say_bytes(&t->p, b.data, b.len);
	buf_release(&b);
	assert_int_equal(client_hear(t->fd, 0, WIRE_OK, &p, t->err, sizeof(t->err)), -EPROTO);
	assert_non_null(strstr(t->err, "version 2"));
	assert_int_equal(client_hear(t->fd, 0, WIRE_OK, &p, t->err, sizeof(t->err)), -ETIMEDOUT);
	assert_non_null(strstr(t->err, "does not answer"));
}

static void test_client__descriptors_belong_to_their_message(void **state)
{
	const struct wire_message m = { .type = WIRE_SHARED, .count = 5 };
	struct client_packet p;
	struct talk *t = *state;
	int ends[2], fds[2];
	char byte;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	fds[0] = fds[1] = ends[1];
	peer_end_say(&t->p, &m, fds, 1);
	peer_end_say(&t->p, &m, fds, 2);
	peer_end_say(&t->p, &m, fds, 1);
	assert_int_equal(client_hear_with(t->fd, 0, WIRE_SHARED, &p, t->err, sizeof(t->err)), 0);
	assert_int_equal(p.m.count, 5);
	assert_true(p.fd >= 0);
	close(p.fd);
	/* More than one is none. */
	assert_int_equal(client_hear_with(t->fd, 0, WIRE_SHARED, &p, t->err, sizeof(t->err)), 0);
	assert_int_equal(p.fd, -1);
	assert_int_equal(client_hear(t->fd, 0, WIRE_OK, &p, t->err, sizeof(t->err)), -EBADMSG);
	assert_int_equal(p.fd, -1);
	close(ends[1]);
	assert_int_equal(read(ends[0], &byte, 1), 0);
	close(ends[0]);
}

struct steps {
	unsigned n;
	struct promote_worker_progress last;
};

static void note_step(void *arg, const struct promote_worker_progress *s)
{
	struct steps *all = arg;

	all->n++;
	all->last = *s;
}

static void test_client__flattening_is_followed_to_its_end(void **state)
{
	const struct client_target at = { .dev_minor = 7, .ino = 9 };
	struct steps steps = { 0 };
	struct talk *t = *state;

	peer_end_say_text(&t->p, WIRE_TEXT, "1 2 3 4 5 6");
	/* An older server says five. */
	peer_end_say_text(&t->p, WIRE_TEXT, "2 2 0 40 50");
	peer_end_say_type(&t->p, WIRE_OK);
	assert_int_equal(client_flatten(t->fd, &at, note_step, &steps, t->err, sizeof(t->err)), 0);
	assert_int_equal(steps.n, 2);
	assert_int_equal(steps.last.files, 2);
	assert_int_equal(steps.last.cloned, 50);
	assert_int_equal(steps.last.nbytes, 0);
	peer_end_expect(&t->p, WIRE_FLATTEN);
	assert_int_equal(t->p.m.dev_minor, 7);
	assert_int_equal(t->p.m.size, 9);
}

static void test_client__progress_that_makes_no_sense_is_refused(void **state)
{
	static const char *const texts[] = { "", "1 2 3", "a b c d e f", "no" };
	const struct client_target at = { .ino = 9 };
	struct steps steps = { 0 };
	struct talk *t = *state;
	char much[200];

	memset(much, '1', sizeof(much));
	much[sizeof(much) - 1] = '\0';
	for (size_t i = 0; i <= sizeof(texts) / sizeof(*texts); i++) {
		peer_end_say_text(&t->p, WIRE_TEXT, i < 4 ? texts[i] : much);
		assert_int_equal(
			client_flatten(t->fd, &at, note_step, &steps, t->err, sizeof(t->err)),
			-EBADMSG);
		assert_string_equal(t->err, "the server's answer cannot be understood");
	}
	assert_int_equal(steps.n, 0);
}

static void test_client__mount_of_another_server_is_told_apart(void **state)
{
	const struct client_target at = { .ino = 9 };
	struct steps steps = { 0 };
	struct talk *t = *state;
	char *name = NULL;

	say_elsewhere(t);
	assert_int_equal(client_flatten(t->fd, &at, note_step, &steps, t->err, sizeof(t->err)),
			 -ENOENT);
	say_elsewhere(t);
	assert_int_equal(client_snapshot(t->fd, &at, "", &name, t->err, sizeof(t->err)), -ENOENT);
	say_elsewhere(t);
	assert_int_equal(client_rollback(t->fd, &at, "a\n", &name, t->err, sizeof(t->err)),
			 -ENOENT);
	assert_null(name);
}

static void test_client__name_of_a_snapshot_must_come_once(void **state)
{
	const struct client_target at = { .ino = 9 };
	char *name = (char *)"of the caller", *taken = name;
	struct talk *t = *state;

	peer_end_say_text(&t->p, WIRE_TEXT, "first");
	peer_end_say_type(&t->p, WIRE_OK);
	assert_int_equal(client_snapshot(t->fd, &at, "", &taken, t->err, sizeof(t->err)), 0);
	assert_string_equal(taken, "first");
	free(taken);
	/* A server that says none, or two. */
	taken = name;
	peer_end_say_type(&t->p, WIRE_OK);
	assert_int_equal(client_snapshot(t->fd, &at, "", &taken, t->err, sizeof(t->err)), -EBADMSG);
	assert_string_equal(t->err, "the server's answer cannot be understood");
	peer_end_say_text(&t->p, WIRE_TEXT, "first");
	peer_end_say_text(&t->p, WIRE_TEXT, "second");
	assert_int_equal(client_rollback(t->fd, &at, "a\n", &taken, t->err, sizeof(t->err)),
			 -EBADMSG);
	assert_ptr_equal(taken, name);
}

static void note_squash(void *arg, const struct client_squashed *s)
{
	*(struct client_squashed *)arg = *s;
}

static void test_client__squash_says_what_it_came_to(void **state)
{
	const struct client_target at = { .ino = 9 };
	struct client_squashed last = { 0 };
	const struct client_squash_ask ask = { &at, "a\nb", note_squash, &last };
	struct talk *t = *state;

	peer_end_say_text(&t->p, WIRE_TEXT, "0 10 20");
	peer_end_say_text(&t->p, WIRE_TEXT, "3 30 40");
	peer_end_say_type(&t->p, WIRE_OK);
	assert_int_equal(client_squash(t->fd, &ask, t->err, sizeof(t->err)), 0);
	assert_int_equal(last.n, 3);
	assert_int_equal(last.bytes, 40);
	peer_end_expect(&t->p, WIRE_SQUASH);
	assert_int_equal(t->p.m.text_len, 3);
	peer_end_say_text(&t->p, WIRE_TEXT, "0 10");
	assert_int_equal(client_squash(t->fd, &ask, t->err, sizeof(t->err)), -EBADMSG);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_client__statistics_are_put_together),
		row(test_client__answer_that_is_none_gets_a_sentence_and_no_text),
		row(test_client__version_of_another_server_is_named),
		row(test_client__descriptors_belong_to_their_message),
		row(test_client__flattening_is_followed_to_its_end),
		row(test_client__progress_that_makes_no_sense_is_refused),
		row(test_client__mount_of_another_server_is_told_apart),
		row(test_client__name_of_a_snapshot_must_come_once),
		row(test_client__squash_says_what_it_came_to),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
