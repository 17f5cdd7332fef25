// SPDX-License-Identifier: Apache-2.0
#include "veneer/server/sandbox_setup.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/layer/fd_cache.h"
#include "veneer/sys/cgroup.h"
#include "veneer/sys/file.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#define NOFILE_WANTED 524288u /* the usual limit of service managers */

#define JOURNAL_DIR "/run/systemd/journal"

/* Temporary places to attach the new root: any existing directory that is not carried over. */
static const char *const stages[] = { "/tmp", "/run", "/var", "/usr", "/etc" };

void sandbox_setup_hold_standard_fds(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR);
	} while (fd >= 0 && fd <= 2);
	closep(&fd);
}

static void raise_file_size_limit(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_FSIZE, &rl) == 0) {
		rl.rlim_cur = rl.rlim_max;
		setrlimit(RLIMIT_FSIZE, &rl);
	}
}

void sandbox_setup_lift_limits(void)
{
	static const struct {
		int resource;
		rlim_t wanted;
	} limits[] = {
		{ RLIMIT_CPU, RLIM_INFINITY },	  { RLIMIT_AS, RLIM_INFINITY },
		{ RLIMIT_DATA, RLIM_INFINITY },	  { RLIMIT_FSIZE, RLIM_INFINITY },
		{ RLIMIT_NOFILE, NOFILE_WANTED },
	};

	for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
		struct rlimit rl, wanted = { limits[i].wanted, limits[i].wanted };

		if (getrlimit(limits[i].resource, &rl) < 0)
			continue;
		if (rl.rlim_max < wanted.rlim_max && setrlimit(limits[i].resource, &wanted) == 0)
			continue;
		rl.rlim_cur = rl.rlim_max;
		setrlimit(limits[i].resource, &rl);
	}
}

const char *const *sandbox_setup_environment(void)
{
	static const char *const handed_on[] = { "VENEER_CGROUP", "VENEER_CPU_LATENCY",
						 "VENEER_LOG", "VENEER_METRICS" };
	static const char *env[sizeof(handed_on) / sizeof(*handed_on) + 2];
	size_t n = 0;

	env[n++] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
	for (size_t i = 0; i < sizeof(handed_on) / sizeof(*handed_on); i++) {
		const char *value = getenv(handed_on[i]);

		/* The whole entry "NAME=value", of which value is the end. */
		if (value)
			env[n++] = value - strlen(handed_on[i]) - 1;
	}
	env[n] = NULL;
	return env;
}

void sandbox_setup_leave_groups(void)
{
	const char *wish = getenv("VENEER_CGROUP");
	char why[512] = "";

	if (wish ? !*wish : geteuid() == 0 && access("/run/systemd/system", F_OK) == 0)
		return;
	if (cgroup_leave(wish, why, sizeof(why)))
		log_debug("stays in the control group of its starter: %s", why);
}

void sandbox_setup_prepare(void)
{
	signal(SIGPIPE, SIG_IGN);
	/* SIGIO comes from a lease that another process breaks while it is being taken
	 * (mount_freeze.c). */
	signal(SIGIO, SIG_IGN);
	/* SIGXFSZ comes from the starter's file size limit, which is not the containers': a write
	 * fails with EFBIG instead. */
	signal(SIGXFSZ, SIG_IGN);
	raise_file_size_limit();
	umask(0);
	fd_cache_init();
	file_guard_init();
	tzset();
}

