// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/cpu_latency.h"

#include "missing_headers.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/latency_policy.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/base/minmax.h"
#include "veneer/base/stats.h"
#include "veneer/sys/worker.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#define DEVICE	   "/dev/cpu_dma_latency"
#define SYSFS	   "/sys/devices/system/cpu"
#define NO_REQUEST 2000000000 /* PM_QOS_CPU_LATENCY_DEFAULT_VALUE: as if the device were closed */
#define STATES_MAX 10 /* CPUIDLE_STATE_MAX */

enum state { QUIET, HELD, NOT_PERMITTED, FAILED, SWITCHED_OFF, NO_CPUIDLE, NO_USE };

static const char *const words[] = {
	[QUIET] = "quiet",	     [HELD] = "held",
	[SWITCHED_OFF] = "off",	     [NOT_PERMITTED] = "not permitted",
	[NO_CPUIDLE] = "no cpuidle", [NO_USE] = "no use",
	[FAILED] = "failed",
};

static struct latency_policy policy = LATENCY_POLICY_INIT;
static _Atomic enum state state; /* of the thread: one of the first four */
static _Atomic enum state of_auto; /* why CPU_LATENCY_AUTO does nothing; QUIET: it is active */
static _Atomic int fit_us = CPU_LATENCY_AUTO; /* AUTO: not determined yet */
static _Atomic uint64_t raises, held_ns;
static mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static GUARDED_BY(lock) struct worker *holder;

/* ---- the value for this machine ---- */

