// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/passthrough/passthrough_table.h"

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

static const struct passthrough_table_device device = { fake_open, fake_close };

static struct passthrough_table *start(unsigned max)
{
	struct passthrough_table *b;

	memset(is_out, 0, sizeof(is_out));
	n_opened = n_closed = fails_with = 0;
	assert_int_equal(passthrough_table_new(7, &device, max, &b), 0);
	return b;
}

/* As the server does it: ask, register if told to, ask again. */
static enum passthrough_table_way take(struct passthrough_table *b, struct node_slot *s,
				       const struct passthrough_table_ask *ask, uint32_t *ret_id)
{
	enum passthrough_table_way way = passthrough_table_take(b, s, ask, 0, ret_id);
	uint32_t fresh;

	if (way != PASSTHROUGH_TABLE_WAY_REGISTER)
		return way;
	assert_int_equal(passthrough_table_register(b, 3, &fresh), 0);
	way = passthrough_table_take(b, s, ask, fresh, ret_id);
	if (*ret_id != fresh)
		passthrough_table_unregister(b, fresh);
	passthrough_table_reap(b);
	return way;
}

static const struct passthrough_table_ask reads_lower = { .offer = PASSTHROUGH_TABLE_LOWER,
							  .wish = PASSTHROUGH_TABLE_WAY_BACKED };
static const struct passthrough_table_ask reads_small = { .offer = PASSTHROUGH_TABLE_LOWER,
							  .wish = PASSTHROUGH_TABLE_WAY_CACHED };
static const struct passthrough_table_ask writes_lower = { .writes = true,
							   .wish = PASSTHROUGH_TABLE_WAY_CACHED };
static const struct passthrough_table_ask reads_partial = { .wish = PASSTHROUGH_TABLE_WAY_DIRECT };
static const struct passthrough_table_ask reads_flat = { .offer = PASSTHROUGH_TABLE_FLAT,
							 .wish = PASSTHROUGH_TABLE_WAY_BACKED,
							 .otherwise =
								 PASSTHROUGH_TABLE_WAY_DIRECT };
static const struct passthrough_table_ask writes_upper = { .writes = true,
							   .offer = PASSTHROUGH_TABLE_UPPER,
							   .wish = PASSTHROUGH_TABLE_WAY_BACKED };
static const struct passthrough_table_ask reads_upper = { .offer = PASSTHROUGH_TABLE_UPPER,
							  .wish = PASSTHROUGH_TABLE_WAY_BACKED };

