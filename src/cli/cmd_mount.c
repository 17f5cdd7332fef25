// SPDX-License-Identifier: Apache-2.0
/* The mount program: what Podman, Docker and mount(8) run. The process that was started returns when the mount
 * answers; the one that serves it has let go of everything it was started with. */
#include "veneer/commands.h"

#include "veneer/attach.h"
#include "veneer/cleanup.h"
#include "veneer/fdcache.h"
#include "veneer/file.h"
#include "veneer/log.h"
#include "veneer/mapfile.h"
#include "veneer/pool.h"
#include "veneer/stats.h"
#include "veneer/takeover.h"

#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define ERR_SIZE (PATH_MAX * 2)
#define SIGDONE SIGRTMIN	/* the session is over */
#define SIGWANTED (SIGRTMIN + 1) /* another mount wants our upper; + 2 is pool.c's */
#define THREADS_MAX 64u	/* half of them for one mount */
#define END_WAIT_MS 5000u

static int print_version(void)
{
	printf("fuse-overlayfs: version %s (veneer)\n", VENEER_VERSION);
	printf("FUSE library version %s\n", fuse_pkgversion());
	return 0;
}

static int print_help(void)
{
	printf("usage: veneer [-f] [-d] -o lowerdir=A[:B...][,upperdir=U,workdir=W][,OPTION...] MOUNTPOINT\n"
	       "       veneer flatten|check|inspect --help\n"
	       "\n"
	       "  -f                      stay in the foreground\n"
	       "  -d, --debug             foreground, and say what happens\n"
	       "  -h, --help              this text\n"
	       "  -V, --version           version, in fuse-overlayfs's form\n"
	       "\n"
	       "  lowerdir=A:B            read-only layers, the top one first\n"
	       "  upperdir=U              where changes go; without it the mount is read-only\n"
	       "  workdir=W               an empty directory on the file system of U\n"
	       "  uidmapping=D:P:N[:...]  N ids from D on disk are presented from P on; gidmapping too\n"
	       "  squash_to_root          present everything as owned by 0:0\n"
	       "  squash_to_uid=N         present this owner; squash_to_gid=N\n"
	       "  cow=map|copy            copy up blocks (default), or whole files\n"
	       "  volatile, fsync=0       never sync\n"
	       "  noxattrs=1              no extended attributes\n"
	       "  noacl                   no POSIX ACLs\n"
	       "  static_nlink            link count 1 for directories\n"
	       "  timeout=SECONDS         how long the kernel may remember names (default: for ever)\n"
	       "\n"
	       "Other options of fuse-overlayfs and overlayfs are accepted; see veneer(1).\n");
	return 0;
}

/* Descriptors 0 to 2 must exist before anything else is opened. */
static void hold_standard_fds(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR);
	} while (fd >= 0 && fd <= 2);
	closep(&fd);
}

/* The one mount of this process. */
struct serving {
	struct mount mount;
	struct attach *attach;
	struct pool *pool;
	uint64_t number;	/* in the pool */
	pthread_t main_thread;
};

static void session_ended(struct session *s, void *arg)
{
	struct serving *v = arg;

	session_free(s);
	pthread_kill(v->main_thread, SIGDONE);
}

/* fuse-overlayfs prints such lines on standard error, as they are. */
static void print_counter(void *arg, const char *name, uint64_t value)
{
	const bool *is_background = arg;

	if (*is_background)
		log_info("# %s: %" PRIu64, name, value);
	else
		fprintf(stderr, "# %s: %" PRIu64 "\n", name, value);
}

static void print_counters(struct mount *m, bool is_background)
{
	size_t n;

	pthread_mutex_lock(&m->tree.lock);
	n = nodetab_count(m->tree.nodes);
	pthread_mutex_unlock(&m->tree.lock);
	print_counter(&is_background, "INODES", n);
	print_counter(&is_background, "NODES", n);
	print_counter(&is_background, "DESCRIPTORS", fdcache_count());
	if (m->tree.map) {
		print_counter(&is_background, "MAP FILES", mapfile_count(m->tree.map));
		print_counter(&is_background, "MAP LOG BYTES", mapfile_log_bytes(m->tree.map));
	}
	stats_each(print_counter, &is_background);
	fflush(stderr);
}

/* Of a mount that is detached but in use: its users lose it. */
static void end_serving(struct serving *v, const char *why)
{
	log_warn("%s is detached but in use%s; ending", v->mount.opts.mountpoint, why);
	if (pool_end(v->pool, v->number, END_WAIT_MS) < 0) {
		log_error("%s: a request does not end", v->mount.opts.mountpoint);
		_exit(0); /* all that was acknowledged is in the upper */
	}
}

/* Told to go. The first time the mount is detached, and served on while somebody uses it; told again, it ends. */
static void stop_serving(struct serving *v)
{
	if (attach_detach(v->attach) == -ENOENT)
		end_serving(v, "");
}

