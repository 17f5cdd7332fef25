// SPDX-License-Identifier: Apache-2.0
#include "umount_wait.h"

#include "mount_find.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/log.h"
#include "veneer/base/minmax.h"
#include "veneer/mount/workdir.h"
#include "veneer/sys/mountinfo.h"

#include <fcntl.h>
#include <mntent.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define ANSWER_MS 2000
#define CHILD_US  100 /* the child only has to exit */
#define STEP_US	  500
#define WORD_MS	  3000 /* then print a message */
#define DOUBT_MS  10000 /* limit if the kernel has not reported the end of the file system */

/* A path from another user's server could point anywhere. */
static bool is_of_this_user(const char *path)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	bool is_ours = false;
	struct mntent *m;

	while (f && (m = getmntent(f))) {
		const char *user = strcmp(m->mnt_dir, path) ? NULL : hasmntopt(m, "user_id");

		if (user)
			is_ours = strtoul(user + strlen("user_id="), NULL, 10) == geteuid();
	}
	if (f)
		endmntent(f);
	return is_ours;
}

static bool find_mount(struct umount_wait *c)
{
	struct mountinfo_mount m = { .id = 0 };
	struct statx stx;

	if (statx(AT_FDCWD, c->path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW,
		  STATX_MNT_ID, &stx) < 0 ||
	    !(stx.stx_mask & STATX_MNT_ID))
		return false;
	m.id = stx.stx_mnt_id;
	if (mountinfo_find(&m, 1) < 0)
		m.root = NULL;
	free(m.point);
	c->root = m.root;
	c->dev_major = m.dev_major;
	c->dev_minor = m.dev_minor;
	return c->root != NULL;
}

/* The process may outlive the command. Close its output, as a reader of it waits for the last
 * writer, and other descriptors, as a lock (flock(1)) lasts as long as any of them. */
static void let_go(int watch_fd, int answer_fd)
{
	const int low = MIN(watch_fd, answer_fd), high = MAX(watch_fd, answer_fd);

	if (chdir("/") < 0)
		log_debug("cannot leave the working directory: %s", strerror(errno));
	if (low > 0)
		close_range(0, (unsigned)low - 1, 0);
	if (high > low + 1)
		close_range((unsigned)low + 1, (unsigned)high - 1, 0);
	close_range((unsigned)high + 1, ~0u, 0);
}

/* Runs in a child, because the server may be stopped. */
static void ask(const char *path, int watch_fd, int answer_fd)
{
	char text[WORKDIR_HANDLE_SIZE];
	ssize_t n;

	let_go(watch_fd, answer_fd);
	if (watch_fd >= 0)
		inotify_add_watch(watch_fd, path, IN_DELETE_SELF | IN_ONLYDIR | IN_DONT_FOLLOW);
	n = lgetxattr(path, WORKDIR_ATTR, text, sizeof(text));
	_exit(n > 0 && write(answer_fd, text, (size_t)n) == n ? 0 : 1);
}

/* Kill the child. False: it cannot end before the server has answered. */
static bool end_asking(pid_t pid)
{
	const int64_t end = clock_ms() + ANSWER_MS;
	pid_t r;

	kill(pid, SIGKILL);
	while ((r = waitpid(pid, NULL, WNOHANG)) == 0 && clock_ms() < end)
		usleep(CHILD_US);
	return r != 0;
}

/* Read the server's text, and terminate it. */
static bool hear(int fd, char text[WORKDIR_HANDLE_SIZE])
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	ssize_t n = poll(&p, 1, ANSWER_MS) == 1 ? read(fd, text, WORKDIR_HANDLE_SIZE - 1) : -1;

	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

static bool ask_server(struct umount_wait *c, char text[WORKDIR_HANDLE_SIZE])
{
	int ends[2];
	bool r;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return false;
	pid = fork();
	if (pid == 0)
		ask(c->path, c->watch_fd, ends[1]);
	close(ends[1]);
	r = pid > 0 && hear(ends[0], text);
	close(ends[0]);
	c->is_held = pid > 0 && !end_asking(pid);
	return r;
}

