// SPDX-License-Identifier: Apache-2.0
/* clone(2) instead of fork(3), for CLONE_FILES. The C library does not know of that process and
 * takes its first thread for ours, with a wrong id. So that thread only starts another one, which
 * the library knows, and waits for it. */
#include "supervisor.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/log.h"
#include "veneer/base/minmax.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

/* A server that dies so often so soon is brought down by its requests. SIGKILL does not count, as
 * it comes from outside. */
#define QUICK_MS     2000
#define QUICK_DEATHS 12u
#define PAUSE_MAX_MS 500

#define WAITERS_MS 100
#define LOOK_MS	   1000
#define STUCK	   (-1)

struct run {
	void (*begin)(void);
	int (*serve)(void *arg);
	int (*hand_over)(int fd, void *arg);
	void *arg;
	int code;
};

static const int handed_on[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 };

static void *run_server(void *arg)
{
	struct run *r = arg;

	r->code = r->serve(r->arg);
	return NULL;
}

/* Call it in a child: a descriptor that syslog opened here would be in the next server's table,
 * which closes or reuses it. */
static void tell(const char *how, unsigned quick)
{
	if (quick < QUICK_DEATHS)
		log_warn("the server died %s: starting it again", how);
	else
		log_error("the server died %s, %u times in a row: giving up, its mounts are gone",
			  how, quick);
	log_release();
}

/* The new process, until its exit. */
static void be_server(struct run *r)
{
	pthread_t thread;

	/* The terminal's signals are to come only through the supervisor. */
	setsid();
	/* Children of the server become no zombies. */
	signal(SIGCHLD, SIG_IGN);
	if (r->begin)
		r->begin();
	r->code = SUPERVISE_AGAIN;
	if (pthread_create(&thread, NULL, run_server, r) == 0)
		pthread_join(thread, NULL);
	exit(r->code);
}

static pid_t start(struct run *r)
{
	pid_t pid = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, 0);

	if (pid == 0)
		be_server(r);
	return pid < 0 ? -errno : pid;
}

/* True: the process is dead, and this is its wait status. Also reaps servers that were stuck. */
static bool has_ended(pid_t pid, int *ret_status)
{
	pid_t ended;
	int status;

	while ((ended = waitpid(-1, &status, WNOHANG)) > 0)
		if (ended == pid) {
			*ret_status = status;
			return true;
		}
	return false;
}

/* The next signal, or 0 after ms. */
static int next_signal(const sigset_t *taken, int ms)
{
	const struct timespec step = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
	int sig = sigtimedwait(taken, NULL, &step);

	return sig < 0 ? 0 : sig;
}

/* Wait for the end of the server, and forward signals meanwhile; returns its wait status. A dying
 * server may have threads that wait for an answer which only the next server can give, or for a
 * layer that may never answer: STUCK. It must look stuck twice in a row, because any dying server
 * may look so for a moment. */
static int await_by(struct supervisor_state *l, pid_t pid, const sigset_t *taken,
		    sigset_t *ret_missed)
{
	struct crash_board *board = supervisor_state_board(l);
	uint32_t nwaits = board->nwaits;
	bool was_stuck = false;
	int status;

	for (;;) {
		bool is_near = activity_keep_watch(board, &nwaits) || was_stuck;
		int sig = next_signal(taken, is_near ? WAITERS_MS : LOOK_MS);
		bool is_stuck;

		if (sig > 0 && sig != SIGCHLD && activity_is_dead(pid))
			sigaddset(ret_missed, sig);
		else if (sig > 0 && sig != SIGCHLD)
			kill(pid, sig);
		if (has_ended(pid, &status))
			return status;
		is_stuck = sig == 0 && activity_is_stuck(board, pid);
		if (is_stuck && was_stuck)
			return STUCK;
		was_stuck = is_stuck;
	}
}

/* Signals that came while the server was dying are for the next one. */
static int await(struct supervisor_state *l, pid_t pid, const sigset_t *taken)
{
	sigset_t missed;
	int status;

	sigemptyset(&missed);
	status = await_by(l, pid, taken, &missed);
	for (size_t i = 0; i < sizeof(handed_on) / sizeof(*handed_on); i++)
		if (sigismember(&missed, handed_on[i]))
			kill(getpid(), handed_on[i]);
	return status;
}

