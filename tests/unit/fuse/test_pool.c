// SPDX-License-Identifier: Apache-2.0
#include "support/fuse_kernel.h"
#include "support/tree.h"

#include "veneer/fuse/pool.h"

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <sys/socket.h>

#define MANY	40
#define WAIT	60000
#define THREADS 8

/* A pool and one mount in it, whose `ended` is waited for. */
struct pooled {
	struct pool *pool;
	struct fuse_kernel k;
	struct session *session;
	uint64_t number;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool is_over, is_held;
	unsigned n_ended, n_held;
};

static void ended(struct session *s, void *arg)
{
	struct pooled *p = arg;

	session_free(s);
	pthread_mutex_lock(&p->lock);
	p->n_ended++;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

static void await_end(struct pooled *p)
{
	pthread_mutex_lock(&p->lock);
	while (!p->n_ended)
		pthread_cond_wait(&p->changed, &p->lock);
	pthread_mutex_unlock(&p->lock);
}

static unsigned read_count(struct pooled *p, const unsigned *count)
{
	unsigned n;

	pthread_mutex_lock(&p->lock);
	n = *count;
	pthread_mutex_unlock(&p->lock);
	return n;
}

/* A request that does not end before the test says so. */
static bool hold_statfs(void *arg, const struct fuse_buf *buf)
{
	struct pooled *p = arg;

	if (((const struct fuse_in_header *)buf->mem)->opcode != FUSE_STATFS)
		return false;
	pthread_mutex_lock(&p->lock);
	p->n_held++;
	pthread_cond_broadcast(&p->changed);
	while (p->is_held)
		pthread_cond_wait(&p->changed, &p->lock);
	pthread_mutex_unlock(&p->lock);
	return false;
}

static void await_held(struct pooled *p, unsigned n)
{
	pthread_mutex_lock(&p->lock);
	while (p->n_held < n)
		pthread_cond_wait(&p->changed, &p->lock);
	pthread_mutex_unlock(&p->lock);
}

static void release_held(struct pooled *p)
{
	pthread_mutex_lock(&p->lock);
	p->is_held = false;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

static void join(struct pooled *p, struct pool *pool, struct mount *m)
{
	*p = (struct pooled){ .pool = pool, .is_held = true };
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->changed, NULL);
	fuse_kernel_open(&p->k, 0);
	fuse_kernel_start(&p->k, m);
	p->session = p->k.session;
	p->k.session = NULL;
	session_divert(p->session, hold_statfs, p);
	assert_int_equal(pool_add(pool, p->session, ended, p, &p->number), 0);
}

static void start(struct pooled *p, struct tree_dirs *d)
{
	struct pool *pool;

	tree_mount(d, "volatile");
	assert_int_equal(pool_new(THREADS, &pool), 0);
	join(p, pool, &d->m);
	assert_int_equal(pool_count(pool), 1);
}

/* Its member has ended. */
static void leave(struct pooled *p)
{
	fuse_kernel_close(&p->k);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
}

static void stop(struct pooled *p)
{
	pool_free(p->pool);
	leave(p);
}

static void send_statfs(struct pooled *p)
{
	fuse_kernel_send(&p->k,
			 &(struct fuse_question){ .opcode = FUSE_STATFS, .node = FUSE_ROOT_ID });
}

static void test_pool__answers_until_the_connection_is_gone(void **state)
{
	struct pooled p;

	start(&p, *state);
	for (int i = 0; i < MANY; i++)
		assert_true(S_ISDIR(fuse_kernel_attr(&p.k, FUSE_ROOT_ID).mode));
	shutdown(p.k.fd, SHUT_RDWR);
	await_end(&p);
	assert_int_equal(pool_end(p.pool, p.number, 0), 0);
	assert_int_equal(pool_resume(p.pool, p.number), -ENOENT);
	stop(&p);
	assert_int_equal(p.n_ended, 1);
}

static void test_pool__requests_that_hang_do_not_stop_the_others(void **state)
{
	struct pooled p;

	start(&p, *state);
	send_statfs(&p);
	await_held(&p, 1);
	assert_true(S_ISDIR(fuse_kernel_attr(&p.k, FUSE_ROOT_ID).mode));
	send_statfs(&p);
	await_held(&p, 2);
	assert_true(S_ISDIR(fuse_kernel_attr(&p.k, FUSE_ROOT_ID).mode));
	release_held(&p);
	assert_int_equal(pool_end(p.pool, p.number, WAIT), 0);
	await_end(&p);
	stop(&p);
}

/* One that hangs gets half of the threads, and those that come after it are answered. */
static void test_pool__mount_that_hangs_starves_no_other(void **state)
{
	struct tree_dirs *other;
	struct pooled p, q;

	assert_int_equal(tree_setup((void **)&other), 0);
	tree_mount(other, "volatile");
	start(&p, *state);
	for (unsigned i = 0; i < 2 * THREADS; i++)
		send_statfs(&p);
	await_held(&p, THREADS / 2);
	join(&q, p.pool, &other->m);
	assert_int_equal(pool_count(p.pool), 2);
	for (int i = 0; i < MANY; i++)
		assert_true(S_ISDIR(fuse_kernel_attr(&q.k, FUSE_ROOT_ID).mode));
	assert_true(read_count(&p, &p.n_held) < THREADS);
	release_held(&p);
	/* None of them is lost. */
	await_held(&p, 2 * THREADS);
	assert_int_equal(pool_end(p.pool, p.number, WAIT), 0);
	assert_int_equal(pool_end(p.pool, q.number, WAIT), 0);
	await_end(&p);
	await_end(&q);
	stop(&p);
	leave(&q);
	tree_teardown((void **)&other);
}

static void test_pool__member_with_a_request_that_hangs_is_not_ended_and_may_go_on(void **state)
{
	struct pooled p;

	start(&p, *state);
	send_statfs(&p);
	await_held(&p, 1);
	assert_int_equal(pool_end(p.pool, p.number, 1), -ETIMEDOUT);
	assert_int_equal(read_count(&p, &p.n_ended), 0);
	assert_int_equal(pool_count(p.pool), 1);
	assert_int_equal(pool_resume(p.pool, p.number), 0);
	/* Also where nothing is to be resumed. */
	assert_int_equal(pool_resume(p.pool, p.number), 0);
	release_held(&p);
	assert_true(fuse_kernel_reply(&p.k, p.k.unique, NULL, 0) > 0);
	assert_true(S_ISDIR(fuse_kernel_attr(&p.k, FUSE_ROOT_ID).mode));
	assert_int_equal(pool_end(p.pool, p.number, WAIT), 0);
	await_end(&p);
	stop(&p);
}

static void test_pool__ended_comes_after_the_last_request_and_no_more_are_answered(void **state)
{
	struct pooled p;

	start(&p, *state);
	send_statfs(&p);
	await_held(&p, 1);
	assert_int_equal(pool_end(p.pool, p.number, 0), -ETIMEDOUT);
	assert_int_equal(read_count(&p, &p.n_ended), 0);
	release_held(&p);
	assert_true(fuse_kernel_reply(&p.k, p.k.unique, NULL, 0) > 0);
	await_end(&p);
	assert_int_equal(pool_end(p.pool, p.number, WAIT), 0);
	send_statfs(&p);
	assert_true(fuse_kernel_is_silent(&p.k));
	stop(&p);
}

static void test_pool__number_of_another_or_no_member_ends_nothing(void **state)
{
	static const uint64_t others[] = { 0, 1, UINT64_MAX, UINT32_MAX, (uint64_t)77 << 32 };
	struct pooled p;

	start(&p, *state);
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		assert_int_not_equal(others[i], p.number);
		assert_int_equal(pool_end(p.pool, others[i], 0), 0);
		assert_int_equal(pool_resume(p.pool, others[i]), -ENOENT);
	}
	assert_true(S_ISDIR(fuse_kernel_attr(&p.k, FUSE_ROOT_ID).mode));
	assert_int_equal(pool_end(p.pool, p.number, WAIT), 0);
	await_end(&p);
	stop(&p);
}

