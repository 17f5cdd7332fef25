// SPDX-License-Identifier: Apache-2.0
#include "veneer/server/rundir.h"

#include "veneer/base/cleanup.h"
#include "veneer/sys/file.h"
#include "veneer/sys/sock.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define PROBE_MS 1000

/* The user id outside of our user namespace. Every user is 0 in some namespace, and all of them
 * share /tmp. */
static unsigned outer_uid(void)
{
	FILE *f = fopen("/proc/self/uid_map", "re");
	unsigned inside, outside, len, uid = geteuid(), found = uid;

	while (f && fscanf(f, "%u %u %u", &inside, &outside, &len) == 3)
		if (uid >= inside && uid - inside < len)
			found = outside + (uid - inside);
	if (f)
		fclose(f);
	return found;
}

static char *directory(void)
{
	const char *given = getenv("VENEER_RUNTIME_DIR"), *xdg = getenv("XDG_RUNTIME_DIR");
	char *r;
	int n;

	if (given && given[0] == '/')
		return strdup(given);
	/* root may have kept the variable of the user's shell that it runs in; root of a mere user
	 * namespace cannot write to /run */
	if (geteuid() == 0 && access("/run", W_OK) == 0)
		return strdup("/run/veneer");
	if (xdg && xdg[0] == '/')
		n = asprintf(&r, "%s/veneer", xdg);
	else
		n = asprintf(&r, "/tmp/veneer-%u", outer_uid());
	return n < 0 ? NULL : r;
}

static int complain(char *err, size_t err_size, int r, const char *path)
{
	snprintf(err, err_size, "cannot use the runtime directory %s: %s", path, strerror(-r));
	return r;
}

/* Open a directory, and check the result: only its owner may have put anything into it. */
static int open_own(const char *path, int *ret_fd)
{
	_cleanup_(closep) int fd = -1;
	struct stat st;

	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid() || st.st_mode & 0022)
		return -EPERM;
	*ret_fd = steal_fd(&fd);
	return 0;
}

/* A server serves one user namespace and one process namespace, so that it sees ids and processes
 * as the users of the mounts do. */
static int namespace_name(char *name)
{
	struct stat user, pid;

	if (stat("/proc/self/ns/user", &user) < 0 || stat("/proc/self/ns/pid", &pid) < 0)
		return -errno;
	snprintf(name, RUNDIR_NAME_SIZE, "%ju-%ju.sock", (uintmax_t)user.st_ino,
		 (uintmax_t)pid.st_ino);
	return 0;
}

int rundir_open(struct rundir *ret, char *err, size_t err_size)
{
	_cleanup_(freep) char *path = NULL;
	int r;

	*ret = (struct rundir){ .fd = -1 };
	path = directory();
	if (!path)
		return complain(err, err_size, -ENOMEM, "");
	r = open_own(path, &ret->fd);
	if (r < 0)
		return complain(err, err_size, r, path);
	r = namespace_name(ret->name);
	if (r < 0)
		return complain(err, err_size, r, "/proc/self/ns");
	if (asprintf(&ret->path, "%s/%s", path, ret->name) < 0) {
		ret->path = NULL;
		return complain(err, err_size, -ENOMEM, path);
	}
	return 0;
}

int rundir_open_path(struct rundir *ret, const char *path, char *err, size_t err_size)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	_cleanup_(freep) char *dir = slash ? strndup(path, (size_t)(name - path)) : strdup(".");

	*ret = (struct rundir){ .fd = -1 };
	ret->path = strdup(path);
	if (!dir || !ret->path)
		return complain(err, err_size, -ENOMEM, path);
	if (!*name || strlen(name) >= RUNDIR_NAME_SIZE || !strcmp(name, ".") || !strcmp(name, ".."))
		return complain(err, err_size, -EINVAL, path);
	strcpy(ret->name, name);
	ret->fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return ret->fd < 0 ? complain(err, err_size, -errno, dir) : 0;
}

void rundir_release(struct rundir *d)
{
	closep(&d->fd);
	free(d->path);
	*d = (struct rundir){ .fd = -1 };
}

bool rundir_has_other(const struct rundir *d)
{
	int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	bool is_found = false;

	for (struct dirent *e = dir ? readdir(dir) : NULL; e && !is_found; e = readdir(dir)) {
		const char *end = strrchr(e->d_name, '.');

		is_found = end && !strcmp(end, ".sock") && strcmp(e->d_name, d->name) != 0;
	}
	if (dir)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
	return is_found;
}

/* The file is never removed. Otherwise two processes could hold locks on two files of this name. */
static int open_lock(const struct rundir *d)
{
	char name[RUNDIR_NAME_SIZE + 8];
	int fd;

	snprintf(name, sizeof(name), "%s.lock", d->name);
	fd = openat(d->fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

int rundir_lock(const struct rundir *d, int wait_ms, int *ret_fd)
{
	_cleanup_(closep) int fd = open_lock(d);
	int r = fd < 0 ? fd : file_flock_within(fd, wait_ms);

	if (r == 0)
		*ret_fd = steal_fd(&fd);
	return r;
}

int rundir_lock_or_say(const struct rundir *d, int *ret_fd, char *err, size_t err_size)
{
	_cleanup_(closep) int fd = open_lock(d);
	int r = fd < 0 ? fd : file_flock_within(fd, RUNDIR_LOCK_MS);
	char by[64] = "another process";

	if (r == 0) {
		*ret_fd = steal_fd(&fd);
		return 0;
	}
	if (r == -EAGAIN) {
		const pid_t holder = file_flock_holder(fd);

		if (holder)
			snprintf(by, sizeof(by), "process %d", (int)holder);
		snprintf(err, err_size, "%s.lock has been held by %s for %d seconds: end it",
			 d->path, by, RUNDIR_LOCK_MS / 1000);
		return -EBUSY;
	}
	snprintf(err, err_size, "cannot lock %s.lock: %s", d->path, strerror(-r));
	return r;
}

int rundir_listen(const struct rundir *d, int *ret_fd)
{
	_cleanup_(closep) int probe = -1;
	struct stat st;
	int r = sock_listen(d->fd, d->name, ret_fd);

	if (r != -EADDRINUSE)
		return r;
	/* If nothing listens, the process that left the socket there is gone. */
	r = sock_connect(d->fd, d->name, PROBE_MS, &probe);
	if (r != -ECONNREFUSED || fstatat(d->fd, d->name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISSOCK(st.st_mode))
		return -EADDRINUSE;
	if (unlinkat(d->fd, d->name, 0) < 0)
		return -errno;
	return sock_listen(d->fd, d->name, ret_fd);
}

void rundir_remove(const struct rundir *d)
{
	unlinkat(d->fd, d->name, 0);
}
