// SPDX-License-Identifier: Apache-2.0
#include "veneer/server/standalone.h"

#include "sandbox.h"
#include "sigusr1_stats.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/fuse/attach.h"
#include "veneer/fuse/pool.h"
#include "veneer/layer/fd_cache.h"
#include "veneer/mount/upper_takeover.h"
#include "veneer/server/sandbox_setup.h"
#include "veneer/sys/cpu_latency.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define ERR_SIZE	(PATH_MAX * 2)
#define SIGDONE		SIGRTMIN /* the session is over */
#define SIGWANTED	(SIGRTMIN + 1) /* another mount wants our upper */
#define THREADS_MAX	64u /* half of them for one mount */
#define END_WAIT_MS	5000u
#define LEARNED_WAIT_MS 2000u /* at the end, for a slow profile */

/* The one mount of this process. */
struct serving {
	struct mount mount;
	struct attach *attach;
	struct pool *pool;
	uint64_t number; /* in the pool */
	pthread_t main_thread;
};

static void session_ended(struct session *s, void *arg)
{
	struct serving *v = arg;

	session_free(s);
	pthread_kill(v->main_thread, SIGDONE);
}

static void print_counters(struct mount *m, bool is_background)
{
	struct sigusr1_stats c = { 0 };

	sigusr1_stats_add(&c, m);
	sigusr1_stats_print(&c, false, is_background);
}

/* End a mount that is detached but in use: its users lose it. */
static void end_serving(struct serving *v, const char *why)
{
	log_warn("%s is detached but in use%s; ending", v->mount.opts.mountpoint, why);
	if (pool_end(v->pool, v->number, END_WAIT_MS) < 0) {
		log_error("%s: a request does not end", v->mount.opts.mountpoint);
		_exit(0); /* all acknowledged data is in the upper */
	}
}

/* The first signal detaches the mount, which is served as long as it is in use. A further one ends
 * it. */
static void stop_serving(struct serving *v)
{
	if (attach_detach(v->attach) == -ENOENT)
		end_serving(v, "");
}

/* Another mount may have asked for this upper. End this mount only if it is detached: an attached
 * mount keeps its upper. */
static void make_room(struct serving *v, int fd)
{
	const struct layer *upper = v->mount.tree.upper;

	if (upper_takeover_is_asked(fd, upper->dev, upper->ino) && attach_is_detached(v->attach))
		end_serving(v, ", and another mount wants its upper");
}

/* Signals are blocked in all threads and taken here, one at a time. */
static void serve_until_done(struct serving *v, const sigset_t *set, bool is_background)
{
	_cleanup_(closep) int takeover_fd = -1;
	int sig;

	/* On a file system without fifos, other mounts cannot ask for the upper. */
	if (v->mount.tree.upper)
		upper_takeover_listen(v->mount.tree.workfd, SIGWANTED, &takeover_fd);
	while (sigwait(set, &sig) == 0 && sig != SIGDONE) {
		if (sig == SIGUSR1)
			print_counters(&v->mount, is_background);
		else if (sig == SIGWANTED || sig == SIGIO)
			make_room(v, takeover_fd);
		else
			stop_serving(v);
	}
}

/* Log it again, now that the log has its final place: engines drop the standard error of a mount
 * program that succeeds. */
static void log_unknown(const struct mount_opts *o)
{
	_cleanup_(freep) char *unknown = options_unknown(o);

	if (unknown)
		log_warn("%s: unknown argument ignored: %s", o->mountpoint, unknown);
}

/* The mount answers: release the caller, and detach from its standard descriptors. */
static void detach(int ready_fd, int null)
{
	char ok = 0;

	for (int fd = 0; fd <= 2; fd++)
		while (dup2(null, fd) < 0 && (errno == EINTR || errno == EBUSY))
			;
	log_to_syslog();
	while (write(ready_fd, &ok, 1) < 0 && errno == EINTR)
		;
	close(ready_fd);
}

static void prepare_process(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGHUP);
	sigaddset(set, SIGUSR1);
	sigaddset(set, SIGDONE);
	sigaddset(set, SIGWANTED);
	sigaddset(set, SIGIO); /* for SIGWANTED, when the user's queue of signals is full */
	pthread_sigmask(SIG_BLOCK, set, NULL);
	sandbox_setup_prepare();
}

/* Mount, and start answering. 0, or -errno and a sentence. */
static int start_serving(struct serving *v, char *err, size_t err_size)
{
	struct session *s = NULL;
	int r = attach_new(&v->mount.opts, !v->mount.tree.upper, &v->attach, err, err_size);

	if (r < 0)
		return r;
	r = session_start(&v->mount, attach_fd(v->attach), &s, err, err_size);
	if (r == 0) {
		mount_start_prefetch(&v->mount);
		r = pool_new(THREADS_MAX, &v->pool);
		if (r == 0)
			r = pool_add(v->pool, s, session_ended, v, &v->number);
		if (r < 0)
			snprintf(err, err_size, "cannot start a thread: %s", strerror(-r));
	}
	if (r < 0) {
		attach_detach(v->attach);
		session_free(s);
		return r;
	}
	attach_tune(v->attach);
	return 0;
}

int standalone_run(struct mount_opts *opts, struct mount_dirs *dirs, int ready_fd)
{
	struct serving v = { .main_thread = pthread_self() };
	_cleanup_(closep) int null = -1;
	char err[ERR_SIZE] = "";
	sigset_t set;
	int r;

	prepare_process(&set);
	sandbox_enter(true);
	r = mount_open_at(&v.mount, opts, dirs, err, sizeof(err));
	/* Callers wait for the end of our output, so it must be possible to close it. */
	if (r == 0 && ready_fd >= 0 && (null = open("/dev/null", O_RDWR | O_CLOEXEC)) < 0) {
		r = -errno;
		snprintf(err, sizeof(err), "cannot open /dev/null: %s", strerror(-r));
	}
	if (r == 0)
		r = start_serving(&v, err, sizeof(err));
	if (r < 0) {
		log_error("%s", err);
	} else {
		if (chdir("/") < 0)
			log_warn("cannot change to /: %s", strerror(errno));
		fd_cache_bound();
		if (ready_fd >= 0) {
			detach(ready_fd, null);
			log_unknown(&v.mount.opts);
		}
		serve_until_done(&v, &set, ready_fd >= 0);
	}
	pool_free(v.pool);
	cpu_latency_stop();
	attach_free(v.attach);
	mount_close(&v.mount);
	prefetch_session_drain(LEARNED_WAIT_MS);
	return r < 0 ? 1 : 0;
}

int standalone_start(struct mount_opts *opts, struct mount_dirs *dirs)
{
	int ready[2], status = 0;
	char byte;
	pid_t pid;
	ssize_t n;

	if (pipe2(ready, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
		log_error("cannot start the server: %s", strerror(errno));
		return 1;
	}
	if (pid == 0) {
		close(ready[0]);
		setsid();
		_exit(standalone_run(opts, dirs, ready[1]));
	}
	close(ready[1]);
	do {
		n = read(ready[0], &byte, 1);
	} while (n < 0 && errno == EINTR);
	close(ready[0]);
	if (n == 1) {
		log_say_if_lost("with -f it stays in the foreground and says it there");
		return 0;
	}
	/* The child has printed the reason on our standard error. */
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		log_error("the server died of signal %d", WTERMSIG(status));
	return 1;
}
