// SPDX-License-Identifier: Apache-2.0
/* The first thread takes connections, messages of clients, signals and requests for uppers, and
 * waits for nothing else. Everything that may take long runs on other threads.
 *
 * SERVING   accepts connections
 * LEAVING   told to exit: the socket is removed, so clients start a new server; mounts stay
 * ENDING    told again: the mounts are ended
 *
 * A process that removes the socket, or starts a server because there is none, holds the lock of
 * the run directory. So a client is either served here, or finds no socket and starts another
 * server. */
#include "veneer/server/server.h"

#include "client_conn.h"
#include "handoff.h"
#include "recovery.h"
#include "sandbox.h"
#include "sigusr1_stats.h"
#include "supervisor.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/hash.h"
#include "veneer/base/human_units.h"
#include "veneer/base/list.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/fuse/session.h"
#include "veneer/layer/fd_cache.h"
#include "veneer/layer/layer_registry.h"
#include "veneer/prefetch/prefetch_session.h"
#include "veneer/recover/intent_log.h"
#include "veneer/server/metrics.h"
#include "veneer/server/sandbox_setup.h"
#include "veneer/server/service_notify.h"
#include "veneer/sys/cpu_latency.h"
#include "veneer/sys/sock.h"
#include "veneer/sys/thread.h"

#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#define HEAP_KEPT_BYTES (256 << 10)
#define KEPT_BYTES	(64u << 20) /* of unused images */
#define CLIENTS_MAX \
	1024u /* clients without a complete request; a new one beyond that drops the oldest */
#define CLIENT_LIMIT_MS 10000 /* ... and so is a client without a message for so long */
#define WORKERS_MAX	128u
#define LONG_WORKERS_MAX \
	112u /* for requests that may take long; pings, statistics and upgrades have the rest */
/* If no long request ended for this time, a client that waits for a worker is refused. */
#define STALLED_MS	30000
#define WORKER_STACK	(1u << 20)
#define TICK_MS		100
#define ECHO_MS		1000
#define END_LIMIT_MS	15000
#define LEARNED_WAIT_MS 2000u /* at the end, for a slow profile */

enum state { SERVING, LEAVING, ENDING };

struct connected_client {
	struct list_link link;
	struct server *server;
	struct client_conn *conn;
	int64_t deadline_ms; /* for its next message; after its request, for a worker if those are
				stalled */
	bool takes_long;
};

struct server {
	const struct server_config *config;
	int epoll_fd, listen_fd, signal_fd, wake_fd, notify_fd;
	struct supervisor_state *supervisor_state; /* NULL: none */
	struct mount_table *mount_table;
	struct client_conn_host host;
	struct listen_socket endpoint; /* LISTEN_SOCKET_NONE: metrics are off */
	struct metrics *metrics;
	ino_t socket_ino;
	enum state state;
	int64_t told_ms; /* time of the last signal to exit */
	bool was_told_by_supervisor; /* that signal came through the supervisor */
	int64_t since_ms; /* of this state; while SERVING: of being idle */
	bool was_busy;
	struct list_link clients; /* oldest first */
	size_t n_clients;
	struct list_link pending; /* wait for a worker */
	mutex_t lock;
	/* n_long: workers with requests that may take long */
	GUARDED_BY(lock) unsigned n_workers, n_long;
	GUARDED_BY(lock) int64_t long_ended_ms; /* last end of such a request */
};

static struct connected_client *client_of(struct list_link *l)
{
	return container_of(l, struct connected_client, link);
}

static void wake(void *arg)
{
	struct server *s = arg;
	const uint64_t one = 1;

	(void)!write(s->wake_fd, &one, sizeof(one));
}

static unsigned workers(struct server *s)
{
	LOCK_SCOPE(&s->lock);
	return s->n_workers;
}

/* Wake the first thread under the lock: the server may be gone right after it. */
static void note_worker(struct server *s, int change, bool takes_long)
{
	LOCK_SCOPE(&s->lock);
	s->n_workers += (unsigned)change;
	if (takes_long)
		s->n_long += (unsigned)change;
	if (takes_long && change < 0)
		s->long_ended_ms = clock_ms();
	if (change < 0)
		wake(s);
}

