// SPDX-License-Identifier: Apache-2.0
/* An idle mount is a descriptor in the set, for one event (EPOLLONESHOT). The thread that gets the
 * event becomes a reader of that mount: it blocks in read(2) for the next request, answers it, and
 * so on. When the last reader has got a request, the descriptor goes back into the set, so that the
 * next request brings another one. Readers of a mount that was quiet for a while are woken and wait
 * in the set again. Each reader has room for the largest request, so all mounts together have few
 * (readers_max). Beyond the limit a thread answers its request and goes back to the set, after it
 * has interrupted a reader of a mount that is quiet. Else readers of the mount that was busy before
 * would make every request of the next one go through the set.
 *
 * (Waiting in the set alone, or one thread at a time in poll(2), took 50 us instead of 28 for the
 * stat of a fresh name; 3,000 names, nine rounds, two processors.)
 *
 * Requests hang when a layer's file system hangs. So one thread always waits in the set, and a
 * mount has no more threads than are left for all others: several slow mounts get half, a quarter,
 * ... A mount without a thread gets one also beyond the bound, which is therefore exceeded by one
 * for each mount at most. A mount that was refused a thread is armed again as soon as there is room
 * (is_short).
 *
 * An event names its member by a number and not by an address: it may come when the member has
 * gone. */
#include "veneer/fuse/pool.h"

#include "op.h"
#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/list.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/sys/autogroup_weight.h"
#include "veneer/sys/cpu_latency.h"
#include "veneer/sys/thread.h"

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#define POOL_IDLE	 2u /* idle threads beyond these exit after POOL_QUIET_MS */
#define POOL_READERS	 4u /* of one mount, that wait; fewer when many mounts are in use */
#define POOL_QUIET_MS	 1000 /* after one to two of them a mount has no readers */
#define POOL_LEFT_MS	 20 /* after that long without a request others may have the readers */
#define POOL_WEIGH_MS	 100 /* so often it is looked how many mounts are in use at once */
#define POOL_STEP_MS	 10
#define SIGWAKE		 (SIGRTMIN + 2) /* makes a reader's read(2) return */
#define POOL_STACK	 (1u << 20)
#define POOL_READERS_CPU 2u /* that wait, of all mounts, for each processor */
#define POOL_SPARE	 4u /* buffers kept for the next thread */
#define POOL_STOP	 UINT64_MAX

struct member {
	struct pool *pool;
	uint64_t number; /* a count in the upper half, its slot in the lower */
	struct session *session;
	void (*ended)(struct session *s, void *arg);
	void *arg;
	/* guarded by the pool's lock */
	unsigned nthreads, nreading; /* in serve(), and of them in read(2) */
	bool is_armed; /* its next request is an event of the set */
	bool is_over;
	int64_t served_ms; /* when its last request came */
};

/* A thread of the pool, on its own stack. */
struct thread {
	struct list_link link;
	pthread_t id;
	struct member *reads; /* in read(2); NULL: not */
	bool is_interrupted; /* and told to return from it */
};

struct pool {
	int epfd, stopfd;
	unsigned max, readers_max;
	mutex_t lock;
	pthread_cond_t changed;
	GUARDED_BY(lock) struct list_link threads;
	/* nidle: waiting in the set; nbusy: members with threads */
	GUARDED_BY(lock) unsigned nthreads, nidle, nending, nbusy;
	GUARDED_BY(lock) unsigned nreading; /* of all members */
	GUARDED_BY(lock) struct fuse_buf spare[POOL_SPARE];
	GUARDED_BY(lock) unsigned nspare;
	GUARDED_BY(lock) bool is_stopping;
	GUARDED_BY(lock) bool is_short; /* a member has requests and no thread to read them */
	GUARDED_BY(lock) int64_t weighed_ms;
	_Atomic int nice; /* the scheduler session's, by the mounts in use */
	GUARDED_BY(lock) uint64_t count;
	GUARDED_BY(lock) size_t n, nslots;
	GUARDED_BY(lock) struct member **slots; /* NULL where free */
};

static void *worker(void *arg);

static struct thread *thread_of(struct list_link *l)
{
	return container_of(l, struct thread, link);
}