/* A number is not given again, though its slot is. */
static void test_pool__member_that_follows_has_another_number(void **state)
{
	uint64_t before;
	struct pooled p;

	start(&p, *state);
	before = p.number;
	assert_int_equal(pool_end(p.pool, p.number, WAIT), 0);
	await_end(&p);
	fuse_kernel_close(&p.k);
	fuse_kernel_open(&p.k, 0);
	fuse_kernel_start(&p.k, &((struct tree_dirs *)*state)->m);
	p.session = p.k.session;
	p.k.session = NULL;
	p.n_ended = 0;
	assert_int_equal(pool_add(p.pool, p.session, ended, &p, &p.number), 0);
	assert_int_not_equal(p.number, before);
	assert_int_equal((uint32_t)p.number, (uint32_t)before);
	assert_int_equal(pool_end(p.pool, before, 0), 0);
	assert_true(S_ISDIR(fuse_kernel_attr(&p.k, FUSE_ROOT_ID).mode));
	assert_int_equal(pool_end(p.pool, p.number, WAIT), 0);
	await_end(&p);
	stop(&p);
}

static void test_pool__connection_that_cannot_be_watched_is_refused(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	struct pool *pool;
	uint64_t number = 5;
	struct pooled p = { .is_held = false };

	tree_mount(d, "volatile");
	assert_int_equal(pool_new(2, &pool), 0);
	fuse_kernel_open(&k, 0);
	fuse_kernel_start(&k, &d->m);
	close(session_fd(k.session));
	assert_int_equal(pool_add(pool, k.session, ended, &p, &number), -EBADF);
	assert_int_equal(number, 5);
	assert_int_equal(pool_count(pool), 0);
	assert_int_equal(p.n_ended, 0);
	/* The number of the descriptor is the session's to close. */
	assert_true(fcntl(k.fuse_fd, F_DUPFD_CLOEXEC, session_fd(k.session)) >= 0);
	fuse_kernel_close(&k);
	pool_free(pool);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_pool__answers_until_the_connection_is_gone),
		row(test_pool__requests_that_hang_do_not_stop_the_others),
		row(test_pool__mount_that_hangs_starves_no_other),
		row(test_pool__member_with_a_request_that_hangs_is_not_ended_and_may_go_on),
		row(test_pool__ended_comes_after_the_last_request_and_no_more_are_answered),
		row(test_pool__number_of_another_or_no_member_ends_nothing),
		row(test_pool__member_that_follows_has_another_number),
		row(test_pool__connection_that_cannot_be_watched_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
