// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/backing.h"

#include <errno.h>
#include <string.h>

/* A kernel that remembers which ids are out. */
static bool is_out[10000];
static int n_opened, n_closed, fails_with;

static int fake_open(int devfd, int fd)
{
	assert_int_equal(devfd, 7);
	(void)fd;
	if (fails_with)
		return fails_with;
	is_out[++n_opened] = true;
	return n_opened;
}

static int fake_close(int devfd, uint32_t id)
{
	assert_int_equal(devfd, 7);
	assert_true(is_out[id]);
	is_out[id] = false;
	n_closed++;
	return 0;
}

static const struct backing_device device = { fake_open, fake_close };

static struct backing *start(unsigned max)
{
	struct backing *b;

	memset(is_out, 0, sizeof(is_out));
	n_opened = n_closed = fails_with = 0;
	assert_int_equal(backing_new(7, &device, max, &b), 0);
	return b;
}

/* As the server does it: ask, register if told to, ask again. */
static enum backing_way take(struct backing *b, struct node_slot *s, const struct backing_ask *ask, uint32_t *ret_id)
{
	enum backing_way way = backing_take(b, s, ask, 0, ret_id);
	uint32_t fresh;

	if (way != BACKING_WAY_REGISTER)
		return way;
	assert_int_equal(backing_register(b, 3, &fresh), 0);
	way = backing_take(b, s, ask, fresh, ret_id);
	if (*ret_id != fresh)
		backing_unregister(b, fresh);
	backing_reap(b);
	return way;
}

static const struct backing_ask reads_lower = { .offer = BACKING_LOWER, .wish = BACKING_WAY_BACKED };
static const struct backing_ask reads_small = { .offer = BACKING_LOWER, .wish = BACKING_WAY_CACHED };
static const struct backing_ask writes_lower = { .writes = true, .wish = BACKING_WAY_CACHED };
static const struct backing_ask reads_partial = { .wish = BACKING_WAY_DIRECT };
static const struct backing_ask writes_upper = { .writes = true, .offer = BACKING_UPPER, .wish = BACKING_WAY_BACKED };
static const struct backing_ask reads_upper = { .offer = BACKING_UPPER, .wish = BACKING_WAY_BACKED };

static void test_backing__what_an_open_gets_depends_on_what_is_open(void **state)
{
	static const struct {
		struct node_slot slot;
		const struct backing_ask *ask;
		enum backing_way way;
	} rows[] = {
		{ { 0 }, &reads_lower, BACKING_WAY_BACKED },
		{ { 0 }, &reads_small, BACKING_WAY_CACHED },
		{ { 0 }, &writes_lower, BACKING_WAY_CACHED },
		{ { 0 }, &reads_partial, BACKING_WAY_DIRECT },
		{ { 0 }, &writes_upper, BACKING_WAY_BACKED },
		/* Pages and a backing file exclude each other, in this order. */
		{ { .n_cached = 1 }, &reads_lower, BACKING_WAY_CACHED },
		{ { .n_cached = 1 }, &writes_upper, BACKING_WAY_CACHED },
		{ { .n_cached = 1 }, &reads_partial, BACKING_WAY_CACHED },
		{ { .n_direct = 1 }, &reads_partial, BACKING_WAY_DIRECT },
		{ { .n_direct = 1 }, &writes_lower, BACKING_WAY_CACHED },
		{ { .n_direct = 1 }, &reads_upper, BACKING_WAY_CACHED },
		{ { .n_direct = 1, .n_cached = 1 }, &reads_partial, BACKING_WAY_CACHED },
		/* And in the other order. */
		{ { .n_backed = 1, .backing_kind = BACKING_LOWER }, &reads_lower, BACKING_WAY_BACKED },
		{ { .n_backed = 1, .backing_kind = BACKING_LOWER }, &reads_small, BACKING_WAY_BACKED },
		{ { .n_backed = 1, .backing_kind = BACKING_LOWER }, &writes_lower, BACKING_WAY_SWITCH },
		{ { .n_backed = 1, .backing_kind = BACKING_LOWER }, &reads_partial, BACKING_WAY_SWITCH },
		{ { .n_backed = 1, .backing_kind = BACKING_LOWER }, &writes_upper, BACKING_WAY_SWITCH },
		{ { .n_backed = 1, .backing_kind = BACKING_LOWER }, &reads_upper, BACKING_WAY_SWITCH },
		{ { .n_backed = 1, .backing_kind = BACKING_UPPER }, &writes_upper, BACKING_WAY_BACKED },
		{ { .n_backed = 1, .backing_kind = BACKING_UPPER }, &reads_upper, BACKING_WAY_BACKED },
	};

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
		if (backing_choose(&rows[k].slot, rows[k].ask) != rows[k].way)
			fail_msg("row %zu: %d instead of %d", k, backing_choose(&rows[k].slot, rows[k].ask), rows[k].way);
}

