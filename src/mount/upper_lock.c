// SPDX-License-Identifier: Apache-2.0
/* Two attributes of the upper's root. WORK_ATTR names the `work` that the last writing mount had
 * locked. Only a mount with the lock of the root changes it, before its first write; a mount
 * without a locked `work` removes it. Hence:
 * 1. A living mount that began with the lock of the root has locked the `work` that WORK_ATTR
 *    names.
 *
 * CONTESTED_ATTR names the `work` of a mount that runs without the lock of the root, for its
 * lifetime and within this boot. Only a mount that has locked the `work` of WORK_ATTR sets it, and:
 * 2. No mount begins while it names another mount's.
 *
 * By 1 and 2, a mount that has locked that `work` is alone. Two mounts may begin at the same time,
 * one with the lock of the root and one against it. Each writes its own attribute first and then
 * reads the other's, so at least one sees the other. */
#include "veneer/mount/upper_lock.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/mount/upper_takeover.h"
#include "veneer/mount/workdir.h"
#include "veneer/sys/boot_id.h"
#include "veneer/sys/file.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/sys/watch.h"
#include "veneer/sys/xattr.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define WAIT_MS	    5000
#define STEP_MS	    5
#define WARN_MS	    200 /* then log it; by then a mount that is closing has usually gone */
#define TAKEOVER_MS 1000 /* then ask the holder to give the upper up */

#define WORK_ATTR      UPPER_LOCK_WORK_ATTR
#define CONTESTED_ATTR UPPER_LOCK_CONTESTED_ATTR
#define ID_SIZE	       56
#define TEXT_SIZE      (2 * ID_SIZE + BOOT_ID_SIZE)

enum contest { CONTEST_NONE, CONTEST_VOID, CONTEST_OURS, CONTEST_OTHER };

/* The values that the attributes of this mount should have; empty: it has no identity. */
struct names {
	char work[TEXT_SIZE], contested[TEXT_SIZE];
	char here[TEXT_SIZE]; /* prefix of a CONTESTED_ATTR of this root and this boot */
};

/* An identity that no other file ever gets; inode numbers alone are reused. */
static bool identify(int fd, char ret[ID_SIZE])
{
	struct statfs fs;
	struct statx st;

	if (fstatfs(fd, &fs) < 0 || !watch_sees_type((long)fs.f_type) ||
	    statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &st) < 0 ||
	    !(st.stx_mask & STATX_BTIME))
		return false;
	snprintf(ret, ID_SIZE, "%ju:%jd.%09u", (uintmax_t)st.stx_ino, (intmax_t)st.stx_btime.tv_sec,
		 st.stx_btime.tv_nsec);
	return true;
}

/* Read the kernel's boot id. Containers of systemd-nspawn have another file mounted over that
 * name. */
static bool find_boot(char ret[BOOT_ID_SIZE])
{
	struct statfs fs;

	return statfs(BOOT_ID_PATH, &fs) == 0 && (unsigned long)fs.f_type == PROC_SUPER_MAGIC &&
	       boot_id_read(ret) == 0;
}

static void find_names(const struct upper_lock *l, int rootfd, struct names *ret)
{
	char root[ID_SIZE], work[ID_SIZE], boot[BOOT_ID_SIZE];
	const bool has_boot = find_boot(boot);

	*ret = (struct names){ .work = "" };
	if (!identify(rootfd, root))
		return;
	/* If the boot is unknown, any boot may be this one. */
	snprintf(ret->here, sizeof(ret->here), has_boot ? "%s %s " : "%s ", root, boot);
	if (l->fd < 0 || !identify(l->fd, work))
		return;
	snprintf(ret->work, sizeof(ret->work), "%s %s", root, work);
	if (has_boot)
		snprintf(ret->contested, sizeof(ret->contested), "%s %s %s", root, boot, work);
}

/* Read an attribute. A value that veneer never writes comes from another program and becomes
 * "?". */
static int read_attr(int rootfd, const char *attr, char ret[TEXT_SIZE])
{
	_cleanup_(mode_relax_endp) struct mode_relax *x = NULL;
	ssize_t n = xattr_get(rootfd, "", attr, ret, TEXT_SIZE - 1);

	if (n == -EACCES && (x = mode_relax_begin(rootfd, "")))
		n = xattr_get(rootfd, "", attr, ret, TEXT_SIZE - 1);
	if (n == -ENODATA || n == -EOPNOTSUPP)
		n = 0;
	else if (n == -ERANGE || n == 0)
		n = snprintf(ret, TEXT_SIZE, "?");
	ret[n < 0 ? 0 : n] = '\0';
	return n < 0 ? (int)n : 0;
}

