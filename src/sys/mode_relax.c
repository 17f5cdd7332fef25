// SPDX-License-Identifier: Apache-2.0
/* One set of lists for the process: the relaxed files, their number of users, and the intended
 * mode. A server that is killed meanwhile leaves the owner, and nobody else, more rights than
 * before. */
#include "veneer/sys/mode_relax.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/sys/xattr.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

struct mode_relax {
	struct mode_relax *next;
	dev_t dev;
	ino_t ino;
	mode_t mode; /* the intended one; guarded by the list's lock, as users is */
	unsigned users;
	int fd; /* O_PATH, or a duplicate of the caller's */
};

#define NLISTS 16

/* By device: only users of a file system that hangs here wait for it. */
static struct relax_list {
	rwlock_t lock;
	GUARDED_BY(lock) struct mode_relax *first;
} lists[NLISTS] = { [0 ... NLISTS - 1] = { .lock = PTHREAD_RWLOCK_INITIALIZER } };

static _Atomic unsigned n_relaxed;
static _Atomic uint64_t n_ended;

/* Of this thread, as permissions are per thread. */
static bool is_bound(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	return syscall(SYS_capget, &head, data) == 0 &&
	       !(data[0].effective & 1u << CAP_DAC_OVERRIDE);
}

/* Without membership in the file's group, chmod clears the set-group-id bit. */
static bool is_in_group(gid_t gid)
{
	gid_t groups[256];
	int n = getgroups(256, groups);

	for (int k = 0; k < n; k++)
		if (groups[k] == gid)
			return true;
	return gid == getegid();
}

static mode_t owner_bits(mode_t mode)
{
	return S_ISDIR(mode) ? 0700 : S_ISREG(mode) ? 0600 : 0;
}

/* Also for an O_PATH descriptor. */
static int set_mode(int fd, mode_t mode)
{
	char path[32];

	if (fchmod(fd, mode) == 0)
		return 0;
	if (errno != EBADF)
		return -errno;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return chmod(path, mode) < 0 ? -errno : 0;
}

static struct relax_list *list_of(dev_t dev)
{
	return &lists[(major(dev) + minor(dev)) % NLISTS];
}

/* Under the lock. */
static struct mode_relax *find(const struct relax_list *l, const struct stat *st)
	REQUIRES_SHARED(l->lock)
{
	struct mode_relax *r = l->first;

	while (r && (r->ino != st->st_ino || r->dev != st->st_dev))
		r = r->next;
	return r;
}

static bool may_relax(const struct stat *st)
{
	return st->st_uid == geteuid() && owner_bits(st->st_mode) & ~st->st_mode &&
	       (!(st->st_mode & S_ISGID) || is_in_group(st->st_gid));
}

struct mode_relax *mode_relax_begin(int dirfd, const char *name)
{
	_cleanup_(closep) int fd = -1;
	struct relax_list *l;
	struct mode_relax *r;
	struct stat st;

	if (!is_bound())
		return NULL;
	fd = *name ? openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC)
		   : fcntl(dirfd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0 || fstat(fd, &st) < 0)
		return NULL;
	l = list_of(st.st_dev);
	WRLOCK_SCOPE(&l->lock);
	if (fstat(fd, &st) < 0)
		return NULL;
	r = find(l, &st);
	if (r) {
		r->users++;
		return r;
	}
	r = may_relax(&st) ? malloc(sizeof(*r)) : NULL;
	if (!r)
		return NULL;
	*r = (struct mode_relax){ .next = l->first,
				  .dev = st.st_dev,
				  .ino = st.st_ino,
				  .mode = st.st_mode & 07777,
				  .users = 1 };
	atomic_fetch_add(&n_relaxed, 1);
	if (set_mode(fd, r->mode | owner_bits(st.st_mode)) < 0) {
		atomic_fetch_sub(&n_relaxed, 1);
		free(r);
		return NULL;
	}
	r->fd = steal_fd(&fd);
	l->first = r;
	return r;
}