static void test_backing__writer_never_gets_a_lower_file(void **state)
{
	(void)state;
	for (unsigned bits = 0; bits < 1 << 6; bits++) {
		const struct node_slot s = { .n_backed = bits & 1, .n_cached = bits >> 1 & 1, .n_direct = bits >> 2 & 1,
					     .backing_kind = bits & 1 ? BACKING_LOWER : BACKING_NONE,
					     .is_left = bits >> 3 & 1 };
		const struct backing_ask ask = { .writes = true, .is_back = bits >> 4 & 1,
						 .offer = bits >> 5 ? BACKING_UPPER : BACKING_NONE,
						 .wish = BACKING_WAY_CACHED };

		assert_int_not_equal(backing_choose(&s, &ask), BACKING_WAY_BACKED);
	}
}

static void test_backing__id_that_was_left_shows_what_it_showed_and_never_has_pages(void **state)
{
	const struct node_slot open = { .n_backed = 1, .backing_kind = BACKING_LOWER, .is_left = true };
	const struct node_slot closed = { .is_left = true };
	struct backing_ask ask = { .wish = BACKING_WAY_CACHED };

	(void)state;
	assert_int_equal(backing_choose(&open, &ask), BACKING_WAY_STALE);
	assert_int_equal(backing_choose(&closed, &ask), BACKING_WAY_STALE);
	ask.is_back = true;
	assert_int_equal(backing_choose(&open, &ask), BACKING_WAY_BACKED);
	assert_int_equal(backing_choose(&closed, &ask), BACKING_WAY_DIRECT);
	ask.writes = true;
	assert_int_equal(backing_choose(&open, &ask), BACKING_WAY_STALE);
	assert_int_equal(backing_choose(&closed, &ask), BACKING_WAY_STALE);
}

static void test_backing__no_open_gets_pages_once_a_switch_was_answered(void **state)
{
	struct backing_ask writer = writes_lower;
	struct node_slot s = { 0 };
	struct backing *b = start(10);
	uint32_t id;

	(void)state;
	assert_int_equal(take(b, &s, &reads_lower, &id), BACKING_WAY_BACKED);
	writer.waits = true;
	assert_int_equal(take(b, &s, &writer, &id), BACKING_WAY_SWITCH);
	assert_false(s.is_left);
	writer.waits = false;
	assert_int_equal(take(b, &s, &writer, &id), BACKING_WAY_SWITCH);
	/* Before whoever was answered so has made another id. */
	backing_drop(b, &s, BACKING_WAY_BACKED);
	assert_int_equal(take(b, &s, &writer, &id), BACKING_WAY_STALE);
	assert_int_equal(take(b, &s, &reads_small, &id), BACKING_WAY_STALE);
	assert_int_equal(take(b, &s, &reads_lower, &id), BACKING_WAY_DIRECT);
	backing_free(b);
}

static void test_backing__who_comes_to_an_id_that_was_left_is_sent_on_once(void **state)
{
	struct backing_ask one = reads_lower, other = reads_lower;
	struct node_slot left = { .is_left = true }, current = { .is_successor = true };
	struct backing *b = start(10);
	uint32_t id;

	(void)state;
	one.caller = 5;
	other.caller = 6;
	assert_int_equal(take(b, &left, &one, &id), BACKING_WAY_STALE);
	assert_int_equal(take(b, &left, &other, &id), BACKING_WAY_STALE);
	assert_int_equal(take(b, &left, &one, &id), BACKING_WAY_DIRECT);
	/* By a name he was led to the other one: the next time is a first time. */
	assert_int_equal(take(b, &current, &other, &id), BACKING_WAY_BACKED);
	assert_int_equal(take(b, &left, &other, &id), BACKING_WAY_STALE);
	backing_free(b);
}