static bool has_worker_for(struct server *s, const struct connected_client *g)
{
	LOCK_SCOPE(&s->lock);
	return s->n_workers < WORKERS_MAX && (!g->takes_long || s->n_long < LONG_WORKERS_MAX);
}

static bool is_stalled(struct server *s)
{
	LOCK_SCOPE(&s->lock);
	return s->n_long >= LONG_WORKERS_MAX && clock_ms() - s->long_ended_ms >= STALLED_MS;
}

static void forget_client(struct server *s, struct connected_client *g)
{
	list_del(&g->link);
	s->n_clients--;
	client_conn_free(g->conn);
	free(g);
}

static void *work(void *arg)
{
	struct connected_client *g = arg;
	struct server *s = g->server;
	const bool takes_long = g->takes_long;
	struct activity *before = activity_begin(
		s->supervisor_state ? supervisor_state_asked(s->supervisor_state) : NULL);

	client_conn_answer(g->conn, &s->host);
	activity_end(before);
	client_conn_free(g->conn);
	free(g);
	/* More layers are open than before: adapt the limit. */
	fd_cache_bound();
	note_worker(s, -1, takes_long);
	return NULL;
}

static bool start_worker(struct server *s, struct connected_client *g)
{
	const bool takes_long = g->takes_long;

	note_worker(s, 1, takes_long);
	if (thread_start(work, g, WORKER_STACK) == 0)
		return true;
	note_worker(s, -1, takes_long);
	return false;
}

/* Start workers for pending requests. If no thread can be started, they wait for the next tick. A
 * quick request does not wait behind long ones. */
static void start_workers(struct server *s)
{
	for (struct list_link *l = s->pending.next, *next; l != &s->pending; l = next) {
		struct connected_client *g = client_of(l);

		next = l->next;
		if (!has_worker_for(s, g))
			continue;
		list_del(&g->link);
		if (start_worker(s, g))
			continue;
		/* Put it back in its place. */
		list_add_tail(next, &g->link);
		return;
	}
}

/* Refuse clients that have waited too long for a stalled worker. */
static void refuse_stalled(struct server *s)
{
	const int64_t now = clock_ms();

	if (list_is_empty(&s->pending) || !is_stalled(s))
		return;
	for (struct list_link *l = s->pending.next, *next; l != &s->pending; l = next) {
		struct connected_client *g = client_of(l);

		next = l->next;
		if (!g->takes_long || g->deadline_ms > now)
			continue;
		list_del(&g->link);
		client_conn_refuse_stalled(g->conn, LONG_WORKERS_MAX);
		client_conn_free(g->conn);
		free(g);
	}
}

static void hear_client(struct server *s, struct connected_client *g)
{
	g->deadline_ms = clock_ms() + CLIENT_LIMIT_MS;
	switch (client_conn_receive(g->conn)) {
	case CLIENT_CONN_LISTENING:
		break;
	case CLIENT_CONN_OVER:
		forget_client(s, g);
		break;
	case CLIENT_CONN_ASKED:
		epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, client_conn_fd(g->conn), NULL);
		list_del(&g->link);
		s->n_clients--;
		g->takes_long = client_conn_takes_long(g->conn);
		g->deadline_ms = clock_ms() + STALLED_MS;
		list_add_tail(&s->pending, &g->link);
		start_workers(s);
		break;
	}
}

/* Take one connection. False: there is none, or it must wait. */
static bool take_client(struct server *s)
{
	struct epoll_event e = { .events = EPOLLIN };
	struct connected_client *g;
	int fd, r = sock_accept(s->listen_fd, &fd);

	if (r == -EMFILE || r == -ENFILE || r == -ENOMEM || r == -ENOBUFS) {
		fd_cache_shrink();
		if (s->n_clients)
			forget_client(s, client_of(s->clients.next));
	}
	if (r < 0)
		return false;
	g = calloc(1, sizeof(*g));
	if (!g) {
		close(fd);
		return true;
	}
	list_init(&g->link);
	g->server = s;
	if (client_conn_new(fd, &g->conn) < 0) {
		free(g);
		return true;
	}
	e.data.ptr = g;
	if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0) {
		client_conn_free(g->conn);
		free(g);
		return true;
	}
	if (s->n_clients >= CLIENTS_MAX)
		forget_client(s, client_of(s->clients.next));
	g->deadline_ms = clock_ms() + CLIENT_LIMIT_MS;
	list_add_tail(&s->clients, &g->link);
	s->n_clients++;
	return true;
}

