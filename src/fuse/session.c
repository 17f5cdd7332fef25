// SPDX-License-Identifier: Apache-2.0
/* Threads block in read(2) on the mount's /dev/fuse descriptor; each answers the request it got. One is always
 * left to listen: whoever takes the last idle one's place starts another, up to SESSION_THREADS_MAX, so
 * that requests that wait for a disk do not stop those that need none. */
#include "veneer/session.h"

#include "ops.h"
#include "veneer/cleanup.h"
#include "veneer/log.h"

#include <fuse_lowlevel.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define SESSION_THREADS_MAX 32
#define SESSION_THREADS_IDLE 4		/* more idle ones than this go home */
#define SESSION_STACK (1u << 20)
#define SESSION_END_STEP_MS 10
#define SESSION_END_STEPS 500
#define SIGWAKE (SIGRTMIN + 1)		/* makes a worker's read(2) return */

struct session {
	struct mount *m;
	struct fuse_session *se;
	uint64_t mount_id;	/* constant once started */
	unsigned dev_major, dev_minor; /* of what is mounted; likewise */
	pthread_mutex_t lock;
	pthread_cond_t gone;
	/* guarded by lock */
	unsigned nthreads, nidle;
	pthread_t threads[SESSION_THREADS_MAX];	/* valid where is_running */
	bool is_running[SESSION_THREADS_MAX];
	bool is_over;
};

#define READAHEAD_KIB 512u

/* libfuse says why a mount failed on its own; kept for our one sentence. */
static _Thread_local char fuse_message[256];

static void keep_message(enum fuse_log_level level, const char *fmt, va_list ap)
{
	(void)level;
	vsnprintf(fuse_message, sizeof(fuse_message), fmt, ap);
	fuse_message[strcspn(fuse_message, "\n")] = '\0';
	log_debug("libfuse: %s", fuse_message);
}

/* One request. 0; -EINTR to try again; other -errno, or 1, at the end of the mount. */
static int serve_one(struct session *s, struct fuse_buf *buf, void (*received)(struct session *s))
{
	int n = fuse_session_receive_buf(s->se, buf);

	if (n == -ENOMEM)
		usleep(1000); /* the request waits; giving up would end the mount */
	if (n == -EINTR || n == -EAGAIN || n == -ENOMEM)
		return -EINTR;
	if (n <= 0)
		return n ? n : 1;
	if (received)
		received(s);
	op_note_extra(s->se, buf);
	fuse_session_process_buf(s->se, buf);
	return 0;
}

/* The number of the mount that is seen at path, without asking whoever serves it; 0 when it cannot be told. */
static uint64_t mount_id(const char *path)
{
	struct statx stx;

	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW, STATX_MNT_ID, &stx) < 0 ||
	    !(stx.stx_mask & STATX_MNT_ID))
		return 0;
	return stx.stx_mnt_id;
}

static void note_mount(struct session *s)
{
	struct statx stx;

	s->mount_id = 0;
	if (statx(AT_FDCWD, s->m->opts.mountpoint, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW, STATX_MNT_ID,
		  &stx) < 0 ||
	    !(stx.stx_mask & STATX_MNT_ID))
		return;
	s->mount_id = stx.stx_mnt_id;
	s->dev_major = stx.stx_dev_major;
	s->dev_minor = stx.stx_dev_minor;
}

/* 128 KiB ahead, the kernel's default, make eight requests of a MiB; FUSE can only ask for less. Takes root of the
 * machine; without it reading from end to end takes more requests, and nothing else is lost. */
static void widen_readahead(const struct session *s)
{
	_cleanup_(closep) int fd = -1;
	char path[64], now[16] = "";

	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", s->dev_major, s->dev_minor);
	fd = s->mount_id ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd >= 0 && read(fd, now, sizeof(now) - 1) > 0 && strtoul(now, NULL, 10) < READAHEAD_KIB &&
	    dprintf(fd, "%u", READAHEAD_KIB) < 0)
		log_debug("%s: %s", path, strerror(errno));
}

int session_start(struct mount *m, struct session **ret, char *err, size_t err_size)
{
	struct fuse_lowlevel_ops ops = { .init = op_init };
	_cleanup_(freep) char *options = NULL;
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	struct fuse_buf buf = { 0 };
	struct session *s = calloc(1, sizeof(*s));
	int r;

	/* Opens are not asked about, so without an upper the kernel must know that nothing can be written. */
	if (!s || asprintf(&options, "-o%s%s", m->opts.kernel_opts, m->tree.upper ? "" : ",ro") < 0 ||
	    fuse_opt_add_arg(&args, "veneer") < 0 || fuse_opt_add_arg(&args, options) < 0) {
		snprintf(err, err_size, "out of memory");
		fuse_opt_free_args(&args);
		free(s);
		return -ENOMEM;
	}
	s->m = m;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->gone, NULL);
	op_meta_install(&ops);
	op_name_install(&ops);
	op_data_install(&ops);
	op_dir_install(&ops);
	op_xattr_install(&ops);
	fuse_set_log_func(keep_message);
	*fuse_message = '\0';
	s->se = fuse_session_new(&args, &ops, sizeof(ops), m);
	fuse_opt_free_args(&args);
	if (!s->se || fuse_session_mount(s->se, m->opts.mountpoint) != 0) {
		snprintf(err, err_size, "cannot mount at %s: %s", m->opts.mountpoint,
			 *fuse_message ? fuse_message : strerror(errno));
		session_free(s);
		return -EIO;
	}
	note_mount(s);
	/* The kernel's first request; once it is answered, so is every other. */
	do {
		r = serve_one(s, &buf, NULL);
	} while (r == -EINTR);
	free(buf.mem);
	if (r != 0) {
		snprintf(err, err_size, "the kernel closed the mount at %s", m->opts.mountpoint);
		session_stop(s);
		session_free(s);
		return -EIO;
	}
	widen_readahead(s);
	*ret = s;
	return 0;
}