static void test_backing__id_is_left_if_a_lower_file_is_open_by_it(void **state)
{
	struct node_slot s = { 0 };
	struct backing *b = start(10);
	uint32_t id;

	(void)state;
	assert_false(backing_leave(b, &s));
	assert_false(backing_is_lower(b, &s));
	assert_int_equal(take(b, &s, &reads_lower, &id), BACKING_WAY_BACKED);
	assert_true(backing_is_lower(b, &s));
	assert_true(backing_leave(b, &s));
	assert_false(backing_is_lower(b, &s));
	assert_true(s.is_left);
	assert_int_equal(take(b, &s, &reads_lower, &id), BACKING_WAY_STALE);
	backing_free(b);
}

static void test_backing__file_is_remembered_when_an_id_of_it_was_left(void **state)
{
	struct node_slot first = { .ino = 77 }, fresh = { .ino = 77 }, other = { .ino = 78 };
	struct backing *b = start(10);
	uint32_t id;

	(void)state;
	assert_int_equal(take(b, &first, &reads_lower, &id), BACKING_WAY_BACKED);
	assert_false(backing_was_left(b, &fresh));
	assert_int_equal(take(b, &first, &writes_lower, &id), BACKING_WAY_SWITCH);
	assert_true(backing_was_left(b, &first));
	assert_true(backing_was_left(b, &fresh));
	assert_false(backing_was_left(b, &other));
	assert_int_equal(take(b, &other, &reads_lower, &id), BACKING_WAY_BACKED);
	assert_true(backing_leave(b, &other));
	assert_true(backing_was_left(b, &other));
	backing_free(b);
}

static void test_backing__all_opens_of_a_node_share_one_registration(void **state)
{
	struct node_slot s = { 0 };
	struct backing *b = start(10);
	uint32_t first, id, fresh;

	(void)state;
	assert_int_equal(take(b, &s, &reads_lower, &first), BACKING_WAY_BACKED);
	assert_int_equal(take(b, &s, &reads_lower, &id), BACKING_WAY_BACKED);
	assert_int_equal(id, first);
	assert_int_equal(n_opened, 1);
	/* Two threads registered it at once: the second one's is not used. */
	assert_int_equal(backing_register(b, 3, &fresh), 0);
	assert_int_equal(backing_take(b, &s, &reads_lower, fresh, &id), BACKING_WAY_BACKED);
	assert_int_equal(id, first);
	backing_unregister(b, fresh);
	for (unsigned k = 0; k < 3; k++)
		backing_drop(b, &s, BACKING_WAY_BACKED);
	assert_int_equal(s.n_backed, 0);
	/* It stays for the next one. */
	assert_int_equal(take(b, &s, &reads_lower, &id), BACKING_WAY_BACKED);
	assert_int_equal(id, first);
	backing_free(b);
}

static void test_backing__what_was_registered_before_copy_up_is_not_used_after_it(void **state)
{
	struct node_slot s = { 0 };
	struct backing *b = start(10);
	uint32_t lower, upper;

	(void)state;
	assert_int_equal(take(b, &s, &reads_lower, &lower), BACKING_WAY_BACKED);
	backing_drop(b, &s, BACKING_WAY_BACKED);
	assert_int_equal(take(b, &s, &writes_upper, &upper), BACKING_WAY_BACKED);
	assert_int_not_equal(upper, lower);
	assert_false(is_out[lower]);
	assert_true(is_out[upper]);
	assert_int_equal(s.backing_kind, BACKING_UPPER);
	backing_free(b);
}

static void test_backing__goes_with_its_node(void **state)
{
	struct node_slot s = { 0 };
	struct backing *b = start(10);
	uint32_t id;

	(void)state;
	assert_int_equal(take(b, &s, &reads_lower, &id), BACKING_WAY_BACKED);
	backing_drop(b, &s, BACKING_WAY_BACKED);
	backing_detach(b, &s);
	assert_int_equal(s.backing_id, 0);
	assert_int_equal(n_closed, 0); /* it may have been called under a lock */
	backing_reap(b);
	assert_int_equal(n_closed, 1);
	assert_int_equal(backing_count(b), 0);
	backing_detach(b, &s);
	backing_reap(b);
	assert_int_equal(n_closed, 1);
	backing_free(b);
}