/* Drop clients that have been silent for too long. */
static void drop_silent(struct server *s)
{
	const int64_t now = clock_ms();

	for (struct list_link *l = s->clients.next, *next; l != &s->clients; l = next) {
		next = l->next;
		if (client_of(l)->deadline_ms < now) {
			log_warn("a client said nothing for %d seconds: dropped",
				 CLIENT_LIMIT_MS / 1000);
			forget_client(s, client_of(l));
		}
	}
}

/* fuse-overlayfs prints such lines on standard error, in this form. */
static void add_mount(struct mount *m, const struct served_place *at, void *arg)
{
	(void)at;
	sigusr1_stats_add(arg, m);
}

static void print_counters(struct server *s)
{
	struct sigusr1_stats c = { .mounts = mount_table_count(s->mount_table) };

	mount_table_each(s->mount_table, add_mount, &c);
	sigusr1_stats_print(&c, true, !s->config->keeps_output);
}

static int tell_metrics(void *arg, char **ret_text)
{
	struct server *s = arg;

	return s->config->metrics(s->mount_table, ret_text);
}

static void start_metrics(struct server *s)
{
	int r = s->endpoint.fd < 0 ? 0
				   : metrics_start(s->endpoint.fd, tell_metrics, s, &s->metrics);

	if (r < 0)
		log_warn("metrics are not answered: %s", strerror(-r));
}

/* Free the address, as the next server may want it. An answer in progress may wait for a mount that
 * hangs; this thread does not. */
static void withdraw_metrics(struct server *s)
{
	metrics_quiesce(s->metrics);
	listen_socket_close(&s->endpoint);
}

/* Call it when no mount is left. */
static void stop_metrics(struct server *s)
{
	metrics_stop(steal_ptr(&s->metrics));
	listen_socket_close(&s->endpoint);
}

static void close_listener(struct server *s)
{
	if (s->listen_fd < 0)
		return;
	/* Note it first: the number of the closed socket may be reused at once. */
	if (s->supervisor_state)
		supervisor_state_note_going(s->supervisor_state, SUPERVISOR_STATE_IS_WITHDRAWN);
	epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, s->listen_fd, NULL);
	closep(&s->listen_fd);
	withdraw_metrics(s);
}