void mode_relax_end(struct mode_relax *r)
{
	struct relax_list *l = r ? list_of(r->dev) : NULL;
	int saved = errno;

	if (!r)
		return;
	WRLOCK_SCOPE(&l->lock);
	if (--r->users == 0) {
		struct mode_relax **at = &l->first;

		set_mode(r->fd, r->mode);
		while (*at != r)
			at = &(*at)->next;
		*at = r->next;
		/* n_ended first: see mode_relax_stat. */
		atomic_fetch_add(&n_ended, 1);
		atomic_fetch_sub(&n_relaxed, 1);
		close(r->fd);
		free(r);
	}
	errno = saved;
}

int mode_relax_stat(int dirfd, const char *name, int flags, struct stat *ret)
{
	const uint64_t before = atomic_load(&n_ended);
	const struct mode_relax *r;
	struct relax_list *l;

	if (fstatat(dirfd, name, ret, flags) < 0)
		return -errno;
	if (atomic_load(&n_relaxed) == 0 && atomic_load(&n_ended) == before)
		return 0;
	l = list_of(ret->st_dev);
	RDLOCK_SCOPE(&l->lock);
	if (fstatat(dirfd, name, ret, flags) < 0)
		return -errno;
	r = find(l, ret);
	if (r)
		ret->st_mode = (ret->st_mode & S_IFMT) | r->mode;
	return 0;
}

int mode_relax_chmod(int fd, mode_t mode)
{
	struct relax_list *l;
	struct mode_relax *r;
	struct stat st;

	if (!is_bound())
		return set_mode(fd, mode);
	if (fstat(fd, &st) < 0)
		return -errno;
	l = list_of(st.st_dev);
	WRLOCK_SCOPE(&l->lock);
	r = find(l, &st);
	if (!r)
		return set_mode(fd, mode);
	r->mode = mode & 07777;
	return set_mode(fd, mode | owner_bits(st.st_mode));
}

int mode_relax_openat(int dirfd, const char *name, int flags)
{
	_cleanup_(mode_relax_endp) struct mode_relax *dir = NULL, *object = NULL;
	int fd = openat(dirfd, name, flags);

	if (fd >= 0 || errno != EACCES)
		return fd < 0 ? -errno : fd;
	dir = mode_relax_begin(dirfd, "");
	object = mode_relax_begin(dirfd, name);
	if (!dir && !object)
		return -EACCES;
	fd = openat(dirfd, name, flags);
	return fd < 0 ? -errno : fd;
}

int mode_relax_rename(int fromfd, const char *from, int tofd, const char *to, unsigned flags)
{
	_cleanup_(mode_relax_endp) struct mode_relax *source = NULL, *target = NULL, *object = NULL,
						     *other = NULL;

	if (renameat2(fromfd, from, tofd, to, flags) == 0)
		return 0;
	if (errno != EACCES)
		return -errno;
	source = mode_relax_begin(fromfd, "");
	target = mode_relax_begin(tofd, "");
	/* Moving a directory to another parent also writes the directory itself. */
	object = mode_relax_begin(fromfd, from);
	other = mode_relax_begin(tofd, to);
	return renameat2(fromfd, from, tofd, to, flags) < 0 ? -errno : 0;
}

int mode_relax_set_xattr(int fd, const char *attr, const void *value, size_t size)
{
	_cleanup_(mode_relax_endp) struct mode_relax *x = NULL;
	int r = xattr_set(fd, "", attr, value, size, 0);

	if (r == -EACCES && (x = mode_relax_begin(fd, "")))
		r = xattr_set(fd, "", attr, value, size, 0);
	return r;
}

int mode_relax_remove_xattr(int fd, const char *attr)
{
	_cleanup_(mode_relax_endp) struct mode_relax *x = NULL;
	int r = xattr_remove(fd, "", attr);

	if (r == -EACCES && (x = mode_relax_begin(fd, "")))
		r = xattr_remove(fd, "", attr);
	return r;
}
