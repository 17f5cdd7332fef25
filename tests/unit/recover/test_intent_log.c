// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/recover/intent_log.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define KEY	       7
#define SLOTS_AT_LEAST 500 /* threads of the server, generously */

static void *fresh_area(void)
{
	void *mem = mmap(NULL, intent_log_area_bytes(), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(mem != MAP_FAILED);
	intent_log_use_area(mem);
	return mem;
}

static struct intent *begin(uint64_t key, uint64_t unique, bool is_resent)
{
	return intent_log_begin(&(struct intent_request){ .key = key,
							  .unique = unique,
							  .kind = INTENT_RENAME,
							  .is_resent = is_resent,
							  .from_parent = 1,
							  .from_name = "old",
							  .to_parent = 2,
							  .to_name = "new" });
}

static void count(struct intent *n, void *arg)
{
	(void)n;
	++*(unsigned *)arg;
}

static unsigned standing(uint64_t key)
{
	unsigned n = 0;

	intent_log_each(key, count, &n);
	return n;
}

static void test_intent_log__next_server_finds_what_was_begun(void **state)
{
	void *mem = fresh_area();
	struct intent_object from = { .node = 5, .ino = 50, .upper_ino = 500 },
			     to = { .node = 6, .ino = 60 };
	struct intent *n = begin(KEY, 11, false);

	(void)state;
	assert_non_null(n);
	assert_int_equal(standing(KEY), 0);
	intent_log_about(from, to);
	intent_log_use_area(mem);
	assert_int_equal(standing(KEY), 1);
	assert_int_equal(standing(KEY + 1), 0);
	n = begin(KEY, 11, true);
	assert_non_null(n);
	assert_true(n->is_begun);
	assert_int_equal(n->from.node, 5);
	assert_int_equal(n->from.upper_ino, 500);
	assert_int_equal(n->to.ino, 60);
	assert_int_equal(n->to.upper_ino, 0);
	assert_string_equal(n->from.name, "old");
	assert_string_equal(n->to.name, "new");
	intent_log_end(n);
	assert_int_equal(standing(KEY), 0);
}

static void test_intent_log__nothing_of_another_request_or_mount_is_found(void **state)
{
	struct intent_object from = { .node = 5 };
	void *mem = fresh_area();
	struct intent *n;

	(void)state;
	assert_non_null(begin(KEY, 11, false));
	intent_log_about(from, INTENT_NOTHING);
	intent_log_use_area(mem);
	n = begin(KEY, 12, true);
	assert_false(n->is_begun);
	intent_log_end(n);
	n = begin(KEY + 1, 11, true);
	assert_false(n->is_begun);
	intent_log_end(n);
	assert_int_equal(standing(KEY), 1);
	intent_log_drop(KEY + 1);
	assert_int_equal(standing(KEY), 1);
	intent_log_drop(KEY);
	assert_int_equal(standing(KEY), 0);
}

static void test_intent_log__answered_request_is_forgotten(void **state)
{
	struct intent_object from = { .node = 5 };
	void *mem = fresh_area();
	struct intent *n = begin(KEY, 11, false);

	(void)state;
	intent_log_about(from, INTENT_NOTHING);
	intent_log_end(n);
	intent_log_use_area(mem);
	assert_int_equal(standing(KEY), 0);
	n = begin(KEY, 11, true);
	assert_false(n->is_begun);
	intent_log_end(n);
}

static void test_intent_log__without_a_key_there_is_no_journal(void **state)
{
	struct intent_object from = { .node = 5 };

	(void)state;
	fresh_area();
	assert_null(begin(0, 11, false));
	intent_log_about(from, INTENT_NOTHING);
	intent_log_end(NULL);
	intent_log_mark(NULL);
	assert_int_equal(standing(0), 0);
}

static void test_intent_log__what_is_left_of_the_dead_makes_room_when_all_is_taken(void **state)
{
	struct intent_object from = { .node = 5 };
	void *mem = fresh_area();
	unsigned n = 0;

	(void)state;
	while (begin(KEY, n, false)) {
		intent_log_about(from, INTENT_NOTHING);
		n++;
	}
	assert_true(n >= SLOTS_AT_LEAST);
	assert_int_equal(standing(KEY), n);
	intent_log_use_area(mem);
	assert_non_null(begin(KEY, n, false));
	intent_log_about(from, INTENT_NOTHING);
	assert_int_equal(standing(KEY), n);
	/* The intents of this server stay. */
	for (unsigned k = 1; k < n; k++)
		assert_non_null(begin(KEY, n + k, false));
	assert_null(begin(KEY, 2 * n, false));
	assert_true(begin(KEY, n, true)->is_begun);
}

static void test_intent_log__slot_that_was_being_filled_is_free_for_the_next_server(void **state)
{
	void *mem = fresh_area();
	struct intent *n;
	unsigned k = 0;

	(void)state;
	/* The code, in the two lowest bits, is 2 when the slot stands, and 1 before. */
	while ((n = begin(KEY, k, false))) {
		assert_int_equal(n->state & 3, 2);
		n->state--;
		k++;
	}
	intent_log_use_area(mem);
	assert_false(begin(KEY, 1, true)->is_begun);
	while (--k > 0)
		assert_non_null(begin(KEY, 10000 + k, false));
	assert_null(begin(KEY, 20000, false));
}

static void test_intent_log__area_of_another_layout_is_emptied(void **state)
{
	void *mem = fresh_area();

	(void)state;
	memset(mem, 0xff, intent_log_area_bytes());
	intent_log_use_area(mem);
	assert_int_equal(standing(UINT64_MAX), 0);
	assert_non_null(begin(KEY, 1, false));
}

static void *many(void *arg)
{
	uint64_t base = (uint64_t)(uintptr_t)arg;
	struct intent_object from = { .node = 5 };

	for (uint64_t k = 0; k < 20000; k++) {
		struct intent *n = begin(KEY, base + k, false);

		if (!n || n->unique != base + k)
			return (void *)1;
		intent_log_about(from, INTENT_NOTHING);
		if (!n->is_begun || n->unique != base + k)
			return (void *)1;
		intent_log_end(n);
	}
	return NULL;
}

static void test_intent_log__threads_never_share_a_slot(void **state)
{
	pthread_t threads[8];

	(void)state;
	fresh_area();
	for (uintptr_t k = 0; k < 8; k++)
		assert_int_equal(pthread_create(&threads[k], NULL, many, (void *)(k << 32)), 0);
	for (unsigned k = 0; k < 8; k++) {
		void *failed;

		pthread_join(threads[k], &failed);
		assert_null(failed);
	}
	assert_int_equal(standing(KEY), 0);
}

/* Killed at any moment it leaves whole intents: name and numbers of one request. */
static void test_intent_log__killed_at_any_moment_it_leaves_whole_ones(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 100; round++) {
		void *mem = fresh_area();
		pid_t pid = fork();
		struct intent *n;

		if (pid == 0)
			for (uint64_t k = 1;; k++) {
				struct intent_object from = { .node = (uint32_t)k & 0xffffff };

				n = begin(KEY, k, false);
				intent_log_about(from, INTENT_NOTHING);
				intent_log_end(n);
			}
		usleep(1000 + round * 10);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		intent_log_use_area(mem);
		for (uint64_t k = 1; standing(KEY) && k < 10000000; k++) {
			n = begin(KEY, k, true);
			if (n->is_begun)
				assert_int_equal(n->from.node, k & 0xffffff);
			assert_string_equal(n->from.name, "old");
			intent_log_end(n);
		}
		assert_int_equal(standing(KEY), 0);
		munmap(mem, intent_log_area_bytes());
	}
}