/* mkdir -p below dirfd. */
static int make_path(int dirfd, char *path)
{
	for (char *s = path; (s = strchr(s, '/')); *s++ = '/') {
		*s = '\0';
		if (mkdirat(dirfd, path, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	return mkdirat(dirfd, path, 0755) < 0 && errno != EEXIST ? -errno : 0;
}

/* Bind the directory fd, now at /path, to the same path in the new root. */
static int carry(int root, int fd, const char *path)
{
	char copy[PATH_MAX], from[64], to[PATH_MAX + 64];
	int r;

	snprintf(copy, sizeof(copy), "%s", path + 1);
	r = make_path(root, copy);
	if (r < 0)
		return r;
	snprintf(from, sizeof(from), "/proc/self/fd/%d", fd);
	snprintf(to, sizeof(to), "/proc/self/fd/%d/%s", root, path + 1);
	return mount(from, to, NULL, MS_BIND | MS_REC, NULL) < 0 ? -errno : 0;
}

/* Find the directory of the system log's socket, as the socket itself changes when its owner
 * restarts. Empty: there is none, or it is in /dev. */
static void find_log(char *path)
{
	char *slash;

	if (!realpath("/dev/log", path) || !strncmp(path, "/dev/", 5)) {
		*path = '\0';
		return;
	}
	slash = strrchr(path, '/');
	*slash = '\0';
}

/* The mounts that are carried over. */
struct luggage {
	char log_dir[PATH_MAX];
	const char *path[5];
	int fd[5], n;
};

static int pack(struct luggage *l)
{
	static const char *const needed[] = { "/proc", "/dev", "/sys" };

	l->n = 0;
	find_log(l->log_dir);
	for (int i = 0; i < 3; i++)
		l->path[l->n++] = needed[i];
	if (*l->log_dir)
		l->path[l->n++] = l->log_dir;
	/* Usually the same directory. */
	if (access(JOURNAL_DIR, F_OK) == 0 && strcmp(l->log_dir, JOURNAL_DIR))
		l->path[l->n++] = JOURNAL_DIR;
	for (int i = 0; i < l->n; i++)
		l->fd[i] = open(l->path[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < l->n; i++)
		if (l->fd[i] < 0)
			return -ENOENT;
	return 0;
}

static void unpack(struct luggage *l)
{
	for (int i = 0; i < l->n; i++)
		closep(&l->fd[i]);
}

/* A detached tmpfs, just large enough for its few directories. */
static int make_root(void)
{
	_cleanup_(closep) int fs = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
	int root;

	if (fs < 0 || syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "mode", "0755", 0) < 0 ||
	    syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "size", "64k", 0) < 0 ||
	    syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	root = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC,
			    MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	return root < 0 ? -errno : root;
}

/* Called in the new namespace. Opens the directories to carry first, because the new root may cover
 * the log's. */
static int change_root(void)
{
	_cleanup_(unpack) struct luggage l = { .n = 0 };
	_cleanup_(closep) int root = -1;
	int r;

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	r = pack(&l);
	root = r < 0 ? r : make_root();
	if (root < 0)
		return root;
	r = -ENOENT;
	for (size_t i = 0; r < 0 && i < sizeof(stages) / sizeof(*stages); i++)
		r = syscall(SYS_move_mount, root, "", AT_FDCWD, stages[i],
			    MOVE_MOUNT_F_EMPTY_PATH) < 0
			    ? -errno
			    : 0;
	for (int i = 0; r == 0 && i < l.n; i++)
		r = carry(root, l.fd[i], l.path[i]);
	if (r < 0)
		return r;
	if (fchdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
	    umount2(".", MNT_DETACH) < 0)
		return -errno;
	return 0;
}

bool sandbox_setup_enter(void)
{
	_cleanup_(closep) int before = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	int r;

	setsid();
	if (before < 0 || unshare(CLONE_NEWNS) < 0) {
		r = -errno;
	} else {
		r = change_root();
		/* Go back: a copy of the starter's namespace would keep more file systems busy than
		 * the original. */
		if (r < 0 && setns(before, CLONE_NEWNS) < 0)
			log_warn("cannot go back to the mount namespace: %s", strerror(errno));
	}
	if (chdir("/") < 0)
		log_warn("cannot change to /: %s", strerror(errno));
	if (r < 0)
		log_debug("no mount namespace of its own: %s", strerror(-r));
	return r == 0;
}
