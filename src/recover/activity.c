// SPDX-License-Identifier: Apache-2.0
#include "veneer/recover/activity.h"

#include "veneer/base/buf.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int crashes[] = { SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTRAP, SIGSYS };

#define STACK_BYTES (32u << 10)
#define PAUSE_MS    20
#define N_CRASHES   (sizeof(crashes) / sizeof(*crashes))

static struct sigaction before[N_CRASHES];
static struct crash_board *board;
static _Thread_local struct activity *current;

/* Take the default action, as without us. It meets the same fault again on return, so that a core
 * dump shows the place. */
static void pass_on(int sig, siginfo_t *info, void *context)
{
	const struct sigaction *old = NULL;

	for (size_t i = 0; i < N_CRASHES; i++)
		if (crashes[i] == sig)
			old = &before[i];
	if (old && old->sa_flags & SA_SIGINFO) {
		old->sa_sigaction(sig, info, context);
		return;
	}
	signal(sig, SIG_DFL);
	if (info->si_code <= 0)
		raise(sig);
}

static void on_crash(int sig, siginfo_t *info, void *context)
{
	/* A fault, or abort(3). */
	const bool is_own = info->si_code > 0 || info->si_pid == getpid();
	const int saved = errno;

	if (board && board->crash == ACTIVITY_NOTHING_KNOWN) {
		if (is_own && current)
			current->is_suspect = true;
		board->crashed = (int32_t)syscall(SYS_gettid);
		board->crash = is_own && current ? ACTIVITY_SUSPECT : ACTIVITY_NOBODY;
	}
	pass_on(sig, info, context);
	errno = saved;
}

void activity_watch(void)
{
	struct sigaction sa = { .sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK };

	sigemptyset(&sa.sa_mask);
	for (size_t i = 0; i < N_CRASHES; i++)
		sigaction(crashes[i], &sa, &before[i]);
}

void activity_note_in(struct crash_board *b)
{
	board = b;
}

/* A stack that is full cannot take a signal. An alternate stack that is there already is the
 * address sanitizer's, which unmaps the one it finds in the end. */
static void use_other_stack(void)
{
	static _Thread_local char stack[STACK_BYTES];
	static _Thread_local bool is_done;
	const stack_t other = { .ss_sp = stack, .ss_size = sizeof(stack) };
	stack_t now;

	if (!is_done && sigaltstack(NULL, &now) == 0 && now.ss_flags & SS_DISABLE)
		sigaltstack(&other, NULL);
	is_done = true;
}

struct activity *activity_begin(struct activity *d)
{
	struct activity *before_it = current;

	if (d) {
		use_other_stack();
		d->nthreads++;
	}
	current = d;
	return before_it;
}

void activity_end(struct activity *before_it)
{
	if (current)
		current->nthreads--;
	current = before_it;
}

/* ---- waiting for our own answers ---- */

int activity_wait_begin(void)
{
	const int32_t self = (int32_t)syscall(SYS_gettid);

	for (int k = 0; board && k < ACTIVITY_WAITERS; k++) {
		int32_t nobody = 0;

		if (!atomic_compare_exchange_strong(&board->waiting[k], &nobody, self))
			continue;
		board->nwaits++;
		/* The supervisor looks after us from now on, and not before, since that costs. */
		if (!board->is_watched && board->supervisor > 1 && getppid() == board->supervisor)
			kill(board->supervisor, SIGCHLD);
		return k;
	}
	return -1;
}

void activity_wait_end(int waiter)
{
	if (waiter >= 0)
		board->waiting[waiter] = 0;
}

static bool has_waiters(const struct crash_board *b)
{
	bool is_any = false;

	for (int k = 0; k < ACTIVITY_WAITERS; k++)
		is_any = is_any || b->waiting[k];
	return is_any;
}

bool activity_keep_watch(struct crash_board *b, uint32_t *nwaits)
{
	const uint32_t before = *nwaits;

	*nwaits = b->nwaits;
	b->is_watched = *nwaits != before || has_waiters(b);
	/* A thread that began to wait before it could see that has sent nothing. */
	if (!b->is_watched)
		b->is_watched = b->nwaits != *nwaits || has_waiters(b);
	return b->is_watched;
}

static bool is_waiting(const struct crash_board *b, int32_t thread)
{
	for (int k = 0; k < ACTIVITY_WAITERS; k++)
		if (b->waiting[k] == thread)
			return true;
	return false;
}