/* Whoever mounts the upper anew knows that its last user is of the past. A mount that can be seen is not given up. */
static void make_room(struct serving *v, int fd)
{
	const struct layer *upper = v->mount.tree.upper;

	if (takeover_is_asked(fd, upper->dev, upper->ino) && attach_is_detached(v->attach))
		end_serving(v, ", and another mount wants its upper");
}

/* Signals are blocked everywhere and taken here, one at a time. */
static void serve_until_done(struct serving *v, const sigset_t *set, bool is_background)
{
	_cleanup_(closep) int takeover_fd = -1;
	int sig;

	/* A file system without fifos does without. */
	if (v->mount.tree.upper)
		takeover_listen(v->mount.tree.workfd, SIGWANTED, &takeover_fd);
	while (sigwait(set, &sig) == 0 && sig != SIGDONE) {
		if (sig == SIGUSR1)
			print_counters(&v->mount, is_background);
		else if (sig == SIGWANTED)
			make_room(v, takeover_fd);
		else
			stop_serving(v);
	}
}

/* The mount answers: let the caller go, and let go of the caller. */
static void detach(int ready_fd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	char ok = 0;

	if (null >= 0) {
		for (int fd = 0; fd <= 2; fd++)
			dup2(null, fd);
		close(null);
	}
	log_to_syslog();
	while (write(ready_fd, &ok, 1) < 0 && errno == EINTR)
		;
	close(ready_fd);
}

static void raise_file_size_limit(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_FSIZE, &rl) == 0) {
		rl.rlim_cur = rl.rlim_max;
		setrlimit(RLIMIT_FSIZE, &rl);
	}
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
	pthread_sigmask(SIG_BLOCK, set, NULL);
	signal(SIGPIPE, SIG_IGN);
	/* The limit of whoever started us is not that of the containers: EFBIG, if at all. */
	signal(SIGXFSZ, SIG_IGN);
	raise_file_size_limit();
	umask(0);
	fdcache_init();
	file_guard_init();
}

/* Mounted and answering, or -errno and a sentence. */
static int start_serving(struct serving *v, char *err, size_t err_size)
{
	struct session *s = NULL;
	int r = attach_new(&v->mount.opts, !v->mount.tree.upper, &v->attach, err, err_size);

	if (r < 0)
		return r;
	r = session_start(&v->mount, attach_fd(v->attach), &s, err, err_size);
	if (r == 0) {
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

static int serve(struct mount_opts *opts, int ready_fd)
{
	struct serving v = { .main_thread = pthread_self() };
	char err[ERR_SIZE] = "";
	sigset_t set;
	int r;

	prepare_process(&set);
	r = mount_open(&v.mount, opts, err, sizeof(err));
	if (r == 0)
		r = start_serving(&v, err, sizeof(err));
	if (r < 0) {
		log_error("%s", err);
	} else {
		if (chdir("/") < 0)
			log_warn("cannot change to /: %s", strerror(errno));
		fdcache_bound();
		if (ready_fd >= 0)
			detach(ready_fd);
		serve_until_done(&v, &set, ready_fd >= 0);
	}
	pool_free(v.pool);
	attach_free(v.attach);
	mount_close(&v.mount);
	return r < 0 ? 1 : 0;
}

static int serve_in_background(struct mount_opts *opts)
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
		/* Nothing that the caller left open may stay open as long as the mount lives. */
		int fd = dup2(ready[1], 3) < 0 ? -1 : 3;

		setsid();
		close_range(4, ~0u, 0);
		_exit(serve(opts, fd));
	}
	close(ready[1]);
	do {
		n = read(ready[0], &byte, 1);
	} while (n < 0 && errno == EINTR);
	if (n == 1)
		return 0;
	/* It has said why on our standard error. */
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		log_error("the server died of signal %d", WTERMSIG(status));
	return 1;
}

int cmd_mount(int argc, char **argv)
{
	_cleanup_(options_release) struct mount_opts opts;
	char cwd[PATH_MAX], err[ERR_SIZE] = "out of memory";

	/* Callers show our lines to their users, who know this name. */
	log_set_name("fuse-overlayfs");
	hold_standard_fds();
	if (!getcwd(cwd, sizeof(cwd)))
		strcpy(cwd, "/");
	if (options_parse(argc, argv, cwd, geteuid() == 0, &opts, err, sizeof(err)) < 0) {
		opts = (struct mount_opts){ 0 };
		log_error("%s", err);
		return 1;
	}
	if (opts.wants_help)
		return print_help();
	if (opts.wants_version)
		return print_version();
	for (size_t i = 0; i < opts.n_unknown; i++)
		log_warn("unknown argument ignored: %s", opts.unknown[i]);
	if (opts.is_debug)
		log_set_level(LOG_LVL_DEBUG);
	return opts.is_foreground || opts.is_debug ? serve(&opts, -1) : serve_in_background(&opts);
}