/* enum contest or -errno. In a copy of the upper, and after a reboot, the attribute is void. */
static int read_contest(int rootfd, const struct names *n)
{
	char text[TEXT_SIZE];
	int r = read_attr(rootfd, CONTESTED_ATTR, text);

	if (r < 0)
		return r;
	if (!*text)
		return CONTEST_NONE;
	if (!*n->here || strncmp(text, n->here, strlen(n->here)) != 0)
		return CONTEST_VOID;
	return *n->contested && !strcmp(text, n->contested) ? CONTEST_OURS : CONTEST_OTHER;
}

/* Without WORK_ATTR no mount can contest the lock of the root, so removing it is safe. */
static int change_work(int rootfd, const char *before, const char *after)
{
	int r = *after ? mode_relax_set_xattr(rootfd, WORK_ATTR, after, strlen(after)) : -ENODATA;

	if (r == 0 || !*before)
		return 0;
	r = mode_relax_remove_xattr(rootfd, WORK_ATTR);
	return r == -ENODATA ? 0 : r;
}

/* Claim the upper for this mount, which has the lock of the root. -EAGAIN: another mount contests
 * it. */
static int claim(struct upper_lock *l, int rootfd)
{
	char before[TEXT_SIZE];
	struct names n;
	int c, r;

	find_names(l, rootfd, &n);
	c = read_contest(rootfd, &n);
	if (c < 0 || c == CONTEST_OTHER)
		return c < 0 ? c : -EAGAIN;
	r = read_attr(rootfd, WORK_ATTR, before);
	if (r == 0 && strcmp(before, n.work) != 0) {
		r = change_work(rootfd, before, n.work);
		if (r == 0 && (r = read_contest(rootfd, &n)) == CONTEST_OTHER) {
			change_work(rootfd, n.work, before);
			return -EAGAIN;
		}
	}
	if (r < 0)
		return r;
	l->is_contested = c != CONTEST_NONE &&
			  mode_relax_remove_xattr(rootfd, CONTESTED_ATTR) < 0 && c == CONTEST_OURS;
	return 0;
}

static bool is_named(int rootfd, const struct names *n)
{
	char work[TEXT_SIZE];

	return read_attr(rootfd, WORK_ATTR, work) == 0 && !strcmp(work, n->work);
}

/* Contest the upper, as another process has the lock of the root. own: this mount's directory in
 * `work`, or "". -EAGAIN: that process may be a mount. */
static int contest(struct upper_lock *l, int rootfd, bool is_resumed, const char *own)
{
	struct names n;
	int c;

	find_names(l, rootfd, &n);
	if (!*n.contested || !is_named(rootfd, &n))
		return -EAGAIN;
	c = read_contest(rootfd, &n);
	/* Versions that do not lock `work` lock their directory in it. */
	if (c < 0 || c == CONTEST_OTHER || (!is_resumed && workdir_has_another(l->fd, own)))
		return -EAGAIN;
	if (c != CONTEST_OURS &&
	    mode_relax_set_xattr(rootfd, CONTESTED_ATTR, n.contested, strlen(n.contested)) < 0)
		return -EAGAIN;
	l->is_contested = is_named(rootfd, &n);
	if (!l->is_contested && c != CONTEST_OURS)
		mode_relax_remove_xattr(rootfd, CONTESTED_ATTR);
	return l->is_contested ? 0 : -EAGAIN;
}

/* Is the directory inaccessible to other users? */
static bool is_private(int fd, int rootfd)
{
	struct stat st, root;

	return fstat(fd, &st) == 0 && fstat(rootfd, &root) == 0 && st.st_dev == root.st_dev &&
	       st.st_uid == geteuid() && !(st.st_mode & 077);
}

static void lock_work(struct upper_lock *l, int top, int rootfd)
{
	_cleanup_(closep) int fd = -1;

	(void)!mkdirat(top, "work", 0700);
	fd = openat(top, "work", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && is_private(fd, rootfd) && flock(fd, LOCK_EX | LOCK_NB) == 0)
		l->fd = steal_fd(&fd);
}

