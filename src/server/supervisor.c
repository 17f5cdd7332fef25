// SPDX-License-Identifier: Apache-2.0
/* clone(2) and not fork(3), for CLONE_FILES. The C library knows nothing of that process, and
 * believes its first thread to be ours (its id is wrong there); so that does nothing but start
 * another, which it knows, and wait for it. */
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

/* A server that dies so often so soon is brought down by what it is asked to do; but not by
 * SIGKILL, which comes from outside. */
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

/* Log in a child: a descriptor that syslog opened here would be closed, or taken by something else,
 * under the next server. */
static void tell(const char *how, unsigned quick)
{
	if (quick < QUICK_DEATHS)
		log_warn("the server died %s: starting it again", how);
	else
		log_error("the server died %s, %u times in a row: giving up, its mounts are gone",
			  how, quick);
	log_release();
}

/* The new process, up to its end. */
static void be_server(struct run *r)
{
	pthread_t thread;

	/* A signal of the terminal is meant for us, but comes by the supervisor. */
	setsid();
	/* Do not wait for processes that the server starts. */
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

/* True: it is dead, and this is its wait status. Others are those that were stuck. */
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

/* The next signal, or 0 when the time is over. */
static int next_signal(const sigset_t *taken, int ms)
{
	const struct timespec step = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
	int sig = sigtimedwait(taken, NULL, &step);

	return sig < 0 ? 0 : sig;
}

/* The wait status of the server, and what comes meanwhile is handed on. A server whose last threads
 * wait for what only the next one can answer does not end before that has come, and one whose last
 * threads wait for a layer ends when that answers, if ever: STUCK. Twice in a row: one that is
 * dying may look so. */
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

/* A signal that came while the server was dying is for the next one. */
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

/* The exit status of a stuck server is not known yet, but a crash has been noted. Before
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

/* Did the server find no threads or no memory, since other programs had taken all? Treat it as if
 * no process could be had. */
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

/* Nobody serves now, so nothing changes. */
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
			/* Nothing is wrong with the server: the mounts wait until a process can be
			 * had. */
			usleep(PAUSE_MAX_MS * 1000);
			continue;
		}
		status = await(l, pid, taken);
		if (supervisor_state_is_left(l))
			return status != STUCK && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
		describe(status, how, sizeof(how));
		supervisor_state_note_death(l);
		/* A stuck server keeps locks that another program would wait for. */
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
		/* A crash that one mount causes ends that mount. */
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
		/* A signal that our starter ignored would never come. */
		signal(handed_on[i], SIG_DFL);
		sigaddset(&taken, handed_on[i]);
	}
	signal(SIGCHLD, SIG_DFL);
	pthread_sigmask(SIG_BLOCK, &taken, &before);
	supervisor_state_board(l)->supervisor = getpid();
	r = supervise_by(l, &run, &taken);
	/* A second SIGTERM does not change the exit status of a server that has left. */
	if (r < 0)
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r;
}
