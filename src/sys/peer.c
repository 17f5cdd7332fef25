// SPDX-License-Identifier: Apache-2.0
/* SO_PEERCRED gives the pid of the process that connected, which may be reused after its end. So a
 * pidfd holds the process itself. Values read from /proc by its pid count only if the process still
 * lives afterwards: until its end no other process has the pid.
 *
 * Capabilities are those in the process's own user namespace, where any user may have all: they
 * mean something only together with that namespace. */
#include "veneer/sys/peer.h"

#include "veneer/base/cleanup.h"
#include "veneer/sys/file.h"
#include "veneer/sys/sock.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#define STATUS_SIZE 8192

/* Newer than the headers of the systems that this builds on. */
#define KERNEL_SO_PEERPIDFD 77

/* An ended process is an error, which depends on the kernel. -ENOPROTOOPT: the kernel lacks the
 * option. */
static int pidfd_of_connector(int fd)
{
	socklen_t size = sizeof(int);
	int got = -1;

	if (getenv("VENEER_NO_PEERPIDFD"))
		return -ENOPROTOOPT;
	if (getsockopt(fd, SOL_SOCKET, KERNEL_SO_PEERPIDFD, &got, &size) == 0)
		return got;
	return errno == EINVAL ? -ESRCH : -errno;
}

int peer_hold(int fd, struct peer *ret)
{
	_cleanup_(closep) int pidfd = -1;
	struct ucred cred;
	int r = sock_peer(fd, &cred);

	if (r < 0)
		return r;
	/* A process outside of this process namespace has no pid here. */
	if (cred.pid <= 0)
		return -ESRCH;
	pidfd = pidfd_of_connector(fd);
	if (pidfd < 0 && pidfd != -ENOPROTOOPT)
		return pidfd;
	*ret = (struct peer){
		.fd = fd, .pid = cred.pid, .uid = cred.uid, .pidfd = -1, .is_connector = pidfd >= 0
	};
	if (ret->is_connector)
		return 0;
	ret->pidfd = (int)syscall(SYS_pidfd_open, cred.pid, 0);
	return ret->pidfd < 0 ? -errno : 0;
}

int peer_name_senders(int fd)
{
	int r = getenv("VENEER_NO_PEERPIDFD") ? -ENOPROTOOPT : sock_hold_senders(fd);

	return r == -ENOPROTOOPT ? sock_name_senders(fd) : r;
}

int peer_hold_sender(struct sock_sender *s, struct peer *ret)
{
	_cleanup_(closep) int pidfd = steal_fd(&s->pidfd);

	const bool is_sender = pidfd >= 0;

	if (s->pid <= 0)
		return -ENODATA;
	if (pidfd < -1)
		return -ESRCH;
	if (!is_sender)
		pidfd = (int)syscall(SYS_pidfd_open, s->pid, 0);
	if (pidfd < 0)
		return -errno;
	*ret = (struct peer){ .fd = -1,
			      .pid = s->pid,
			      .uid = (uid_t)-1,
			      .is_sender = is_sender,
			      .pidfd = steal_fd(&pidfd) };
	return 0;
}

void peer_release(struct peer *p)
{
	closep(&p->pidfd);
}

bool peer_id_is(const struct peer_id *a, const struct peer_id *b)
{
	return a->dev == b->dev && a->ino == b->ino;
}

/* Does not wait for a file system that does not answer. */
static int identify(const char *process, const char *name, struct peer_id *ret)
{
	struct statx st;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%s/%s", process, name);
	if (statx(AT_FDCWD, path, AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, STATX_INO, &st) < 0)
		return -errno;
	if (!(st.stx_mask & STATX_INO))
		return -ENODATA;
	*ret = (struct peer_id){ makedev(st.stx_dev_major, st.stx_dev_minor), st.stx_ino };
	return 0;
}

static bool find_caps(const char *status, const char *key, uint64_t *ret)
{
	const char *line = strstr(status, key);
	unsigned long long caps;

	if (!line || sscanf(line + strlen(key), "%llx", &caps) != 1)
		return false;
	*ret = caps;
	return true;
}

static int read_status(const char *process, struct peer_standing *ret)
{
	char path[64], status[STATUS_SIZE];
	const char *ids;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%s/status", process);
	n = file_read_text(path, status, sizeof(status));
	if (n < 0)
		return (int)n;
	/* The kernel escapes newlines in the name, which the process chooses. */
	ids = strstr(status, "\nUid:\t");
	if (!ids ||
	    sscanf(ids, "\nUid: %u %u %u %u", &ret->uids[0], &ret->uids[1], &ret->uids[2],
		   &ret->uids[3]) != 4 ||
	    !find_caps(status, "\nCapEff:\t", &ret->effective) ||
	    !find_caps(status, "\nCapPrm:\t", &ret->permitted) ||
	    !find_caps(status, "\nCapBnd:\t", &ret->bounding))
		return -ENODATA;
	return 0;
}

/* No decision depends on the control group alone. */
static void read_cgroup(const char *process, struct peer_standing *ret)
{
	_cleanup_(closep) int fd = -1;
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%s/cgroup", process);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	memset(ret->cgroup, 0, sizeof(ret->cgroup));
	n = fd < 0 ? -1 : read(fd, ret->cgroup, sizeof(ret->cgroup));
	if (n <= 0 || n == sizeof(ret->cgroup) || !strcmp(ret->cgroup, "0::/\n"))
		memset(ret->cgroup, 0, sizeof(ret->cgroup));
}

static int read_standing(const char *process, struct peer_standing *ret)
{
	int r = identify(process, "ns/user", &ret->user_ns);

	if (r == 0)
		r = identify(process, "ns/pid", &ret->pid_ns);
	if (r == 0)
		r = identify(process, "ns/mnt", &ret->mount_ns);
	if (r == 0)
		r = identify(process, "root", &ret->root);
	read_cgroup(process, ret);
	return r < 0 ? r : read_status(process, ret);
}

int peer_standing(const struct peer *p, struct peer_standing *ret)
{
	_cleanup_(closep) int own = p->is_connector ? pidfd_of_connector(p->fd) : -1;
	struct pollfd end = { .fd = p->is_connector ? own : p->pidfd, .events = POLLIN };
	struct peer_standing found;
	char process[16];
	int r;

	if (end.fd < 0)
		return p->is_connector ? end.fd : -ESRCH;
	snprintf(process, sizeof(process), "%d", (int)p->pid);
	r = read_standing(process, &found);
	/* Test this last: the values are the process's if it lives now. */
	if (poll(&end, 1, 0) != 0)
		return -ESRCH;
	if (r == 0)
		*ret = found;
	return r;
}

int peer_standing_self(struct peer_standing *ret)
{
	struct peer_standing found;
	int r = read_standing("self", &found);

	if (r == 0)
		*ret = found;
	return r;
}

int peer_first_mount_ns(struct peer_id *ret)
{
	return identify("1", "ns/mnt", ret);
}