static void test_passthrough_table__what_an_open_gets_depends_on_what_is_open(void **state)
{
	static const struct {
		struct node_slot slot;
		const struct passthrough_table_ask *ask;
		enum passthrough_table_way way;
	} rows[] = {
		{ { 0 }, &reads_lower, PASSTHROUGH_TABLE_WAY_BACKED },
		{ { 0 }, &reads_small, PASSTHROUGH_TABLE_WAY_CACHED },
		{ { 0 }, &writes_lower, PASSTHROUGH_TABLE_WAY_CACHED },
		{ { 0 }, &reads_partial, PASSTHROUGH_TABLE_WAY_DIRECT },
		{ { 0 }, &writes_upper, PASSTHROUGH_TABLE_WAY_BACKED },
		/* Pages and a backing file exclude each other, in this order. */
		{ { .n_cached = 1 }, &reads_lower, PASSTHROUGH_TABLE_WAY_CACHED },
		{ { .n_cached = 1 }, &writes_upper, PASSTHROUGH_TABLE_WAY_CACHED },
		{ { .n_cached = 1 }, &reads_partial, PASSTHROUGH_TABLE_WAY_CACHED },
		{ { .n_direct = 1 }, &reads_partial, PASSTHROUGH_TABLE_WAY_DIRECT },
		{ { .n_direct = 1 }, &writes_lower, PASSTHROUGH_TABLE_WAY_CACHED },
		{ { .n_direct = 1 }, &reads_upper, PASSTHROUGH_TABLE_WAY_CACHED },
		{ { .n_direct = 1, .n_cached = 1 }, &reads_partial, PASSTHROUGH_TABLE_WAY_CACHED },
		/* And in the other order. */
		{ { .n_backed = 1, .passthrough_table_kind = PASSTHROUGH_TABLE_LOWER },
		  &reads_lower,
		  PASSTHROUGH_TABLE_WAY_BACKED },
		{ { .n_backed = 1, .passthrough_table_kind = PASSTHROUGH_TABLE_LOWER },
		  &reads_small,
		  PASSTHROUGH_TABLE_WAY_BACKED },
		{ { .n_backed = 1, .passthrough_table_kind = PASSTHROUGH_TABLE_LOWER },
		  &writes_lower,
		  PASSTHROUGH_TABLE_WAY_SWITCH },
		{ { .n_backed = 1, .passthrough_table_kind = PASSTHROUGH_TABLE_LOWER },
		  &reads_partial,
		  PASSTHROUGH_TABLE_WAY_SWITCH },
		{ { .n_backed = 1, .passthrough_table_kind = PASSTHROUGH_TABLE_LOWER },
		  &writes_upper,
		  PASSTHROUGH_TABLE_WAY_SWITCH },
		{ { .n_backed = 1, .passthrough_table_kind = PASSTHROUGH_TABLE_LOWER },
		  &reads_upper,
		  PASSTHROUGH_TABLE_WAY_SWITCH },
		{ { .n_backed = 1, .passthrough_table_kind = PASSTHROUGH_TABLE_UPPER },
		  &writes_upper,
		  PASSTHROUGH_TABLE_WAY_BACKED },
		{ { .n_backed = 1, .passthrough_table_kind = PASSTHROUGH_TABLE_UPPER },
		  &reads_upper,
		  PASSTHROUGH_TABLE_WAY_BACKED },
		{ { .n_backed = 1, .passthrough_table_kind = PASSTHROUGH_TABLE_UPPER_READ },
		  &reads_upper,
		  PASSTHROUGH_TABLE_WAY_BACKED },
		{ { .n_backed = 1, .passthrough_table_kind = PASSTHROUGH_TABLE_LEFT },
		  &writes_upper,
		  PASSTHROUGH_TABLE_WAY_SWITCH },
		/* A flat copy serves only those who are offered it, and no pages for its sake. */
		{ { 0 }, &reads_flat, PASSTHROUGH_TABLE_WAY_BACKED },
		{ { .n_direct = 1 }, &reads_flat, PASSTHROUGH_TABLE_WAY_DIRECT },
		{ { .n_cached = 1, .n_direct = 1 }, &reads_flat, PASSTHROUGH_TABLE_WAY_CACHED },
		{ { .n_backed = 1, .passthrough_table_kind = PASSTHROUGH_TABLE_FLAT },
		  &reads_flat,
		  PASSTHROUGH_TABLE_WAY_BACKED },
		{ { .n_backed = 1, .passthrough_table_kind = PASSTHROUGH_TABLE_FLAT },
		  &reads_lower,
		  PASSTHROUGH_TABLE_WAY_SWITCH },
		{ { .n_backed = 1, .passthrough_table_kind = PASSTHROUGH_TABLE_FLAT },
		  &reads_partial,
		  PASSTHROUGH_TABLE_WAY_SWITCH },
		{ { .n_backed = 1, .passthrough_table_kind = PASSTHROUGH_TABLE_LOWER },
		  &reads_flat,
		  PASSTHROUGH_TABLE_WAY_SWITCH },
		{ { .n_backed = 1, .passthrough_table_kind = PASSTHROUGH_TABLE_LEFT },
		  &reads_flat,
		  PASSTHROUGH_TABLE_WAY_SWITCH },
		{ { .n_backed = 1, .passthrough_table_kind = PASSTHROUGH_TABLE_FLAT },
		  &writes_upper,
		  PASSTHROUGH_TABLE_WAY_SWITCH },
	};

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
		if (passthrough_table_choose(&rows[k].slot, rows[k].ask) != rows[k].way)
			fail_msg("row %zu: %d instead of %d", k,
				 passthrough_table_choose(&rows[k].slot, rows[k].ask), rows[k].way);
}