/* Called under the lock. Another process may have replaced the socket. */
static void remove_socket(struct server *s)
{
	const struct rundir *at = s->config->place;
	struct stat st;

	if (s->config->owns_socket && fstatat(at->fd, at->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    st.st_ino == s->socket_ino)
		rundir_remove(at);
}

/* Remove the listening socket, so that no client finds this server. False: a client is about to
 * connect; try again later. */
static bool withdraw(struct server *s, bool is_forced)
{
	_cleanup_(closep) int lock = -1;
	int r;

	if (s->listen_fd < 0)
		return true;
	r = rundir_lock(s->config->place, 0, &lock);
	if (r == -EAGAIN)
		return false;
	if (!is_forced && take_client(s))
		return false;
	remove_socket(s);
	close_listener(s);
	return true;
}

static void be_told_to_go(struct server *s)
{
	size_t n = mount_table_count(s->mount_table);

	s->since_ms = clock_ms();
	if (s->state != SERVING) {
		log_warn("told again to end: the server is taken from %s",
			 human_units_of(n, "mount").text);
		s->state = ENDING;
		return;
	}
	s->state = LEAVING;
	if (s->supervisor_state)
		supervisor_state_note_going(s->supervisor_state, SUPERVISOR_STATE_GOES);
	service_notify_send(s->notify_fd, "STOPPING=1");
	if (n)
		log_info("told to end: no more mounts are taken; the server ends with the last of "
			 "%s",
			 human_units_of(n, "mount").text);
	while (!list_is_empty(&s->clients))
		forget_client(s, client_of(s->clients.next));
}

/* Is this signal an echo? A service manager or a terminal signals the whole group, so a signal may
 * arrive directly and through the supervisor. Count it once. */
static bool is_echo(struct server *s, const struct signalfd_siginfo *info)
{
	const bool is_by_supervisor = s->supervisor_state && (pid_t)info->ssi_pid == getppid();
	const bool is_soon = s->told_ms && clock_ms() - s->told_ms < ECHO_MS;
	const bool is_other = is_by_supervisor != s->was_told_by_supervisor;

	s->told_ms = is_soon && is_other ? 0 : clock_ms();
	s->was_told_by_supervisor = is_by_supervisor;
	return is_soon && is_other;
}

static void take_signal(struct server *s)
{
	struct signalfd_siginfo info;

	if (read(s->signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo == SIGUSR1)
		print_counters(s);
	else if (info.ssi_signo == SIGUSR2 ? s->state == SERVING : !is_echo(s, &info))
		be_told_to_go(s);
}

static bool is_busy(struct server *s)
{
	return mount_table_count(s->mount_table) || workers(s) || s->n_clients ||
	       !list_is_empty(&s->pending);
}

/* Time until the next unused image is due to be freed. */
static int64_t images_left_ms(void)
{
	int left_s = layer_registry_trim();

	return left_s < 0 ? INT64_MAX : (int64_t)left_s * 1000;
}

static int64_t idle_left_ms(const struct server *s)
{
	return s->was_busy ? INT64_MAX
			   : s->since_ms + (int64_t)s->config->idle_s * 1000 - clock_ms();
}

/* Time until the next tick; -1: only an event changes anything. */
static int pause_ms(const struct server *s)
{
	int64_t left = images_left_ms();

	if (s->state != SERVING || s->n_clients || !list_is_empty(&s->pending))
		return TICK_MS;
	if (!s->was_busy && idle_left_ms(s) < left)
		left = idle_left_ms(s);
	if (left == INT64_MAX)
		return -1;
	return left < TICK_MS ? TICK_MS : left < INT_MAX ? (int)left : INT_MAX;
}

/* Do all due work. True: the server is over. */
static bool tick(struct server *s)
{
	const int64_t now = clock_ms();

	drop_silent(s);
	start_workers(s);
	refuse_stalled(s);
	if (s->state == SERVING) {
		if (is_busy(s) || s->was_busy)
			s->since_ms = now;
		s->was_busy = is_busy(s);
		return idle_left_ms(s) <= 0 && withdraw(s, false);
	}
	withdraw(s, true);
	if (s->state == ENDING) {
		mount_table_end_all(s->mount_table);
		if (now - s->since_ms > END_LIMIT_MS) {
			log_error("some requests do not end");
			if (s->supervisor_state)
				supervisor_state_leave(s->supervisor_state);
			_exit(1); /* all acknowledged data is in the uppers */
		}
	}
	return !is_busy(s) && s->listen_fd < 0;
}

static void loop(struct server *s)
{
	s->since_ms = clock_ms();
	while (!tick(s)) {
		struct epoll_event e;
		uint64_t count;

		/* Take one event at a time: it may free the object of the next one. */
		if (epoll_wait(s->epoll_fd, &e, 1, pause_ms(s)) != 1)
			continue;
		if (e.data.ptr == &s->listen_fd)
			take_client(s);
		else if (e.data.ptr == &s->signal_fd)
			take_signal(s);
		else if (e.data.ptr == &s->wake_fd)
			(void)!read(s->wake_fd, &count, sizeof(count));
		else if (e.data.ptr == &s->mount_table)
			mount_table_make_room(s->mount_table);
		else
			hear_client(s, e.data.ptr);
	}
}

static int watch(struct server *s, int fd, void *tag)
{
	struct epoll_event e = { .events = EPOLLIN, .data.ptr = tag };

	return epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0 ? -errno : 0;
}

static int take_signals(struct server *s)
{
	static const int taken[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++) {
		/* A signal that the starter ignored would never arrive. */
		signal(taken[i], SIG_DFL);
		sigaddset(&set, taken[i]);
	}
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return s->signal_fd < 0 ? -errno : 0;
}

static int tell_stats(void *arg, char **ret_json)
{
	struct server *s = arg;

	return s->config->stats ? s->config->stats(s->mount_table, ret_json) : -EOPNOTSUPP;
}

static int set_up(struct server *s)
{
	const struct rundir *at = s->config->place;
	struct stat st;
	int r = take_signals(s);

	if (r < 0)
		return r;
	if (fstatat(at->fd, at->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		s->socket_ino = st.st_ino;
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->epoll_fd < 0 || s->wake_fd < 0 ||
	    (s->listen_fd >= 0 && fcntl(s->listen_fd, F_SETFL, O_NONBLOCK) < 0))
		return -errno;
	r = mount_table_new(wake, s, s->supervisor_state, &s->mount_table);
	if (r == 0 && s->listen_fd >= 0)
		r = watch(s, s->listen_fd, &s->listen_fd);
	if (r == 0)
		r = watch(s, s->signal_fd, &s->signal_fd);
	if (r == 0)
		r = watch(s, s->wake_fd, &s->wake_fd);
	if (r == 0)
		r = watch(s, mount_table_fd(s->mount_table), &s->mount_table);
	s->host = (struct client_conn_host){ .mount_table = s->mount_table,
					     .stats = tell_stats,
					     .arg = s,
					     .supervisor_state = s->supervisor_state };
	return r;
}

static void let_go_of_output(bool has_log_file)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; null >= 0 && fd <= (has_log_file ? 1 : 2); fd++)
		dup2(null, fd);
	closep(&null);
	/* Keep a log that was already chosen. */
	if (!has_log_file && !log_is_of_system())
		log_to_syslog();
}

/* Serve, from the start of the process to its end. */
static int serve(struct server *s)
{
	int r;

	layer_registry_keep(s->config->idle_s, KEPT_BYTES);
	cpu_latency_use(s->config->cpu_latency);
	r = set_up(s);
	if (r < 0) {
		log_error("cannot start the server: %s", strerror(-r));
		/* A server that resumes mounts of a dead one fails here: another attempt may serve
		 * them. */
		if (s->supervisor_state && supervisor_state_deaths(s->supervisor_state))
			return r == -EAGAIN || r == -ENOMEM ? SUPERVISE_AGAIN : 1;
	} else if (s->supervisor_state && supervisor_state_deaths(s->supervisor_state) &&
		   recovery_resume(s->supervisor_state, s->mount_table) < 0) {
		log_error("no memory to go on with the mounts of the server before");
		return SUPERVISE_AGAIN;
	} else {
		start_metrics(s);
		service_notify_send(s->notify_fd, "READY=1");
		loop(s);
		log_info("the server leaves");
	}
	/* From here on a crash counts as the end. */
	if (s->supervisor_state)
		supervisor_state_leave(s->supervisor_state);
	stop_metrics(s);
	mount_table_free(s->mount_table);
	cpu_latency_stop();
	prefetch_session_drain(LEARNED_WAIT_MS);
	layer_registry_stop();
	closep(&s->wake_fd);
	closep(&s->signal_fd);
	closep(&s->epoll_fd);
	closep(&s->listen_fd);
	closep(&s->notify_fd);
	return r < 0 ? 1 : 0;
}

struct serving {
	const struct server_config *config;
	struct supervisor_state *supervisor_state;
	int notify_fd;
};

static int serve_from(void *arg)
{
	const struct serving *v = arg;
	struct server s = {
		.config = v->config,
		.supervisor_state = v->supervisor_state,
		.epoll_fd = -1,
		.listen_fd = v->config->listen_fd,
		.signal_fd = -1,
		.wake_fd = -1,
		.notify_fd = v->notify_fd,
		.endpoint = v->config->endpoint,
	};

	if (v->supervisor_state) {
		intent_log_use_area(supervisor_state_extra(v->supervisor_state));
		activity_note_in(supervisor_state_board(v->supervisor_state));
	}
	if (v->supervisor_state &&
	    supervisor_state_going(v->supervisor_state) != SUPERVISOR_STATE_STAYS) {
		s.state = LEAVING;
		if (supervisor_state_going(v->supervisor_state) == SUPERVISOR_STATE_IS_WITHDRAWN) {
			s.listen_fd = -1;
			s.endpoint = LISTEN_SOCKET_NONE;
		}
	}
	if (v->supervisor_state && supervisor_state_deaths(v->supervisor_state)) {
		const int ours[] = { s.listen_fd, v->config->place->fd, v->notify_fd, s.endpoint.fd,
				     s.endpoint.dir_fd };

		recovery_close_others(v->supervisor_state, ours, sizeof(ours) / sizeof(*ours));
	}
	list_init(&s.clients);
	list_init(&s.pending);
	mutex_init(&s.lock);
	return serve(&s);
}

/* Bound the heap: read buffers of a thread go back with it, and an arena keeps little of the memory
 * that opening a mount took. */
static void bound_heap(void)
{
	mallopt(M_MMAP_THRESHOLD, HEAP_KEPT_BYTES);
	mallopt(M_TRIM_THRESHOLD, HEAP_KEPT_BYTES);
}

static void confine(void)
{
	sandbox_enter(false);
}

/* Called in the supervisor. */
static int hand_over(int fd, void *arg)
{
	const struct serving *v = arg;

	return handoff_offer(fd, &(struct handoff){ .supervisor_state = v->supervisor_state,
						    .listen_fd = v->config->listen_fd,
						    .notify_fd = v->notify_fd,
						    .owns_socket = v->config->owns_socket });
}

/* Replace another server. Its descriptors come with their numbers, so ours make room. */
static int take_over(const struct server_config *c)
{
	struct rundir place = *c->place;
	struct server_config own = *c;
	struct serving v = { .config = &own };
	int *const fds[] = { &place.fd, &own.word_fd, &own.endpoint.dir_fd };
	struct handoff e;
	char err[512] = "";
	int r;

	own.place = &place;
	log_release();
	r = handoff_take(&own.from_fd, fds, sizeof(fds) / sizeof(*fds), &e, err, sizeof(err));
	if (r < 0) {
		(void)!write(own.word_fd, err, strlen(err));
		log_error("%s", err);
		return 1;
	}
	own.listen_fd = e.listen_fd;
	own.owns_socket = e.owns_socket;
	v.notify_fd = e.notify_fd;
	if (v.notify_fd >= 0)
		client_conn_note_unit();
	v.supervisor_state = e.supervisor_state;
	supervisor_state_set_word(v.supervisor_state, own.word_fd);
	r = own.endpoint.at_len || own.endpoint.dir_fd >= 0 ? listen_socket_listen(&own.endpoint)
							    : 0;
	if (r < 0)
		log_warn("metrics are not answered: %s", strerror(-r));
	r = supervisor_run(v.supervisor_state, confine, serve_from, hand_over, &v);
	return r < 0 ? 1 : r;
}

int server_run(const struct server_config *c)
{
	struct serving v = { .config = c, .notify_fd = service_notify_open() };
	int r = -ECANCELED;

	if (!c->keeps_output)
		let_go_of_output(c->has_log_file);
	activity_watch();
	sandbox_setup_prepare();
	client_conn_note_starter();
	if (v.notify_fd >= 0)
		client_conn_note_unit();
	sandbox_setup_enter();
	bound_heap();
	if (c->takes_over)
		return take_over(c);
	/* Draw the secret of the hash before the supervisor starts: the order of names in listings
	 * depends on it, and must be the same in the next server. */
	hash_key(c, 0, 0);
	if (!c->is_alone && supervisor_state_new(intent_log_area_bytes(), &v.supervisor_state) == 0)
		r = supervisor_run(v.supervisor_state, confine, serve_from, hand_over, &v);
	if (r >= 0)
		return r;
	if (!c->is_alone)
		log_warn("no supervisor: no other server follows if this one dies: %s",
			 strerror(-r));
	v.supervisor_state = NULL;
	confine();
	return serve_from(&v);
}
