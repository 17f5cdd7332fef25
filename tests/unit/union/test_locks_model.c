// SPDX-License-Identifier: Apache-2.0
/* Random requests, against a model that knows of each byte who has it in which way, and of each
 * waiter what it wants. */
#include "veneer/union/locks.h"

#include "veneer/base/cleanup.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define OWNERS	 5u
#define FILES	 2u
#define BYTES	 24u /* the last one stands for all to the end */
#define RUNS	 200u
#define STEPS	 600u
#define WAITERS	 64u
#define INODE(f) ((f) + 1000u)

static uint64_t seed;

static uint32_t draw(uint32_t below)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((seed >> 33) % below);
}

struct waiting {
	bool is_used, is_told, is_expected_told;
	int result, expected;
	uint64_t number, order;
	struct lock_request request;
};

static struct {
	uint8_t record[FILES][OWNERS][BYTES], flock[FILES][OWNERS];
	struct waiting waiters[WAITERS];
	uint64_t orders;
} model;

static struct locks *locks;

static unsigned file_of(const struct lock_request *q)
{
	return (unsigned)(q->inode - INODE(0));
}
static unsigned last_of(const struct lock_request *q)
{
	return q->end == LOCKS_END ? BYTES - 1 : (unsigned)q->end;
}

static bool clashes(uint8_t a, uint8_t b)
{
	return a && b && (a == LOCKS_EXCLUSIVE || b == LOCKS_EXCLUSIVE);
}

/* Bits of the owners that are in the way. */
static unsigned in_the_way(const struct lock_request *q)
{
	unsigned f = file_of(q), found = 0;

	for (unsigned o = 0; o < OWNERS; o++) {
		if (o == q->owner)
			continue;
		if (q->kind == LOCKS_FLOCK) {
			found |= (unsigned)clashes(model.flock[f][o], (uint8_t)q->type) << o;
			continue;
		}
		for (unsigned b = (unsigned)q->start; b <= last_of(q); b++)
			found |= (unsigned)clashes(model.record[f][o][b], (uint8_t)q->type) << o;
	}
	return found;
}

static int model_set(const struct lock_request *q)
{
	unsigned f = file_of(q);

	if (q->kind == LOCKS_FLOCK && model.flock[f][q->owner] != q->type)
		model.flock[f][q->owner] = 0;
	if (in_the_way(q))
		return -EAGAIN;
	if (q->kind == LOCKS_FLOCK)
		model.flock[f][q->owner] = (uint8_t)q->type;
	else
		memset(&model.record[f][q->owner][q->start], (int)q->type,
		       last_of(q) - q->start + 1);
	return 0;
}

/* Does a circle of waiters for record locks close at owner? */
static bool closes_circle(unsigned owners, uint64_t owner)
{
	unsigned all = owners, before = 0;

	while (all != before) {
		before = all;
		for (unsigned k = 0; k < WAITERS; k++) {
			const struct waiting *w = &model.waiters[k];

			if (w->is_used && !w->is_expected_told && w->request.kind == LOCKS_RECORD &&
			    all >> w->request.owner & 1)
				all |= in_the_way(&w->request);
		}
	}
	return all >> owner & 1;
}

static struct waiting *next_waiting(uint64_t after)
{
	struct waiting *found = NULL;

	for (unsigned k = 0; k < WAITERS; k++) {
		struct waiting *w = &model.waiters[k];

		if (w->is_used && !w->is_expected_told && w->order > after &&
		    (!found || w->order < found->order))
			found = w;
	}
	return found;
}

static void expect_told(struct waiting *w, int result)
{
	w->is_expected_told = true;
	w->expected = result;
}

/* Of the two files by turns, each in order, again and again. */
static void model_grant(void)
{
	bool is_more = true;

	while (is_more) {
		uint64_t order = 0;
		struct waiting *w;

		is_more = false;
		while ((w = next_waiting(order))) {
			order = w->order;
			if (!in_the_way(&w->request)) {
				assert_int_equal(model_set(&w->request), 0);
				expect_told(w, 0);
				is_more = true;
			}
		}
	}
}

static void told(void *arg, int result)
{
	struct waiting *w = arg;

	assert_false(w->is_told);
	w->is_told = true;
	w->result = result;
}

static struct lock_request random_request(void)
{
	struct lock_request q = { .kind = draw(4) ? LOCKS_RECORD : LOCKS_FLOCK,
				  .type = draw(3),
				  .inode = INODE(draw(FILES)),
				  .owner = draw(OWNERS),
				  .end = LOCKS_END };
	uint32_t last;

	q.handle = q.owner;
	q.node = q.inode;
	q.pid = (uint32_t)q.owner + 7;
	if (q.kind == LOCKS_FLOCK)
		return q;
	q.start = draw(BYTES);
	last = (uint32_t)q.start + draw(BYTES - (uint32_t)q.start);
	if (last < BYTES - 1)
		q.end = last;
	return q;
}