static void test_passthrough_table__writer_never_gets_a_lower_file(void **state)
{
	(void)state;
	for (unsigned bits = 0; bits < 1 << 6; bits++) {
		const struct node_slot s = { .n_backed = bits & 1,
					     .n_cached = bits >> 1 & 1,
					     .n_direct = bits >> 2 & 1,
					     .passthrough_table_kind =
						     bits & 1 ? PASSTHROUGH_TABLE_LOWER
							      : PASSTHROUGH_TABLE_NONE,
					     .is_left = bits >> 3 & 1 };
		const struct passthrough_table_ask ask = {
			.writes = true,
			.is_back = bits >> 4 & 1,
			.offer = bits >> 5 ? PASSTHROUGH_TABLE_UPPER : PASSTHROUGH_TABLE_NONE,
			.wish = PASSTHROUGH_TABLE_WAY_CACHED
		};

		assert_int_not_equal(passthrough_table_choose(&s, &ask),
				     PASSTHROUGH_TABLE_WAY_BACKED);
	}
}

static void
test_passthrough_table__id_that_was_left_shows_what_it_showed_and_never_has_pages(void **state)
{
	const struct node_slot open = { .n_backed = 1,
					.passthrough_table_kind = PASSTHROUGH_TABLE_LOWER,
					.is_left = true };
	const struct node_slot closed = { .is_left = true };
	struct passthrough_table_ask ask = { .wish = PASSTHROUGH_TABLE_WAY_CACHED };

	(void)state;
	assert_int_equal(passthrough_table_choose(&open, &ask), PASSTHROUGH_TABLE_WAY_STALE);
	assert_int_equal(passthrough_table_choose(&closed, &ask), PASSTHROUGH_TABLE_WAY_STALE);
	ask.is_back = true;
	assert_int_equal(passthrough_table_choose(&open, &ask), PASSTHROUGH_TABLE_WAY_BACKED);
	assert_int_equal(passthrough_table_choose(&closed, &ask), PASSTHROUGH_TABLE_WAY_DIRECT);
	ask.writes = true;
	assert_int_equal(passthrough_table_choose(&open, &ask), PASSTHROUGH_TABLE_WAY_STALE);
	assert_int_equal(passthrough_table_choose(&closed, &ask), PASSTHROUGH_TABLE_WAY_STALE);
}

static void test_passthrough_table__no_open_gets_pages_once_a_switch_was_answered(void **state)
{
	struct passthrough_table_ask writer = writes_lower;
	struct node_slot s = { 0 };
	struct passthrough_table *b = start(10);
	uint32_t id;

	(void)state;
	assert_int_equal(take(b, &s, &reads_lower, &id), PASSTHROUGH_TABLE_WAY_BACKED);
	writer.waits = true;
	assert_int_equal(take(b, &s, &writer, &id), PASSTHROUGH_TABLE_WAY_SWITCH);
	assert_false(s.is_left);
	writer.waits = false;
	assert_int_equal(take(b, &s, &writer, &id), PASSTHROUGH_TABLE_WAY_SWITCH);
	/* Before whoever was answered so has made another id. */
	passthrough_table_drop(b, &s, PASSTHROUGH_TABLE_WAY_BACKED);
	assert_int_equal(take(b, &s, &writer, &id), PASSTHROUGH_TABLE_WAY_STALE);
	assert_int_equal(take(b, &s, &reads_small, &id), PASSTHROUGH_TABLE_WAY_STALE);
	assert_int_equal(take(b, &s, &reads_lower, &id), PASSTHROUGH_TABLE_WAY_DIRECT);
	passthrough_table_free(b);
}

static void test_passthrough_table__who_comes_to_an_id_that_was_left_is_sent_on_once(void **state)
{
	struct passthrough_table_ask one = reads_lower, other = reads_lower;
	struct node_slot left = { .is_left = true }, current = { .is_successor = true };
	struct passthrough_table *b = start(10);
	uint32_t id;

	(void)state;
	one.caller = 5;
	other.caller = 6;
	assert_int_equal(take(b, &left, &one, &id), PASSTHROUGH_TABLE_WAY_STALE);
	assert_int_equal(take(b, &left, &other, &id), PASSTHROUGH_TABLE_WAY_STALE);
	assert_int_equal(take(b, &left, &one, &id), PASSTHROUGH_TABLE_WAY_DIRECT);
	/* By a name he was led to the other one: the next time is a first time. */
	assert_int_equal(take(b, &current, &other, &id), PASSTHROUGH_TABLE_WAY_BACKED);
	assert_int_equal(take(b, &left, &other, &id), PASSTHROUGH_TABLE_WAY_STALE);
	passthrough_table_free(b);
}