static void *worker(void *arg);

static void spawn_locked(struct session *s)
{
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, SESSION_STACK);
	if (pthread_create(&thread, &attr, worker, s) == 0) {
		s->nthreads++;
		s->nidle++;
	}
	pthread_attr_destroy(&attr);
}

static void begin_work(struct session *s)
{
	LOCK_SCOPE(&s->lock);
	s->nidle--;
	if (s->nidle == 0 && s->nthreads < SESSION_THREADS_MAX && !s->is_over)
		spawn_locked(s);
}

/* False: there are enough idle ones without this. */
static bool end_work(struct session *s)
{
	LOCK_SCOPE(&s->lock);
	if (s->nidle >= SESSION_THREADS_IDLE)
		return false;
	s->nidle++;
	return true;
}

/* Where session_end finds the thread. */
static unsigned enlist(struct session *s)
{
	unsigned k = 0;

	LOCK_SCOPE(&s->lock);
	while (s->is_running[k])
		k++;
	s->threads[k] = pthread_self();
	s->is_running[k] = true;
	return k;
}

static void *worker(void *arg)
{
	struct session *s = arg;
	struct fuse_buf buf = { 0 };
	unsigned slot = enlist(s);
	int r;

	for (;;) {
		r = serve_one(s, &buf, begin_work);
		if (r == -EINTR)
			continue;
		if (r != 0 || !end_work(s))
			break;
	}
	free(buf.mem);
	op_thread_release();
	pthread_mutex_lock(&s->lock);
	if (r != 0) {
		if (r < 0 && r != -ENODEV && !s->is_over)
			log_error("reading requests of %s: %s", s->m->opts.mountpoint, strerror(-r));
		s->nidle--;
		s->is_over = true;
	}
	s->nthreads--;
	s->is_running[slot] = false;
	pthread_cond_broadcast(&s->gone);
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

void session_run(struct session *s)
{
	pthread_mutex_lock(&s->lock);
	for (unsigned i = 0; i < SESSION_THREADS_IDLE; i++)
		spawn_locked(s);
	if (!s->nthreads)
		log_error("cannot start a thread for %s", s->m->opts.mountpoint);
	while (s->nthreads)
		pthread_cond_wait(&s->gone, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

int session_stop(struct session *s)
{
	/* Our mount may have been detached, and another be in its place. */
	if (mount_id(s->m->opts.mountpoint) != s->mount_id)
		return -ENOENT;
	/* Lazily: what is open goes on being answered, as after any umount -l. */
	return umount2(s->m->opts.mountpoint, MNT_DETACH) < 0 ? -errno : 0;
}

static void wake(int sig)
{
	(void)sig;
}

/* libfuse would unmount whatever is at the mount point by now, unless its descriptor says that the mount is gone:
 * a pipe that nobody reads says so as well. This lets go of the mount, too. */
static void let_go(struct session *s)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return;
	close(ends[0]);
	dup3(ends[1], fuse_session_fd(s->se), O_CLOEXEC);
	close(ends[1]);
}

int session_end(struct session *s)
{
	const struct sigaction action = { .sa_handler = wake }; /* no SA_RESTART */

	sigaction(SIGWAKE, &action, NULL);
	pthread_mutex_lock(&s->lock);
	s->is_over = true;
	fuse_session_exit(s->se);
	/* One that has yet to block misses a signal: hence again and again. */
	for (unsigned step = 0; s->nthreads && step < SESSION_END_STEPS; step++) {
		for (unsigned k = 0; k < SESSION_THREADS_MAX; k++)
			if (s->is_running[k])
				pthread_kill(s->threads[k], SIGWAKE);
		pthread_mutex_unlock(&s->lock);
		usleep(SESSION_END_STEP_MS * 1000);
		pthread_mutex_lock(&s->lock);
	}
	bool is_ended = !s->nthreads;
	pthread_mutex_unlock(&s->lock);
	if (!is_ended)
		return -ETIMEDOUT;
	let_go(s);
	return 0;
}

bool session_is_detached(struct session *s)
{
	_cleanup_(freep) char *line = NULL;
	unsigned dev_major, dev_minor;
	bool is_detached = s->mount_id != 0;
	size_t size = 0;
	FILE *f = fopen("/proc/self/mountinfo", "re");

	if (!f)
		return false;
	/* Another mount of it, a bind mount for one, counts too. */
	while (getline(&line, &size, f) > 0)
		if (sscanf(line, "%*u %*u %u:%u", &dev_major, &dev_minor) != 2 ||
		    (dev_major == s->dev_major && dev_minor == s->dev_minor))
			is_detached = false;
	if (ferror(f))
		is_detached = false;
	fclose(f);
	return is_detached;
}

void session_free(struct session *s)
{
	if (!s)
		return;
	/* Where the mount is gone already, which is the rule, this only lets go of the descriptor. */
	if (s->se) {
		fuse_session_unmount(s->se);
		fuse_session_destroy(s->se);
	}
	pthread_cond_destroy(&s->gone);
	pthread_mutex_destroy(&s->lock);
	free(s);
}