static int open_of(pid_t pid, int thread, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", (int)pid, thread, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* As text; how much, or -1. */
static ssize_t read_of(pid_t pid, int thread, const char *name, char *text, size_t size)
{
	_cleanup_(closep) int fd = open_of(pid, thread, name);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	text[n < 0 ? 0 : n] = '\0';
	return n;
}

/* Read the state behind the name, which may have anything in it; 0: there is no such thread. */
static char state_and_flags(pid_t pid, int thread, unsigned *ret_flags)
{
	char text[256], state = 0, *end;

	*ret_flags = 0;
	read_of(pid, thread, "stat", text, sizeof(text));
	end = strrchr(text, ')');
	if (end)
		sscanf(end + 1, " %c %*d %*d %*d %*d %*d %u", &state, ret_flags);
	return state;
}

static char state_of(pid_t pid, int thread)
{
	unsigned flags;

	return state_and_flags(pid, thread, &flags);
}

static bool is_dead(char state)
{
	return state == 0 || state == 'Z' || state == 'X';
}

/* Has the process crashed? Its threads are waited for in the kernel, uninterruptibly, to write a
 * core that may well go nowhere: not one of them runs on. */
static bool is_dumping(pid_t pid)
{
	char text[4096];

	return read_of(pid, pid, "status", text, sizeof(text)) > 0 &&
	       strstr(text, "\nCoreDumping:\t1");
}

/* PF_POSTCOREDUMP of the kernel, since Linux 5.17: it got out of its call, and waits for the end of
 * the dump. */
#define STOPPED_FOR_DUMP 8u

static bool is_stopped_for_dump(pid_t pid, int thread)
{
	unsigned flags;

	return state_and_flags(pid, thread, &flags) && flags & STOPPED_FOR_DUMP;
}

/* Calls of a server that change nothing, whenever they end; some machines lack some. */
static const long harmless[] = {
	SYS_read,	SYS_pread64,	SYS_readv,	SYS_preadv,    SYS_lseek,
	SYS_close,	SYS_getdents64, SYS_readlinkat, SYS_faccessat, SYS_statx,
	SYS_getxattr,	SYS_lgetxattr,	SYS_fgetxattr,	SYS_listxattr, SYS_llistxattr,
	SYS_flistxattr, SYS_munmap,	SYS_madvise,	SYS_readahead, SYS_inotify_add_watch,
#ifdef SYS_faccessat2 /* which faccessat(3) makes */
	SYS_faccessat2,
#endif
#ifdef SYS_preadv2
	SYS_preadv2,
#endif
#ifdef SYS_fstat
	SYS_fstat,
#endif
#ifdef SYS_newfstatat
	SYS_newfstatat,
#endif
#ifdef SYS_fstatfs
	SYS_fstatfs,
#endif
#ifdef SYS_fadvise64
	SYS_fadvise64,
#endif
#ifdef SYS_mmap
	SYS_mmap,
#endif
};

static bool opens_only(int flags)
{
	return !(flags & (O_CREAT | O_TRUNC)) && (flags & O_TMPFILE) != O_TMPFILE;
}

/* The argument of openat2 is in memory that lives as long as the thread does. */
static bool reads_how(pid_t pid, int thread, unsigned long long at)
{
	_cleanup_(closep) int fd = open_of(pid, thread, "mem");
	uint64_t flags;

	return fd >= 0 && pread(fd, &flags, sizeof(flags), (off_t)at) == sizeof(flags) &&
	       opens_only((int)flags);
}

/* Rings only read (ring.h). */
static bool is_worker_of_ring(pid_t pid, int thread)
{
	char name[32];

	return read_of(pid, thread, "comm", name, sizeof(name)) > 0 &&
	       !strncmp(name, "iou-wrk-", 8);
}

/* The system call in which a thread waits. */
struct call {
	char state;
	long number;
	unsigned long long arg[3];
};

/* False: it runs, or is dead, or nobody says. */
static bool call_of(pid_t pid, int thread, struct call *ret)
{
	char text[256];

	*ret = (struct call){ .state = state_of(pid, thread) };
	return (ret->state == 'D' || ret->state == 'S') &&
	       read_of(pid, thread, "syscall", text, sizeof(text)) > 0 &&
	       sscanf(text, "%ld %llx %llx %llx", &ret->number, &ret->arg[0], &ret->arg[1],
		      &ret->arg[2]) >= 1;
}

static bool is_among(long call, const long *calls, size_t n)
{
	for (size_t k = 0; k < n; k++)
		if (call == calls[k])
			return true;
	return false;
}

/* Is the thread in the kernel, in a call that changes nothing and that only its own event ends? */
static bool is_harmless(pid_t pid, int thread)
{
	struct call c;
	const bool is_known = call_of(pid, thread, &c);

	if (c.state == 'D' && is_worker_of_ring(pid, thread))
		return true;
	if (!is_known)
		return false;
#ifdef SYS_io_uring_enter
	/* A dying thread waits for the workers of its ring, and sleeps over it as if a signal could
	 * wake it. */
	if (c.number == SYS_io_uring_enter)
		return true;
#endif
	if (c.state != 'D')
		return false;
	/* A page of a file, and the thread dies before it stores anything there. */
	if (c.number == -1)
		return true;
	if (c.number == SYS_openat)
		return opens_only((int)c.arg[2]);
#ifdef SYS_openat2
	if (c.number == SYS_openat2)
		return reads_how(pid, thread, c.arg[2]);
#endif
	return is_among(c.number, harmless, sizeof(harmless) / sizeof(*harmless));
}

bool activity_is_dead(pid_t pid)
{
	return is_dead(state_of(pid, pid)) || is_dumping(pid);
}

/* Only its end is missing, and that makes no difference. */
static bool is_as_good_as_dead(const struct crash_board *b, pid_t pid, int thread, bool is_dump)
{
	if (is_dump && (is_stopped_for_dump(pid, thread) ||
			(thread == b->crashed && state_of(pid, thread) == 'D')))
		return true;
	return is_waiting(b, thread) || is_harmless(pid, thread);
}

bool activity_is_stuck(const struct crash_board *b, pid_t pid)
{
	const bool is_dump = is_dumping(pid);
	char path[32];
	struct dirent *de;
	bool is_any = false, is_other = false;
	DIR *dir;

	if (!is_dump && state_of(pid, pid) != 'Z')
		return false;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && (de = readdir(dir))) {
		int thread = atoi(de->d_name);

		if (thread <= 0 || is_dead(state_of(pid, thread)))
			continue;
		is_any = true;
		is_other = is_other || !is_as_good_as_dead(b, pid, thread, is_dump);
	}
	if (dir)
		closedir(dir);
	return is_any && !is_other;
}