static void test_passthrough_table__id_is_left_if_a_lower_file_is_open_by_it(void **state)
{
	struct node_slot s = { 0 };
	struct passthrough_table *b = start(10);
	uint32_t id;

	(void)state;
	assert_false(passthrough_table_leave(b, &s));
	assert_false(passthrough_table_is_lower(b, &s));
	assert_int_equal(take(b, &s, &reads_lower, &id), PASSTHROUGH_TABLE_WAY_BACKED);
	assert_true(passthrough_table_is_lower(b, &s));
	assert_true(passthrough_table_leave(b, &s));
	assert_false(passthrough_table_is_lower(b, &s));
	assert_true(s.is_left);
	assert_int_equal(take(b, &s, &reads_lower, &id), PASSTHROUGH_TABLE_WAY_STALE);
	passthrough_table_free(b);
}

static void test_passthrough_table__file_is_remembered_when_an_id_of_it_was_left(void **state)
{
	struct node_slot first = { .ino = 77 }, fresh = { .ino = 77 }, other = { .ino = 78 };
	struct passthrough_table *b = start(10);
	uint32_t id;

	(void)state;
	assert_int_equal(take(b, &first, &reads_lower, &id), PASSTHROUGH_TABLE_WAY_BACKED);
	assert_false(passthrough_table_was_left(b, &fresh));
	assert_int_equal(take(b, &first, &writes_lower, &id), PASSTHROUGH_TABLE_WAY_SWITCH);
	assert_true(passthrough_table_was_left(b, &first));
	assert_true(passthrough_table_was_left(b, &fresh));
	assert_false(passthrough_table_was_left(b, &other));
	assert_int_equal(take(b, &other, &reads_lower, &id), PASSTHROUGH_TABLE_WAY_BACKED);
	assert_true(passthrough_table_leave(b, &other));
	assert_true(passthrough_table_was_left(b, &other));
	passthrough_table_free(b);
}

static void test_passthrough_table__all_opens_of_a_node_share_one_registration(void **state)
{
	struct node_slot s = { 0 };
	struct passthrough_table *b = start(10);
	uint32_t first, id, fresh;

	(void)state;
	assert_int_equal(take(b, &s, &reads_lower, &first), PASSTHROUGH_TABLE_WAY_BACKED);
	assert_int_equal(take(b, &s, &reads_lower, &id), PASSTHROUGH_TABLE_WAY_BACKED);
	assert_int_equal(id, first);
	assert_int_equal(n_opened, 1);
	/* Two threads registered it at once: the second one's is not used. */
	assert_int_equal(passthrough_table_register(b, 3, &fresh), 0);
	assert_int_equal(passthrough_table_take(b, &s, &reads_lower, fresh, &id),
			 PASSTHROUGH_TABLE_WAY_BACKED);
	assert_int_equal(id, first);
	passthrough_table_unregister(b, fresh);
	for (unsigned k = 0; k < 3; k++)
		passthrough_table_drop(b, &s, PASSTHROUGH_TABLE_WAY_BACKED);
	assert_int_equal(s.n_backed, 0);
	/* The registration stays for the next open. */
	assert_int_equal(take(b, &s, &reads_lower, &id), PASSTHROUGH_TABLE_WAY_BACKED);
	assert_int_equal(id, first);
	passthrough_table_free(b);
}

static void
test_passthrough_table__what_was_registered_before_copy_up_is_not_used_after_it(void **state)
{
	struct node_slot s = { 0 };
	struct passthrough_table *b = start(10);
	uint32_t lower, upper;

	(void)state;
	assert_int_equal(take(b, &s, &reads_lower, &lower), PASSTHROUGH_TABLE_WAY_BACKED);
	passthrough_table_drop(b, &s, PASSTHROUGH_TABLE_WAY_BACKED);
	assert_int_equal(take(b, &s, &writes_upper, &upper), PASSTHROUGH_TABLE_WAY_BACKED);
	assert_int_not_equal(upper, lower);
	assert_false(is_out[lower]);
	assert_true(is_out[upper]);
	assert_int_equal(s.passthrough_table_kind, PASSTHROUGH_TABLE_UPPER);
	passthrough_table_free(b);
}