static void test_backing__least_recently_used_makes_room_and_one_in_use_never(void **state)
{
	struct node_slot s[5] = { { 0 } };
	struct backing *b = start(3);
	uint32_t ids[5], id;

	(void)state;
	for (unsigned k = 0; k < 3; k++)
		assert_int_equal(take(b, &s[k], &reads_lower, &ids[k]), BACKING_WAY_BACKED);
	backing_drop(b, &s[1], BACKING_WAY_BACKED);
	backing_drop(b, &s[0], BACKING_WAY_BACKED);
	assert_int_equal(take(b, &s[3], &reads_lower, &ids[3]), BACKING_WAY_BACKED);
	assert_int_equal(s[1].backing_id, 0);
	assert_false(is_out[ids[1]]);
	assert_int_equal(take(b, &s[0], &reads_lower, &id), BACKING_WAY_BACKED);
	assert_int_equal(id, ids[0]);
	/* All are in use: pages do as well. */
	assert_int_equal(take(b, &s[4], &reads_lower, &id), BACKING_WAY_CACHED);
	assert_int_equal(s[4].n_cached, 1);
	assert_int_equal(n_opened - n_closed, 3);
	assert_int_equal(backing_count(b), 3);
	backing_free(b);
}

static void test_backing__refusal_is_passed_on(void **state)
{
	struct backing *b = start(3);
	uint32_t id;

	(void)state;
	fails_with = -EPERM;
	assert_int_equal(backing_register(b, 3, &id), -EPERM);
	backing_free(b);
}

static void test_backing__closing_too_often_is_harmless(void **state)
{
	struct node_slot s = { 0 };
	struct backing *b = start(3);

	(void)state;
	for (unsigned way = 0; way < 8; way++)
		backing_drop(b, &s, way);
	assert_int_equal(s.n_backed + s.n_cached + s.n_direct, 0);
	backing_free(b);
}

static void test_backing__registrations_of_a_dead_server_stay(void **state)
{
	struct node_slot open = { .type = 8 }, idle = { .type = 8 }, none = { .type = 8 };
	struct backing *b = start(100);
	uint32_t id, again;

	(void)state;
	assert_int_equal(take(b, &open, &reads_lower, &id), BACKING_WAY_BACKED);
	assert_int_equal(take(b, &idle, &reads_lower, &again), BACKING_WAY_BACKED);
	backing_drop(b, &idle, BACKING_WAY_BACKED);
	backing_free(b);
	assert_int_equal(n_closed, 0); /* as it died, nothing was given back */
	assert_int_equal(backing_new(7, &device, 2, &b), 0);
	assert_int_equal(backing_restore(b, &open), 0);
	assert_int_equal(backing_restore(b, &idle), 0);
	assert_int_equal(backing_restore(b, &none), 0);
	assert_int_equal(backing_count(b), 2);
	assert_int_equal(take(b, &open, &reads_lower, &again), BACKING_WAY_BACKED);
	assert_int_equal(again, id);
	assert_int_equal(n_opened, 2);
	/* The idle one goes when another needs the room; the open one does not. */
	assert_int_equal(take(b, &none, &reads_lower, &again), BACKING_WAY_BACKED);
	assert_int_equal(idle.backing_id, 0);
	assert_true(is_out[id]);
	assert_int_equal(n_closed, 1);
	backing_drop(b, &open, BACKING_WAY_BACKED);
	backing_drop(b, &open, BACKING_WAY_BACKED);
	assert_int_equal(open.n_backed, 0);
	backing_detach(b, &open);
	backing_reap(b);
	assert_false(is_out[id]);
	backing_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_backing__what_an_open_gets_depends_on_what_is_open),
		cmocka_unit_test(test_backing__writer_never_gets_a_lower_file),
		cmocka_unit_test(test_backing__id_that_was_left_shows_what_it_showed_and_never_has_pages),
		cmocka_unit_test(test_backing__who_comes_to_an_id_that_was_left_is_sent_on_once),
		cmocka_unit_test(test_backing__file_is_remembered_when_an_id_of_it_was_left),
		cmocka_unit_test(test_backing__no_open_gets_pages_once_a_switch_was_answered),
		cmocka_unit_test(test_backing__all_opens_of_a_node_share_one_registration),
		cmocka_unit_test(test_backing__what_was_registered_before_copy_up_is_not_used_after_it),
		cmocka_unit_test(test_backing__goes_with_its_node),
		cmocka_unit_test(test_backing__id_is_left_if_a_lower_file_is_open_by_it),
		cmocka_unit_test(test_backing__least_recently_used_makes_room_and_one_in_use_never),
		cmocka_unit_test(test_backing__refusal_is_passed_on),
		cmocka_unit_test(test_backing__closing_too_often_is_harmless),
		cmocka_unit_test(test_backing__registrations_of_a_dead_server_stay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