static void test_intent_log__a_note_stands_beside_the_intent_of_the_same_request(void **state)
{
	struct intent *note, *n;

	(void)state;
	fresh_area();
	note = intent_log_note(&(struct intent_request){ .key = KEY,
							 .unique = 11,
							 .kind = INTENT_INVALIDATE,
							 .node = 5,
							 .from_parent = 1,
							 .from_name = "old" });
	assert_non_null(note);
	n = begin(KEY, 11, false);
	assert_ptr_not_equal(n, note);
	assert_int_equal(standing(KEY), 1);
	assert_int_equal(note->from.node, 5);
	assert_string_equal(note->from.name, "old");
	intent_log_end(n);
	assert_int_equal(standing(KEY), 1);
	intent_log_drop_note(note);
	intent_log_drop_note(NULL);
	assert_int_equal(standing(KEY), 0);
	assert_null(intent_log_note(&(struct intent_request){ .kind = INTENT_INVALIDATE }));
}

static void test_intent_log__set_id_writes_are_counted_while_they_stand(void **state)
{
	const struct intent_request setid = { .key = KEY, .unique = 21, .kind = INTENT_SETID };
	void *mem = fresh_area();
	struct intent *n;

	(void)state;
	assert_false(intent_log_has_setid());
	n = begin(KEY, 20, false);
	assert_false(intent_log_has_setid());
	intent_log_use_area(mem);
	assert_false(intent_log_has_setid());
	intent_log_end(begin(KEY, 20, true));
	n = intent_log_begin(&setid);
	assert_true(intent_log_has_setid());
	intent_log_use_area(mem);
	assert_true(intent_log_has_setid());
	n = intent_log_begin(&(struct intent_request){
		.key = KEY, .unique = 21, .kind = INTENT_SETID, .is_resent = true });
	assert_non_null(n);
	intent_log_end(n);
	assert_false(intent_log_has_setid());
}