static void test_passthrough_table__copier_has_its_source_open(void **state)
{
	struct node_slot s = { .n_cached = 1 };
	struct passthrough_table *b = start(10);

	(void)state;
	assert_false(passthrough_table_is_copier(b, 0));
	passthrough_table_note_source(b, 7, &s);
	assert_true(passthrough_table_is_copier(b, 7));
	assert_false(passthrough_table_is_copier(b, 8));
	s.n_cached = 0;
	assert_false(passthrough_table_is_copier(b, 7));
	s.n_backed = 1;
	assert_true(passthrough_table_is_copier(b, 7));
	passthrough_table_note_source(b, 7, NULL);
	assert_false(passthrough_table_is_copier(b, 7));
	passthrough_table_free(b);
}

static void test_passthrough_table__idle_registration_counts(void **state)
{
	struct node_slot s = { 0 };
	struct passthrough_table *b = start(10);
	uint32_t id;

	(void)state;
	assert_false(passthrough_table_is_registered(b, &s));
	assert_int_equal(take(b, &s, &writes_upper, &id), PASSTHROUGH_TABLE_WAY_BACKED);
	assert_true(passthrough_table_is_registered(b, &s));
	passthrough_table_drop(b, &s, PASSTHROUGH_TABLE_WAY_BACKED);
	assert_true(passthrough_table_is_registered(b, &s));
	passthrough_table_detach(b, &s);
	passthrough_table_reap(b);
	assert_false(passthrough_table_is_registered(b, &s));
	passthrough_table_free(b);
}

static void test_passthrough_table__goes_with_its_node(void **state)
{
	struct node_slot s = { 0 };
	struct passthrough_table *b = start(10);
	uint32_t id;

	(void)state;
	assert_int_equal(take(b, &s, &reads_lower, &id), PASSTHROUGH_TABLE_WAY_BACKED);
	passthrough_table_drop(b, &s, PASSTHROUGH_TABLE_WAY_BACKED);
	passthrough_table_detach(b, &s);
	assert_int_equal(s.backing_id, 0);
	assert_int_equal(n_closed, 0); /* it may have been called under a lock */
	passthrough_table_reap(b);
	assert_int_equal(n_closed, 1);
	assert_int_equal(passthrough_table_count(b), 0);
	passthrough_table_detach(b, &s);
	passthrough_table_reap(b);
	assert_int_equal(n_closed, 1);
	passthrough_table_free(b);
}

static void
test_passthrough_table__least_recently_used_makes_room_and_one_in_use_never(void **state)
{
	struct node_slot s[5] = { { 0 } };
	struct passthrough_table *b = start(3);
	uint32_t ids[5], id;

	(void)state;
	for (unsigned k = 0; k < 3; k++)
		assert_int_equal(take(b, &s[k], &reads_lower, &ids[k]),
				 PASSTHROUGH_TABLE_WAY_BACKED);
	passthrough_table_drop(b, &s[1], PASSTHROUGH_TABLE_WAY_BACKED);
	passthrough_table_drop(b, &s[0], PASSTHROUGH_TABLE_WAY_BACKED);
	assert_int_equal(take(b, &s[3], &reads_lower, &ids[3]), PASSTHROUGH_TABLE_WAY_BACKED);
	assert_int_equal(s[1].backing_id, 0);
	assert_false(is_out[ids[1]]);
	assert_int_equal(take(b, &s[0], &reads_lower, &id), PASSTHROUGH_TABLE_WAY_BACKED);
	assert_int_equal(id, ids[0]);
	/* All are in use: pages do as well. */
	assert_int_equal(take(b, &s[4], &reads_lower, &id), PASSTHROUGH_TABLE_WAY_CACHED);
	assert_int_equal(s[4].n_cached, 1);
	assert_int_equal(n_opened - n_closed, 3);
	assert_int_equal(passthrough_table_count(b), 3);
	passthrough_table_free(b);
}