static int spawn_locked(struct pool *p) REQUIRES(p->lock)
{
	int r = thread_start(worker, p, POOL_STACK);

	if (r == 0) {
		p->nthreads++;
		p->nidle++;
	}
	return r;
}

static unsigned readers_max(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	return POOL_READERS_CPU * (cpus > 1 ? (unsigned)cpus : 1);
}

static void wake(int sig)
{
	(void)sig;
}

int pool_new(unsigned max_threads, struct pool **ret)
{
	struct epoll_event stop = { .events = EPOLLIN, .data.u64 = POOL_STOP };
	struct pool *p = calloc(1, sizeof(*p));
	const struct sigaction action = { .sa_handler = wake }; /* no SA_RESTART */
	int r = 0;

	if (!p)
		return -ENOMEM;
	p->max = max_threads;
	p->readers_max = readers_max();
	mutex_init(&p->lock);
	pthread_cond_init(&p->changed, NULL);
	sigaction(SIGWAKE, &action, NULL);
	list_init(&p->threads);
	p->epfd = epoll_create1(EPOLL_CLOEXEC);
	p->stopfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->epfd < 0 || p->stopfd < 0 || epoll_ctl(p->epfd, EPOLL_CTL_ADD, p->stopfd, &stop) < 0)
		r = -errno;
	mutex_lock(&p->lock);
	if (r == 0)
		r = spawn_locked(p);
	mutex_unlock(&p->lock);
	if (r < 0) {
		pool_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

void pool_free(struct pool *p)
{
	const uint64_t one = 1;

	if (!p)
		return;
	mutex_lock(&p->lock);
	p->is_stopping = true;
	if (p->stopfd >= 0 && write(p->stopfd, &one, sizeof(one)) < 0)
		log_error("cannot stop the threads: %s", strerror(errno));
	while (p->nthreads || p->nending)
		pthread_cond_wait(&p->changed, &p->lock);
	mutex_unlock(&p->lock);
	lock_is_private(&p->lock);
	while (p->nspare)
		session_free_buffer(&p->spare[--p->nspare]);
	free(p->slots);
	closep(&p->epfd);
	closep(&p->stopfd);
	pthread_cond_destroy(&p->changed);
	mutex_destroy(&p->lock);
	free(p);
}

static int watch(struct pool *p, int op, const struct member *m)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT, .data.u64 = m->number };

	return epoll_ctl(p->epfd, op, session_fd(m->session), &event) < 0 ? -errno : 0;
}

/* A free slot's index. */
static ssize_t take_slot_locked(struct pool *p) REQUIRES(p->lock)
{
	size_t k = 0;

	while (k < p->nslots && p->slots[k])
		k++;
	if (k < p->nslots)
		return (ssize_t)k;
	if (array_reserve(&p->slots, &p->nslots, k + 1) < 0)
		return -ENOMEM;
	memset(p->slots + k, 0, (p->nslots - k) * sizeof(*p->slots));
	return (ssize_t)k;
}

static int add_locked(struct pool *p, struct member *m) REQUIRES(p->lock)
{
	ssize_t slot = take_slot_locked(p);
	int r;

	if (slot < 0)
		return (int)slot;
	m->number = ++p->count << 32 | (uint64_t)slot;
	r = watch(p, EPOLL_CTL_ADD, m);
	if (r < 0)
		return r;
	m->is_armed = true;
	p->slots[slot] = m;
	p->n++;
	return 0;
}