static void test_intent_log__intent_is_left_until_a_request_of_this_server_takes_it_up(void **state)
{
	void *mem = fresh_area();
	struct intent *n = begin(KEY, 11, false);

	(void)state;
	assert_false(intent_log_is_left(n));
	intent_log_about((struct intent_object){ .node = 5 }, INTENT_NOTHING);
	intent_log_use_area(mem);
	assert_true(intent_log_is_left(n));
	assert_ptr_equal(begin(KEY, 11, true), n);
	assert_false(intent_log_is_left(n));
	intent_log_end(n);
}

static void test_intent_log__another_attempt_of_a_thread_has_the_same_slot(void **state)
{
	struct intent *n, *other;

	(void)state;
	fresh_area();
	n = begin(KEY, 11, false);
	assert_non_null(n);
	assert_ptr_equal(begin(KEY, 11, false), n);
	assert_ptr_equal(intent_log_current(), n);
	other = begin(KEY + 1, 11, false);
	assert_ptr_not_equal(other, n);
	assert_ptr_not_equal(begin(KEY + 1, 12, false), other);
	n = intent_log_current();
	assert_ptr_not_equal(intent_log_begin(&(struct intent_request){
				     .key = KEY + 1, .unique = 12, .kind = INTENT_SETXATTR }),
			     n);
}

static struct intent *begin_kind(enum intent_kind kind, uint64_t unique)
{
	struct intent *n = intent_log_begin(
		&(struct intent_request){ .key = KEY, .unique = unique, .kind = kind });

	assert_non_null(n);
	intent_log_mark(n);
	return n;
}

static void test_intent_log__only_what_the_dead_left_is_dropped(void **state)
{
	void *mem = fresh_area();

	(void)state;
	begin_kind(INTENT_CREATE, 11);
	begin_kind(INTENT_RENAME, 12);
	intent_log_use_area(mem);
	begin_kind(INTENT_CREATE, 13);
	begin_kind(INTENT_RENAME, 14);
	assert_int_equal(standing(KEY), 4);
	intent_log_drop_left(KEY + 1);
	intent_log_drop_old(KEY + 1);
	assert_int_equal(standing(KEY), 4);
	intent_log_drop_left(KEY);
	assert_int_equal(standing(KEY), 3);
	assert_true(begin(KEY, 12, true)->is_begun);
	intent_log_use_area(mem);
	begin_kind(INTENT_RENAME, 15);
	intent_log_drop_old(KEY);
	assert_int_equal(standing(KEY), 1);
	assert_true(begin(KEY, 15, true)->is_begun);
}