/* ---- changes that may not come to an end ---- */

/* Calls of a server that change a layer and last until it answers; some machines lack some. Not
 * write and its like, which also serve the log and the answers to the kernel. */
static const long changing[] = {
	SYS_pwrite64,	     SYS_pwritev,   SYS_ftruncate,   SYS_fallocate,    SYS_fsync,
	SYS_fdatasync,	     SYS_syncfs,    SYS_ioctl,	     SYS_mkdirat,      SYS_mknodat,
	SYS_symlinkat,	     SYS_linkat,    SYS_unlinkat,    SYS_renameat2,    SYS_utimensat,
	SYS_fchmod,	     SYS_fchmodat,  SYS_fchown,	     SYS_fchownat,     SYS_setxattr,
	SYS_lsetxattr,	     SYS_fsetxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr,
#ifdef SYS_pwritev2
	SYS_pwritev2,
#endif
#ifdef SYS_copy_file_range
	SYS_copy_file_range,
#endif
#ifdef SYS_sync_file_range
	SYS_sync_file_range,
#endif
#ifdef SYS_fchmodat2
	SYS_fchmodat2,
#endif
#ifdef SYS_renameat
	SYS_renameat,
#endif
#ifdef SYS_mkdir /* and its like, which the C library makes where there are such */
	SYS_mkdir,	     SYS_rmdir,	    SYS_unlink,	     SYS_rename,       SYS_chmod,
#endif
};

/* Whether it sleeps as if a signal could wake it says nothing: on FUSE that is so until there is
 * one. */
static bool is_in_change(pid_t pid, int thread)
{
	struct call c;

	if (!call_of(pid, thread, &c))
		return false;
	if (c.number == SYS_openat)
		return !opens_only((int)c.arg[2]);
#ifdef SYS_openat2
	if (c.number == SYS_openat2)
		return !reads_how(pid, thread, c.arg[2]);
#endif
	/* An answer that is sent from the pages of a file; a thread that waits for a request sleeps
	 * otherwise. */
	if (c.number == SYS_splice)
		return c.state == 'D';
	return is_among(c.number, changing, sizeof(changing) / sizeof(*changing));
}

/* How often it has gone to sleep. */
static unsigned long sleeps_of(pid_t pid, int thread)
{
	int fd = open_of(pid, thread, "status");
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	unsigned long n = 0;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "voluntary_ctxt_switches: %lu", &n) == 1)
			break;
	if (f)
		fclose(f);
	else if (fd >= 0)
		close(fd);
	return n;
}

struct change {
	int thread; /* 0: it has got on */
	unsigned long sleeps;
};

static int note_changes(struct buf *seen)
{
	const pid_t self = getpid();
	DIR *dir = opendir("/proc/self/task");
	struct dirent *de;
	int r = 0;

	while (dir && r == 0 && (de = readdir(dir))) {
		struct change c = { .thread = atoi(de->d_name) };

		if (c.thread <= 0 || !is_in_change(self, c.thread))
			continue;
		c.sleeps = sleeps_of(self, c.thread);
		r = buf_put(seen, &c, sizeof(c));
	}
	if (dir)
		closedir(dir);
	return r;
}

static bool is_any_left(struct buf *seen)
{
	const pid_t self = getpid();
	struct change *c = (void *)seen->data;
	bool is_any = false;

	for (size_t k = 0; k < seen->len / sizeof(*c); k++) {
		if (c[k].thread && (!is_in_change(self, c[k].thread) ||
				    sleeps_of(self, c[k].thread) != c[k].sleeps))
			c[k].thread = 0;
		is_any = is_any || c[k].thread;
	}
	return is_any;
}

int activity_await_changes(int limit_ms)
{
	_cleanup_(buf_release) struct buf seen = { 0 };
	const int64_t end = clock_ms() + limit_ms;
	int r = note_changes(&seen);

	while (r == 0 && is_any_left(&seen)) {
		if (clock_ms() >= end)
			return -EBUSY;
		usleep(PAUSE_MS * 1000);
	}
	return r;
}