void umount_wait_prepare(struct umount_wait *c, const char *path)
{
	char text[WORKDIR_HANDLE_SIZE];

	*c = (struct umount_wait){ .path = strdup(path), .work_fd = -1, .watch_fd = -1 };
	if (!c->path || !mount_find_is_ours(path) || !is_of_this_user(path) || !find_mount(c))
		return;
	c->watch_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (ask_server(c, text))
		c->work_fd = workdir_open_handle(text);
}

/* ---- after the unmount ---- */

static bool is_over(const struct umount_wait *c)
{
	char buf[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t n = c->watch_fd < 0 ? -1 : read(c->watch_fd, buf, sizeof(buf));
	const struct inotify_event *e;

	for (ssize_t off = 0; off < n; off += (ssize_t)(sizeof(*e) + e->len)) {
		e = (const struct inotify_event *)(buf + off);
		if (e->mask & IN_UNMOUNT)
			return true;
	}
	return false;
}

struct search {
	const char *root;
	bool is_found;
};

static void compare_root(const char *root, void *arg)
{
	struct search *s = arg;
	const size_t n = strlen(s->root);

	/* A directory of it may be mounted, too. */
	s->is_found |= !strncmp(root, s->root, n) &&
		       (!root[n] || root[n] == '/' || s->root[n - 1] == '/');
}

/* Look in all visible mount namespaces. */
static bool is_mounted_elsewhere(const struct umount_wait *c)
{
	struct search s = { .root = *c->root ? c->root : "/" };

	return mountinfo_roots(0, NULL, c->dev_major, c->dev_minor, compare_root, &s) < 0 ||
	       s.is_found;
}

/* A member of a shared superblock (shared_sb.h) ends when the kernel has forgotten its root, and a
 * watch would keep the root. */
static void end_watch_of_shared(struct umount_wait *c)
{
	if (*c->root && c->root[1 + strspn(c->root + 1, "0123456789")] == '\0')
		closep(&c->watch_fd);
}

static void say_outcome(const struct umount_wait *c)
{
	struct stat st;

	if (fstat(c->work_fd, &st) == 0 && st.st_nlink > 0)
		log_warn("%s: its server ended before it had closed the upper; the next mount does "
			 "that",
			 c->path);
}

/* The kernel does not report the end of one mount of a shared file system. */
void umount_wait_until_closed(struct umount_wait *c, bool is_lazy)
{
	const int64_t start = clock_ms();
	bool is_certain = c->work_fd >= 0 && is_over(c), is_said = false;

	if (c->work_fd >= 0)
		end_watch_of_shared(c);
	if (c->work_fd < 0 || (!is_certain && (is_lazy || is_mounted_elsewhere(c))))
		return;
	/* The server's own lock is released when it has closed everything, or is dead. */
	while (flock(c->work_fd, LOCK_SH | LOCK_NB) < 0) {
		const int64_t waited = clock_ms() - start;

		is_certain = is_certain || is_over(c);
		if (errno != EWOULDBLOCK || (waited > DOUBT_MS && !is_certain)) {
			log_warn("%s is unmounted here, and still in use: its upper is not closed",
				 c->path);
			return;
		}
		if (waited > WORD_MS && !is_said)
			log_warn("%s is unmounted; waiting until its server has written the upper "
				 "out",
				 c->path);
		is_said = is_said || waited > WORD_MS;
		usleep(STEP_US);
	}
	say_outcome(c);
}

void umount_wait_release(struct umount_wait *c)
{
	closep(&c->work_fd);
	closep(&c->watch_fd);
	free(c->path);
	free(c->root);
	*c = (struct umount_wait){ .work_fd = -1, .watch_fd = -1 };
}