static void test_passthrough_table__refusal_is_passed_on(void **state)
{
	struct passthrough_table *b = start(3);
	uint32_t id;

	(void)state;
	fails_with = -EPERM;
	assert_int_equal(passthrough_table_register(b, 3, &id), -EPERM);
	passthrough_table_free(b);
}

static void test_passthrough_table__closing_too_often_is_harmless(void **state)
{
	struct node_slot s = { 0 };
	struct passthrough_table *b = start(3);

	(void)state;
	for (unsigned way = 0; way < 8; way++)
		passthrough_table_drop(b, &s, way);
	assert_int_equal(s.n_backed + s.n_cached + s.n_direct, 0);
	passthrough_table_free(b);
}

static void test_passthrough_table__registrations_of_a_dead_server_stay(void **state)
{
	struct node_slot open = { .type = 8 }, idle = { .type = 8 }, none = { .type = 8 };
	struct passthrough_table *b = start(100);
	uint32_t id, again;

	(void)state;
	assert_int_equal(take(b, &open, &reads_lower, &id), PASSTHROUGH_TABLE_WAY_BACKED);
	assert_int_equal(take(b, &idle, &reads_lower, &again), PASSTHROUGH_TABLE_WAY_BACKED);
	passthrough_table_drop(b, &idle, PASSTHROUGH_TABLE_WAY_BACKED);
	passthrough_table_free(b);
	assert_int_equal(n_closed, 0); /* as it died, nothing was given back */
	assert_int_equal(passthrough_table_new(7, &device, 2, &b), 0);
	assert_int_equal(passthrough_table_restore(b, &open), 0);
	assert_int_equal(passthrough_table_restore(b, &idle), 0);
	assert_int_equal(passthrough_table_restore(b, &none), 0);
	assert_int_equal(passthrough_table_count(b), 2);
	assert_int_equal(take(b, &open, &reads_lower, &again), PASSTHROUGH_TABLE_WAY_BACKED);
	assert_int_equal(again, id);
	assert_int_equal(n_opened, 2);
	/* The idle one goes when another needs the room; the open one does not. */
	assert_int_equal(take(b, &none, &reads_lower, &again), PASSTHROUGH_TABLE_WAY_BACKED);
	assert_int_equal(idle.backing_id, 0);
	assert_true(is_out[id]);
	assert_int_equal(n_closed, 1);
	passthrough_table_drop(b, &open, PASSTHROUGH_TABLE_WAY_BACKED);
	passthrough_table_drop(b, &open, PASSTHROUGH_TABLE_WAY_BACKED);
	assert_int_equal(open.n_backed, 0);
	passthrough_table_detach(b, &open);
	passthrough_table_reap(b);
	assert_false(is_out[id]);
	passthrough_table_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_passthrough_table__what_an_open_gets_depends_on_what_is_open),
		cmocka_unit_test(test_passthrough_table__writer_never_gets_a_lower_file),
		cmocka_unit_test(
			test_passthrough_table__id_that_was_left_shows_what_it_showed_and_never_has_pages),
		cmocka_unit_test(
			test_passthrough_table__who_comes_to_an_id_that_was_left_is_sent_on_once),
		cmocka_unit_test(
			test_passthrough_table__file_is_remembered_when_an_id_of_it_was_left),
		cmocka_unit_test(
			test_passthrough_table__no_open_gets_pages_once_a_switch_was_answered),
		cmocka_unit_test(
			test_passthrough_table__all_opens_of_a_node_share_one_registration),
		cmocka_unit_test(
			test_passthrough_table__what_was_registered_before_copy_up_is_not_used_after_it),
		cmocka_unit_test(test_passthrough_table__copier_has_its_source_open),
		cmocka_unit_test(test_passthrough_table__idle_registration_counts),
		cmocka_unit_test(test_passthrough_table__goes_with_its_node),
		cmocka_unit_test(test_passthrough_table__id_is_left_if_a_lower_file_is_open_by_it),
		cmocka_unit_test(
			test_passthrough_table__least_recently_used_makes_room_and_one_in_use_never),
		cmocka_unit_test(test_passthrough_table__refusal_is_passed_on),
		cmocka_unit_test(test_passthrough_table__closing_too_often_is_harmless),
		cmocka_unit_test(test_passthrough_table__registrations_of_a_dead_server_stay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