/* The first word of a file. 0 or -errno. */
static int read_word(int fd, const char *name, char *word, size_t size)
{
	_cleanup_(closep) int file = openat(fd, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = file < 0 ? -1 : read(file, word, size - 1);

	if (n < 0)
		return -errno;
	word[n] = '\0';
	word[strcspn(word, " \n")] = '\0';
	return 0;
}

static int read_number(int fd, const char *name, long *ret)
{
	char word[32], *end;
	int r = read_word(fd, name, word, sizeof(word));

	if (r < 0)
		return r;
	*ret = strtol(word, &end, 10);
	return end == word || *end || *ret < 0 ? -EINVAL : 0;
}

static bool says_haltpoll(int fd, const char *name)
{
	char word[32];

	return read_word(fd, name, word, sizeof(word)) == 0 && !strcmp(word, "haltpoll");
}

/* The exit latency of an idle state of the first processor; 0 if it is disabled. -ENOENT: there is
 * no such state. */
static int latency_of(int fd, unsigned k, long *ret_us)
{
	long is_disabled = 0;
	char name[64];
	int r;

	snprintf(name, sizeof(name), "cpu0/cpuidle/state%u/latency", k);
	r = read_number(fd, name, ret_us);
	snprintf(name, sizeof(name), "cpu0/cpuidle/state%u/disable", k);
	if (r == 0 && read_number(fd, name, &is_disabled) == 0 && is_disabled)
		*ret_us = 0;
	return r;
}

int cpu_latency_fit(int fd)
{
	long shallow = 0, least = 0, deep = 0, us;

	/* haltpoll reacts to the value 0 only. */
	if (says_haltpoll(fd, "cpuidle/current_driver") ||
	    says_haltpoll(fd, "cpuidle/current_governor_ro"))
		return 0;
	if (latency_of(fd, 0, &us) < 0)
		return -ENOENT;
	for (unsigned k = 0; k < STATES_MAX && latency_of(fd, k, &us) == 0; k++) {
		deep = MAX(deep, us);
		if (us <= CPU_LATENCY_SHALLOW_US)
			shallow = MAX(shallow, us);
		if (us && (!least || us < least))
			least = us;
	}
	/* No state is shallow: allow the lightest sleep. */
	if (!shallow)
		shallow = least;
	return deep <= CPU_LATENCY_SHALLOW_US || shallow == deep ? -ENOTSUP : (int)shallow;
}

static void find_fit(void)
{
	_cleanup_(closep) int fd = open(SYSFS, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int us = fd < 0 ? -ENOENT : cpu_latency_fit(fd);

	if (us < 0)
		of_auto = us == -ENOENT ? NO_CPUIDLE : NO_USE;
	fit_us = us < 0 ? CPU_LATENCY_OFF : us;
}

/* ---- the thread that holds the device ---- */

static bool ask(int fd, int32_t us)
{
	return syscall(SYS_write, fd, &us, sizeof(us)) == sizeof(us);
}

static void count(int64_t ns)
{
	raises++;
	held_ns += (uint64_t)ns;
	stats_add(STATS_CPU_LATENCY_RAISES, 1);
	stats_add(STATS_CPU_LATENCY_HELD_US, (uint64_t)ns / 1000);
}

/* Hold the setting while enough requests come. False: the process ends. */
static bool hold(struct worker *me, int fd)
{
	const int64_t since_ns = clock_ns();
	int asked = LATENCY_POLICY_NOTHING;
	bool goes_on = true, is_kept = true;
	uint32_t seen = 0;

	while (goes_on && is_kept) {
		const int us = policy.held_us;

		/* The value may have dropped, or become nothing, while this thread was about to
		 * give up. */
		if (asked != us) {
			if (us == LATENCY_POLICY_NOTHING || !ask(fd, us))
				break;
			state = HELD;
			asked = us;
			seen = 0;
		}
		goes_on = worker_wait(me, clock_ms() + LATENCY_POLICY_LOOK_MS);
		is_kept = asked != policy.held_us || latency_policy_is_kept(&policy, &seen);
	}
	latency_policy_end(&policy, clock_ms());
	ask(fd, NO_REQUEST);
	if (asked != LATENCY_POLICY_NOTHING)
		count(clock_ns() - since_ns);
	state = QUIET;
	return goes_on;
}

/* This thread has its own descriptor table, so it must not log. The raw system calls bypass
 * sanitizers, which assume that threads share descriptors; the descriptor is closed with the
 * thread. */
static void run(struct worker *me, void *arg)
{
	int fd = -1;

	(void)arg;
	if (syscall(SYS_close_range, 0, ~0u, CLOSE_RANGE_UNSHARE) == 0)
		fd = (int)syscall(SYS_openat, AT_FDCWD, DEVICE, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || !ask(fd, NO_REQUEST)) {
		state = errno == EACCES || errno == EPERM || errno == ENOENT ? NOT_PERMITTED
									     : FAILED;
		return;
	}
	while (hold(me, fd) && worker_wait(me, WORKER_NO_LIMIT))
		;
}

/* ---- interface ---- */

bool cpu_latency_parse(const char *text, int *ret_us)
{
	char *end;
	long us;

	*ret_us = !strcmp(text, "auto") ? CPU_LATENCY_AUTO : CPU_LATENCY_OFF;
	if (!strcmp(text, "auto") || !strcmp(text, "off"))
		return true;
	errno = 0;
	us = strtol(text, &end, 10);
	*ret_us = (int)us;
	return *text >= '0' && *text <= '9' && !*end && !errno && us <= CPU_LATENCY_MAX_US;
}

void cpu_latency_use(int us)
{
	fit_us = us;
	of_auto = us == CPU_LATENCY_OFF ? SWITCHED_OFF : QUIET;
}

/* Called at a run of requests. */
static void raise_to(int us)
{
	latency_policy_hold(&policy, us);
	LOCK_SCOPE(&lock);
	if (holder)
		worker_wake(holder);
	else if (worker_start(run, NULL, &holder) < 0)
		latency_policy_end(&policy, clock_ms());
}

void cpu_latency_request(int us, int64_t now_ms)
{
	const enum state now = state;

	if (us == CPU_LATENCY_AUTO)
		us = fit_us;
	if (us == CPU_LATENCY_OFF || now == NOT_PERMITTED || now == FAILED ||
	    !latency_policy_request(&policy, now_ms, us))
		return;
	if (us == CPU_LATENCY_AUTO) {
		find_fit();
		us = fit_us;
	}
	if (us >= 0)
		raise_to(us);
}

const char *cpu_latency_state(void)
{
	return words[state != QUIET ? state : of_auto];
}

void cpu_latency_stop(void)
{
	struct worker *w;

	mutex_lock(&lock);
	w = steal_ptr(&holder);
	mutex_unlock(&lock);
	worker_stop(w);
	if (raises)
		log_debug("idle processors were kept awake %" PRIu64 " times, %" PRIu64
			  " ms in all (cpu-latency)",
			  raises, held_ns / 1000000);
}