static void describe(int status, char *text, size_t size)
{
	if (status == STUCK)
		snprintf(text, size, "but for what waits for an answer");
	else if (WIFSIGNALED(status))
		snprintf(text, size, "of signal %d", WTERMSIG(status));
	else
		snprintf(text, size, "with exit code %d", WEXITSTATUS(status));
}

/* A stuck server has no exit status yet, but a crash has been noted. Call it before
 * supervisor_state_judge. */
static bool is_crash(struct supervisor_state *l, int status)
{
	if (status == STUCK)
		return supervisor_state_board(l)->crash != ACTIVITY_NOTHING_KNOWN;
	return WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL;
}

static unsigned count_quick(unsigned quick, int status, bool has_crashed, int64_t ms)
{
	if (!has_crashed && (status == STUCK || WIFSIGNALED(status)))
		return quick;
	return ms < QUICK_MS ? quick + 1 : 0;
}

/* Did the server find no threads or no memory, because other programs had taken all? Then treat it
 * as a failed fork. */
static bool could_not_start(int status)
{
	return status != STUCK && WIFEXITED(status) && WEXITSTATUS(status) == SUPERVISE_AGAIN;
}

static void tell_of_want(unsigned n)
{
	if (n > 1)
		return;
	log_warn("a server cannot be started for want of threads or memory: its mounts wait");
	log_release();
}

static void rest(unsigned quick)
{
	unsigned ms = quick < 2 ? 0 : 5u << MIN(quick, 8);

	usleep(MIN(ms, PAUSE_MAX_MS) * 1000);
}

/* No server is running, so the state does not change. */
static bool is_handed_over(struct supervisor_state *l, const struct run *r)
{
	int fd = supervisor_state_take_hand_over(l);

	return fd >= 0 && r->hand_over && r->hand_over(fd, r->arg) == 0;
}

static void refuse_hand_over(struct supervisor_state *l)
{
	int fd = supervisor_state_take_hand_over(l);

	if (fd >= 0)
		close(fd);
}

static int supervise_by(struct supervisor_state *l, struct run *r, const sigset_t *taken)
{
	unsigned quick = 0, wants = 0;
	char how[48];
	pid_t pid;

	for (;;) {
		int64_t since = clock_ms();
		bool has_crashed;
		int status;

		pid = start(r);
		if (pid < 0 && supervisor_state_deaths(l) == 0)
			return pid;
		if (pid < 0) {
			/* This is no fault of the server: the mounts wait until a process can be
			 * made. */
			usleep(PAUSE_MAX_MS * 1000);
			continue;
		}
		status = await(l, pid, taken);
		if (supervisor_state_is_left(l))
			return status != STUCK && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
		describe(status, how, sizeof(how));
		supervisor_state_note_death(l);
		/* A stuck server keeps locks for which another program would wait. */
		if (status == STUCK)
			refuse_hand_over(l);
		else if (is_handed_over(l, r))
			return 0;
		if (could_not_start(status)) {
			tell_of_want(++wants);
			rest(wants);
			continue;
		}
		wants = 0;
		has_crashed = is_crash(l, status);
		/* A crash that one mount causes ends that mount only. */
		if (!supervisor_state_judge(l, has_crashed))
			quick = count_quick(quick, status, has_crashed, clock_ms() - since);
		tell(how, quick);
		if (quick == QUICK_DEATHS)
			return 1;
		rest(quick);
	}
}

int supervisor_run(struct supervisor_state *l, void (*begin)(void), int (*serve)(void *arg),
		   int (*hand_over)(int fd, void *arg), void *arg)
{
	struct run run = { .begin = begin, .serve = serve, .hand_over = hand_over, .arg = arg };
	sigset_t taken, before;
	int r;

	sigemptyset(&taken);
	sigaddset(&taken, SIGCHLD);
	for (size_t i = 0; i < sizeof(handed_on) / sizeof(*handed_on); i++) {
		/* A signal that the starter ignored would never arrive. */
		signal(handed_on[i], SIG_DFL);
		sigaddset(&taken, handed_on[i]);
	}
	signal(SIGCHLD, SIG_DFL);
	pthread_sigmask(SIG_BLOCK, &taken, &before);
	supervisor_state_board(l)->supervisor = getpid();
	r = supervise_by(l, &run, &taken);
	/* After a success they stay blocked: a second SIGTERM must not change the exit status. */
	if (r < 0)
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r;
}