int pool_add(struct pool *p, struct session *s, void (*ended)(struct session *s, void *arg),
	     void *arg, uint64_t *ret_number)
{
	struct member *m = malloc(sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	*m = (struct member){ .pool = p, .session = s, .ended = ended, .arg = arg };
	mutex_lock(&p->lock);
	r = add_locked(p, m);
	if (r == 0)
		*ret_number = m->number;
	mutex_unlock(&p->lock);
	if (r < 0)
		free(m);
	return r;
}

size_t pool_count(struct pool *p)
{
	LOCK_SCOPE(&p->lock);
	return p->n;
}

/* ---- the end of a member ---- */

static void *run_ended(void *arg)
{
	struct member *m = arg;
	struct pool *p = m->pool;

	m->ended(m->session, m->arg);
	free(m);
	LOCK_SCOPE(&p->lock);
	p->n--;
	p->nending--;
	pthread_cond_broadcast(&p->changed);
	return NULL;
}

/* Have ended() called for a member that has no thread any more. Without a thread to be had, this
 * one does it. */
static void unlink_dead(struct member *m)
{
	if (thread_start(run_ended, m, POOL_STACK) < 0)
		run_ended(m);
}

/* True: the caller frees it, without the lock. */
static bool end_locked(struct pool *p, struct member *m) REQUIRES(p->lock)
{
	if (!m->is_over) {
		m->is_over = true;
		epoll_ctl(p->epfd, EPOLL_CTL_DEL, session_fd(m->session), NULL);
	}
	if (m->nthreads)
		return false;
	p->slots[m->number & UINT32_MAX] = NULL;
	p->nending++;
	pthread_cond_broadcast(&p->changed);
	return true;
}

static struct member *find_locked(struct pool *p, uint64_t number) REQUIRES(p->lock)
{
	size_t slot = number & UINT32_MAX;
	struct member *m = slot < p->nslots ? p->slots[slot] : NULL;

	return m && m->number == number ? m : NULL;
}

/* Wake the threads in read(2), or on their way to it, where they miss it. */
static void wake_readers_locked(struct pool *p, const struct member *m) REQUIRES(p->lock)
{
	for (struct list_link *l = p->threads.next; l != &p->threads; l = l->next)
		if (thread_of(l)->reads == m)
			pthread_kill(thread_of(l)->id, SIGWAKE);
}

int pool_end(struct pool *p, uint64_t number, unsigned timeout_ms)
{
	struct member *m, *dead = NULL;
	int r;

	mutex_lock(&p->lock);
	m = find_locked(p, number);
	if (m && end_locked(p, m))
		dead = m;
	for (unsigned waited = 0; find_locked(p, number) && waited < timeout_ms;
	     waited += POOL_STEP_MS) {
		wake_readers_locked(p, m);
		clock_wait(&p->changed, &p->lock, clock_ms() + POOL_STEP_MS);
	}
	r = find_locked(p, number) ? -ETIMEDOUT : 0;
	mutex_unlock(&p->lock);
	if (dead)
		unlink_dead(dead);
	return r;
}

int pool_resume(struct pool *p, uint64_t number)
{
	struct member *m;
	int r = 0;

	LOCK_SCOPE(&p->lock);
	m = find_locked(p, number);
	if (!m)
		return -ENOENT;
	if (m->is_over)
		r = watch(p, EPOLL_CTL_ADD, m);
	if (r == 0) {
		m->is_armed |= m->is_over;
		m->is_over = false;
	}
	return r;
}

/* ---- threads ---- */

static void arm_locked(struct pool *p, struct member *m)
{
	m->is_armed = watch(p, EPOLL_CTL_MOD, m) == 0;
}

/* How many readers a mount may have. */
static unsigned share_locked(const struct pool *p) REQUIRES(p->lock)
{
	unsigned share = p->max / 2 / (p->nbusy ? p->nbusy : 1);

	if (share > POOL_READERS)
		share = POOL_READERS;
	return share ? share : 1;
}

/* May the mount have one more? */
static bool has_room_locked(const struct pool *p, const struct member *m) REQUIRES(p->lock)
{
	return m->nthreads == 0 || m->nthreads + p->nthreads - p->nidle < p->max;
}

static bool wants_reader_locked(const struct pool *p, const struct member *m) REQUIRES(p->lock)
{
	/* No more than its share; and no second one while others wait for a thread. */
	return !p->is_stopping && !m->is_over && m->nreading < share_locked(p) &&
	       (p->nidle || !m->nreading);
}

static void start_reading_locked(struct pool *p, struct thread *self, struct member *m)
	REQUIRES(p->lock)
{
	p->nreading++;
	m->nreading++;
	self->reads = m;
	self->is_interrupted = false;
}

static void stop_reading_locked(struct pool *p, struct thread *self, struct member *m)
	REQUIRES(p->lock)
{
	self->reads = NULL;
	m->nreading--;
	p->nreading--;
}

/* Find the member of an event and make this thread its reader; another thread waits for the next
 * event. NULL: none is wanted. */
static struct member *start_serving(struct pool *p, struct thread *self, uint64_t number)
{
	struct member *m;

	LOCK_SCOPE(&p->lock);
	m = find_locked(p, number);
	if (!m || m->is_over)
		return NULL;
	m->is_armed = false;
	if (!wants_reader_locked(p, m))
		return NULL;
	if (!has_room_locked(p, m)) {
		p->is_short |= !m->nreading;
		return NULL;
	}
	p->nbusy += m->nthreads++ == 0;
	start_reading_locked(p, self, m);
	p->nidle--;
	if (p->nidle == 0)
		spawn_locked(p);
	return m;
}

static bool is_used(const struct member *m, int64_t now)
{
	return m->nthreads > m->nreading || now - m->served_ms <= POOL_WEIGH_MS;
}

/* Give the scheduler session the weight of as many mounts as are in use: a single mount with many
 * requests gets no more of the processors. True: the nice value changes. */
static bool weigh_locked(struct pool *p, int64_t now) REQUIRES(p->lock)
{
	const int before = p->nice;
	size_t used = 0;

	if (now - p->weighed_ms < POOL_WEIGH_MS)
		return false;
	p->weighed_ms = now;
	for (size_t k = 0; k < p->nslots; k++)
		used += p->slots[k] && is_used(p->slots[k], now);
	p->nice = autogroup_weight_nice(used);
	return p->nice != before;
}

static void call_next_locked(struct pool *p, struct member *m) REQUIRES(p->lock)
{
	if ((m->nreading && m->nthreads >= share_locked(p)) || m->is_over || m->is_armed)
		return;
	if (has_room_locked(p, m))
		arm_locked(p, m);
	else
		p->is_short |= !m->nreading;
}

/* This thread has a request; another thread reads the next one. True: as weigh_locked. */
static bool begin_work(struct pool *p, struct thread *self, struct member *m, int64_t now_ms)
{
	LOCK_SCOPE(&p->lock);
	stop_reading_locked(p, self, m);
	m->served_ms = now_ms;
	call_next_locked(p, m);
	return weigh_locked(p, now_ms);
}

/* A reader of the mount that has had no request for longest. NULL: all are in use. */
static struct thread *find_left_locked(struct pool *p, int64_t now) REQUIRES(p->lock)
{
	struct thread *left = NULL;

	for (struct list_link *l = p->threads.next; l != &p->threads; l = l->next) {
		struct thread *t = thread_of(l);

		if (t->reads && !t->is_interrupted && now - t->reads->served_ms >= POOL_LEFT_MS &&
		    (!left || t->reads->served_ms < left->reads->served_ms))
			left = t;
	}
	return left;
}

/* A thread that has yet to block misses it, and is woken when its mount is quiet. */
static bool interrupt_reader_locked(struct pool *p) REQUIRES(p->lock)
{
	struct thread *left = find_left_locked(p, clock_ms());

	if (!left)
		return false;
	left->is_interrupted = true;
	pthread_kill(left->id, SIGWAKE);
	return true;
}

/* True: this thread reads on. */
static bool end_work(struct pool *p, struct thread *self, struct member *m)
{
	LOCK_SCOPE(&p->lock);
	if (!wants_reader_locked(p, m) || (!p->nidle && p->n > 1) ||
	    (p->nreading >= p->readers_max && !interrupt_reader_locked(p)))
		return false;
	start_reading_locked(p, self, m);
	return true;
}

/* A thread has come free. */
static void arm_short_locked(struct pool *p) REQUIRES(p->lock)
{
	p->is_short = false;
	for (size_t k = 0; k < p->nslots; k++) {
		struct member *m = p->slots[k];

		if (!m || m->is_over || m->is_armed || m->nreading)
			continue;
		if (has_room_locked(p, m))
			arm_locked(p, m);
		else
			p->is_short = true;
	}
}

/* error: of read(2), in which the thread was; 0: it was not. */
static void stop_serving(struct pool *p, struct thread *self, struct member *m, int error)
{
	bool is_last = false;

	mutex_lock(&p->lock);
	if (error)
		stop_reading_locked(p, self, m);
	p->nidle++;
	p->nbusy -= --m->nthreads == 0;
	if (error && error != -EINTR && error != -ENODEV && !m->is_over)
		log_error("%s: cannot read requests: %s",
			  session_mount(m->session)->opts.mountpoint, strerror(-error));
	if ((error && error != -EINTR) || m->is_over)
		is_last = end_locked(p, m);
	else if (!m->is_armed && !m->nreading)
		arm_locked(p, m);
	if (p->is_short)
		arm_short_locked(p);
	mutex_unlock(&p->lock);
	if (is_last)
		unlink_dead(m);
}

/* Take a buffer. Its mem is NULL where none is left: session_receive makes one. */
static struct fuse_buf take_buffer(struct pool *p)
{
	LOCK_SCOPE(&p->lock);
	return p->nspare ? p->spare[--p->nspare] : (struct fuse_buf){ 0 };
}

static void put_buffer(struct pool *p, struct fuse_buf *buf)
{
	mutex_lock(&p->lock);
	if (buf->mem && p->nspare < POOL_SPARE) {
		p->spare[p->nspare++] = *buf;
		buf->mem = NULL;
	}
	mutex_unlock(&p->lock);
	session_free_buffer(buf);
}

static void serve(struct pool *p, struct thread *self, uint64_t number)
{
	struct member *m = start_serving(p, self, number);
	struct fuse_buf buf;
	int64_t now_ms;
	int r;

	if (!m)
		return;
	buf = take_buffer(p);
	do {
		r = session_receive(m->session, &buf);
		if (r <= 0)
			break;
		now_ms = clock_ms();
		if (begin_work(p, self, m, now_ms))
			autogroup_weight_apply(p->nice);
		cpu_latency_request(session_mount(m->session)->opts.cpu_latency, now_ms);
		session_answer(m->session, &buf);
		r = 0;
	} while (end_work(p, self, m));
	put_buffer(p, &buf);
	stop_serving(p, self, m, r);
}

/* Wake the readers of members that had no request for a while, also where others of their threads
 * hang. A reader that has yet to block misses it. */
static void wake_quiet_readers(struct pool *p)
{
	const int64_t now = clock_ms();

	LOCK_SCOPE(&p->lock);
	for (size_t k = 0; k < p->nslots; k++) {
		const struct member *m = p->slots[k];

		if (m && m->nreading && now - m->served_ms >= POOL_QUIET_MS)
			wake_readers_locked(p, m);
	}
}

/* A thread exits when enough others are idle, and not before it was idle for a while: where each
 * request wants a thread, it would be missed at once. */
static bool may_exit(struct pool *p, bool was_idle)
{
	LOCK_SCOPE(&p->lock);
	if (!p->is_stopping && (!was_idle || p->nidle <= POOL_IDLE))
		return false;
	p->nidle--;
	return true;
}

/* How long to wait in the set; -1: without limit. */
static int wait_limit_ms(struct pool *p)
{
	LOCK_SCOPE(&p->lock);
	return p->nbusy || p->nidle > POOL_IDLE ? POOL_QUIET_MS : -1;
}

static void add_thread(struct pool *p, struct thread *self)
{
	LOCK_SCOPE(&p->lock);
	self->id = pthread_self();
	list_add_tail(&p->threads, &self->link);
}

static void *worker(void *arg)
{
	struct pool *p = arg;
	struct thread self = { .reads = NULL };
	int n = 1;

	add_thread(p, &self);
	while (!may_exit(p, n == 0)) {
		struct epoll_event event;

		n = epoll_wait(p->epfd, &event, 1, wait_limit_ms(p));
		if (n == 1 && event.data.u64 != POOL_STOP)
			serve(p, &self, event.data.u64);
		else if (n == 0)
			wake_quiet_readers(p);
		else if (n < 0 && errno != EINTR)
			usleep(1000);
	}
	op_data_thread_release();
	LOCK_SCOPE(&p->lock);
	list_del(&self.link);
	p->nthreads--;
	if (p->is_short)
		arm_short_locked(p);
	pthread_cond_broadcast(&p->changed);
	return NULL;
}