/* -EAGAIN: not now. On a file system without flock(2) the upper is used without a lock. */
static int try_to_take(struct upper_lock *l, int rootfd, int top, bool is_resumed, int waited)
{
	int r;

	if (l->fd < 0 && top >= 0)
		lock_work(l, top, rootfd);
	if (flock(rootfd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return 0;
		return l->fd >= 0 && (is_resumed || waited >= WARN_MS)
			       ? contest(l, rootfd, is_resumed, "")
			       : -EAGAIN;
	}
	/* The previous mount releases `work` first, so it may be free by now. */
	if (l->fd < 0 && top >= 0)
		lock_work(l, top, rootfd);
	r = claim(l, rootfd);
	if (r < 0)
		flock(rootfd, LOCK_UN);
	return r;
}

static void warn_waiting(const char *path, int rootfd, const struct mount_dirs *dirs)
{
	const pid_t holder = file_flock_holder(rootfd);
	char of[32] = "";

	if (dirs && dirs->waits) {
		dirs->waits(dirs->waits_arg, path, rootfd);
		return;
	}
	if (holder)
		snprintf(of, sizeof(of), ", of process %d", (int)holder);
	log_warn("upperdir %s is in use by another mount%s: waiting up to %d seconds for its end",
		 path, of, WAIT_MS / 1000);
}

static void warn_contested(const char *path, int rootfd)
{
	const pid_t holder = file_flock_holder(rootfd);
	char by[32] = "another process";

	if (holder)
		snprintf(by, sizeof(by), "process %d", (int)holder);
	log_warn("%s locks upperdir %s without being a mount of it: relying on the lock of "
		 "workdir",
		 by, path);
}

static int fail(const struct upper_lock *l, const char *path, int rootfd, int r, char *err,
		size_t err_size)
{
	const pid_t holder = file_flock_holder(rootfd);
	struct names n;
	char of[32] = "";

	if (r != -EAGAIN) {
		snprintf(err, err_size, "cannot record the workdir in upperdir %s: %s", path,
			 strerror(-r));
		return r;
	}
	if (holder)
		snprintf(of, sizeof(of), ", of process %d", (int)holder);
	find_names(l, rootfd, &n);
	if (read_contest(rootfd, &n) == CONTEST_OTHER)
		snprintf(err, err_size,
			 "upperdir %s is in use by another mount, or was in use when its server "
			 "was killed: unmount "
			 "that, or mount it once with the workdir that it had",
			 path);
	else
		snprintf(err, err_size,
			 "upperdir %s is in use by another mount%s: unmount that first", path, of);
	return -EBUSY;
}

/* Wait, as the last mount may still be closing: callers mount again within milliseconds. */
int upper_lock_take(struct upper_lock *l, const char *path, int rootfd, struct mount_dirs *dirs,
		    char *err, size_t err_size)
{
	const int top = dirs ? dirs->work : -1;
	const bool is_resumed = dirs && dirs->lock >= 0;
	struct stat st;
	int r;

	*l = (struct upper_lock){ .fd = is_resumed ? steal_fd(&dirs->lock) : -1 };
	/* The descriptor shares the lock of the dead server. */
	if (is_resumed && flock(l->fd, LOCK_EX | LOCK_NB) < 0)
		closep(&l->fd);
	for (int waited = 0;; waited += STEP_MS) {
		r = try_to_take(l, rootfd, top, is_resumed, waited);
		if (r != -EAGAIN || waited >= WAIT_MS)
			break;
		if (waited == WARN_MS)
			warn_waiting(path, rootfd, dirs);
		if (top >= 0 && waited == TAKEOVER_MS && fstat(rootfd, &st) == 0)
			upper_takeover_ask(top, st.st_dev, st.st_ino);
		usleep(STEP_MS * 1000);
	}
	if (r < 0)
		return fail(l, path, rootfd, r, err, err_size);
	if (l->is_contested)
		warn_contested(path, rootfd);
	return 0;
}

void upper_lock_yield(const struct upper_lock *l, int rootfd)
{
	if (l->is_contested)
		return;
	/* Release both, as the next mount needs both. */
	if (l->fd >= 0)
		flock(l->fd, LOCK_UN);
	flock(rootfd, LOCK_UN);
}

bool upper_lock_retake(struct upper_lock *l, int rootfd, const char *own)
{
	char work[TEXT_SIZE];
	struct names n;

	if (l->is_contested)
		return true;
	if (l->fd >= 0 && flock(l->fd, LOCK_EX | LOCK_NB) < 0)
		return false;
	if (flock(rootfd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK && l->fd >= 0 && contest(l, rootfd, false, own) == 0;
	find_names(l, rootfd, &n);
	return read_contest(rootfd, &n) == CONTEST_NONE &&
	       read_attr(rootfd, WORK_ATTR, work) == 0 && (!*work || !strcmp(work, n.work));
}

void upper_lock_release(struct upper_lock *l, int rootfd)
{
	if (l->is_contested && rootfd >= 0)
		mode_relax_remove_xattr(rootfd, CONTESTED_ATTR);
	l->is_contested = false;
	if (l->fd >= 0)
		flock(l->fd, LOCK_UN);
	closep(&l->fd);
}

int upper_lock_alone(const char *path, int rootfd)
{
	struct upper_lock l;
	char err[PATH_MAX + 256];

	return upper_lock_take(&l, path, rootfd, NULL, err, sizeof(err));
}