/* Of an area with no room behind it. */
static void test_intent_log__nothing_behind_the_last_slot_is_looked_at(void **state)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE),
		     len = (intent_log_area_bytes() + page - 1) / page * page;
	char *mem =
		mmap(NULL, len + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *top = mem + len - intent_log_area_bytes();
	unsigned n = 0;

	(void)state;
	assert_true(mem != MAP_FAILED);
	assert_int_equal(mprotect(mem + len, page, PROT_NONE), 0);
	intent_log_use_area(top);
	for (; begin(KEY, n, false); n++)
		intent_log_about((struct intent_object){ .node = 5 }, INTENT_NOTHING);
	assert_int_equal(standing(KEY), n);
	intent_log_forget_setid(KEY, n, (struct intent_object){ .node = 5 });
	intent_log_use_area(top);
	assert_true(begin(KEY, n - 1, true)->is_begun);
	intent_log_drop(KEY);
	assert_int_equal(standing(KEY), 0);
	fresh_area();
	munmap(mem, len + page);
}

static struct intent *begin_setid(uint64_t key, uint64_t unique, uint32_t node, uint64_t upper_ino)
{
	struct intent *n = intent_log_begin(
		&(struct intent_request){ .key = key, .unique = unique, .kind = INTENT_SETID });

	assert_non_null(n);
	n->from.node = node;
	n->from.upper_ino = upper_ino;
	n->mode = 04755;
	n->capability_len = 20;
	intent_log_mark(n);
	return n;
}

/* The bits of a file that gets others by request 30. */
static void test_intent_log__bits_to_be_put_back_are_forgotten_of_one_file(void **state)
{
	const struct intent_object file = { .node = 5, .upper_ino = 500 };
	struct intent *n[8];

	(void)state;
	fresh_area();
	n[0] = begin_setid(KEY, 21, 5, 500);
	/* The file had no number before its copy-up. */
	n[1] = begin_setid(KEY, 22, 5, 0);
	n[2] = begin_setid(KEY, 23, 6, 0);
	/* And one of its own before it was replaced, or a node before it was forgotten. */
	n[3] = begin_setid(KEY, 24, 5, 600);
	n[4] = begin_setid(KEY, 25, 6, 500);
	n[5] = begin_setid(KEY, 26, 6, 600);
	n[6] = begin_setid(KEY, 30, 5, 500);
	n[7] = begin_setid(KEY + 1, 27, 5, 500);
	intent_log_forget_setid(KEY, 30, file);
	for (unsigned k = 0; k < 8; k++) {
		assert_int_equal(n[k]->mode, k < 5 ? 0 : 04755);
		assert_int_equal(n[k]->capability_len, k < 5 ? 0 : 20);
		intent_log_end(n[k]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_intent_log__set_id_writes_are_counted_while_they_stand),
		cmocka_unit_test(
			test_intent_log__intent_is_left_until_a_request_of_this_server_takes_it_up),
		cmocka_unit_test(test_intent_log__only_what_the_dead_left_is_dropped),
		cmocka_unit_test(test_intent_log__another_attempt_of_a_thread_has_the_same_slot),
		cmocka_unit_test(test_intent_log__nothing_behind_the_last_slot_is_looked_at),
		cmocka_unit_test(test_intent_log__bits_to_be_put_back_are_forgotten_of_one_file),
		cmocka_unit_test(test_intent_log__next_server_finds_what_was_begun),
		cmocka_unit_test(
			test_intent_log__a_note_stands_beside_the_intent_of_the_same_request),
		cmocka_unit_test(test_intent_log__nothing_of_another_request_or_mount_is_found),
		cmocka_unit_test(test_intent_log__answered_request_is_forgotten),
		cmocka_unit_test(test_intent_log__without_a_key_there_is_no_journal),
		cmocka_unit_test(
			test_intent_log__what_is_left_of_the_dead_makes_room_when_all_is_taken),
		cmocka_unit_test(
			test_intent_log__slot_that_was_being_filled_is_free_for_the_next_server),
		cmocka_unit_test(test_intent_log__area_of_another_layout_is_emptied),
		cmocka_unit_test(test_intent_log__threads_never_share_a_slot),
		cmocka_unit_test(test_intent_log__killed_at_any_moment_it_leaves_whole_ones),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