static struct waiting *free_waiter(void)
{
	for (unsigned k = 0; k < WAITERS; k++)
		if (!model.waiters[k].is_used)
			return &model.waiters[k];
	return NULL;
}

static void step_set(void)
{
	struct lock_request q = random_request();
	bool is_closing;
	int r = model_set(&q);

	model_grant();
	assert_int_equal(locks_set(locks, &q, &is_closing), r);
}

static void step_wait(void)
{
	struct lock_request q = random_request();
	struct waiting *w = free_waiter();
	int r;

	if (!w || q.type == LOCKS_NONE)
		return;
	*w = (struct waiting){ .is_used = true, .is_expected_told = true, .request = q };
	r = model_set(&q);
	if (r == -EAGAIN)
		r = q.kind == LOCKS_RECORD && closes_circle(in_the_way(&q), q.owner) ? -EDEADLK : 1;
	if (r == 1) {
		w->is_expected_told = false;
		w->order = ++model.orders;
	} else {
		w->is_used = false;
	}
	model_grant();
	assert_int_equal(locks_prepare(locks, told, w, &w->number), 0);
	assert_int_equal(locks_wait(locks, w->number, &q), r);
}

static void step_cancel(void)
{
	struct waiting *w = &model.waiters[draw(WAITERS)];

	if (!w->is_used)
		return;
	expect_told(w, -EINTR);
	locks_cancel(locks, w->number);
}

static void step_release(void)
{
	unsigned f = draw(FILES);
	uint64_t owner = draw(OWNERS);
	bool is_last = draw(2);

	memset(model.record[f][owner], 0, BYTES);
	if (is_last)
		model.flock[f][owner] = 0;
	model_grant();
	if (is_last)
		locks_release_handle(locks, INODE(f), owner);
	else
		locks_release_owner(locks, INODE(f), owner, owner);
}

static unsigned runs_of(const uint8_t *bytes)
{
	unsigned n = 0;

	for (unsigned b = 0; b < BYTES; b++)
		n += bytes[b] && (b == 0 || bytes[b] != bytes[b - 1]);
	return n;
}

static uint32_t model_count(void)
{
	uint32_t n = 0;

	for (unsigned f = 0; f < FILES; f++)
		for (unsigned o = 0; o < OWNERS; o++)
			n += runs_of(model.record[f][o]) + !!model.flock[f][o];
	return n;
}

static void compare_byte(struct locks *l, unsigned f, unsigned b, enum lock_type type)
{
	struct lock_request q = { .kind = LOCKS_RECORD,
				  .type = type,
				  .inode = INODE(f),
				  .owner = OWNERS,
				  .start = b,
				  .end = b == BYTES - 1 ? LOCKS_END : b };
	struct lock_record r;

	if (!locks_test(l, &q, &r)) {
		assert_int_equal(in_the_way(&q), 0);
		return;
	}
	assert_true(r.owner < OWNERS);
	assert_int_equal(r.type, model.record[f][r.owner][b]);
	assert_int_equal(r.pid, r.owner + 7);
	assert_true(clashes(r.type, (uint8_t)type));
}

static void compare(struct locks *l)
{
	assert_int_equal(locks_count(l), model_count());
	for (unsigned f = 0; f < FILES; f++)
		for (unsigned b = 0; b < BYTES; b++) {
			compare_byte(l, f, b, LOCKS_SHARED);
			compare_byte(l, f, b, LOCKS_EXCLUSIVE);
		}
}

static void compare_waiters(void)
{
	for (unsigned k = 0; k < WAITERS; k++) {
		struct waiting *w = &model.waiters[k];

		if (!w->is_used)
			continue;
		assert_int_equal(w->is_told, w->is_expected_told);
		if (w->is_told)
			assert_int_equal(w->result, w->expected);
		w->is_used = !w->is_told;
	}
}

static uint64_t same(uint64_t node, void *arg)
{
	(void)arg;
	return node;
}

/* A server that starts now has the same. */
static void compare_recovery(void)
{
	struct locks *recovery;

	assert_int_equal(
		locks_attach(fcntl(locks_fd(locks), F_DUPFD_CLOEXEC, 3), same, NULL, &recovery), 0);
	compare(recovery);
	locks_free(recovery);
}

static void run(void)
{
	memset(&model, 0, sizeof(model));
	assert_int_equal(locks_new(&locks), 0);
	for (unsigned k = 0; k < STEPS; k++) {
		void (*const steps[])(void) = { step_set,  step_set,	step_set,    step_wait,
						step_wait, step_cancel, step_release };

		steps[draw(sizeof(steps) / sizeof(*steps))]();
		compare_waiters();
		compare(locks);
		if (k % 50 == 0)
			compare_recovery();
	}
	locks_end(locks, -ENODEV);
	locks_free(locks);
}

static void test_locks_model__random_requests_do_what_the_model_does(void **state)
{
	(void)state;
	for (unsigned k = 0; k < RUNS; k++) {
		seed = k + 1;
		run();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_locks_model__random_requests_do_what_the_model_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
