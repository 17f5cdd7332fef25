// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/cgroup.h"

#include "veneer/base/cleanup.h"

#include <fcntl.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define VALUE_MAX 4096

static void endmntentp(FILE **f)
{
	if (*f)
		endmntent(*f);
}

static void fclosep(FILE **f)
{
	if (*f)
		fclose(*f);
}

bool cgroup_target(const char *path, const char *wish, char ret[PATH_MAX])
{
	const char *slash = strrchr(path, '/');

	/* For a group outside of this namespace the kernel prints "/.." and its name there. */
	if (!slash || !strcmp(path, "/") || !strncmp(path, "/..", 3))
		return false;
	if (wish)
		return wish[0] == '/' && snprintf(ret, PATH_MAX, "%s", wish) < PATH_MAX;
	return snprintf(ret, PATH_MAX, "%.*s/%s", (int)(slash - path), path, CGROUP_OWN) < PATH_MAX;
}

/* Find the mount of the hierarchy of these controllers ("": v2). */
static bool find_mount(const char *controllers, char ret[PATH_MAX])
{
	_cleanup_(endmntentp) FILE *f = setmntent("/proc/self/mounts", "re");
	char line[VALUE_MAX], first[64];
	struct mntent m;

	snprintf(first, sizeof(first), "%.*s", (int)strcspn(controllers, ","), controllers);
	while (f && getmntent_r(f, &m, line, sizeof(line))) {
		const bool is_it = *first ? !strcmp(m.mnt_type, "cgroup") && hasmntopt(&m, first)
					  : !strcmp(m.mnt_type, "cgroup2");

		if (is_it)
			return snprintf(ret, PATH_MAX, "%s", m.mnt_dir) < PATH_MAX;
	}
	return false;
}

static int write_file(int dir, const char *name, const char *value, size_t len)
{
	_cleanup_(closep) int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, value, len) < 0 ? -errno : 0;
}

/* A new v1 group has no processors or memory of its own until it gets some. */
static void inherit(int parent, int group, const char *name)
{
	_cleanup_(closep) int own = openat(group, name, O_RDONLY | O_CLOEXEC);
	_cleanup_(closep) int above = openat(parent, name, O_RDONLY | O_CLOEXEC);
	char value[VALUE_MAX];
	ssize_t n = own < 0 ? -1 : read(own, value, sizeof(value));

	/* only a line end: unset */
	if (n < 0 || n > 1 || above < 0)
		return;
	n = read(above, value, sizeof(value));
	if (n > 0)
		write_file(group, name, value, (size_t)n);
}

/* Open the group at the path below the mount, and make missing groups. Descriptor or -errno. */
static int open_group(const char *mount, char *path)
{
	_cleanup_(closep) int dir = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char *name, *rest = path;

	if (dir < 0)
		return -errno;
	while ((name = strsep(&rest, "/"))) {
		_cleanup_(closep) int above = -1;

		if (!*name || !strcmp(name, "."))
			continue;
		if (!strcmp(name, ".."))
			return -EINVAL;
		if (mkdirat(dir, name, 0755) < 0 && errno != EEXIST && errno != EROFS &&
		    errno != EACCES)
			return -errno;
		above = steal_fd(&dir);
		dir = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (dir < 0)
			return -errno;
		inherit(above, dir, "cpuset.cpus");
		inherit(above, dir, "cpuset.mems");
	}
	return steal_fd(&dir);
}

/* Leave one hierarchy, by its line "ID:CONTROLLERS:PATH". 0: left, or there is nothing to leave. */
static int leave_one(char *line, const char *wish)
{
	char target[PATH_MAX], mount[PATH_MAX];
	_cleanup_(closep) int group = -1;
	char *controllers, *path = line;

	strsep(&path, ":");
	controllers = strsep(&path, ":");
	if (!path || !cgroup_target(path, wish, target))
		return 0;
	if (!find_mount(controllers, mount))
		return -ENOENT;
	group = open_group(mount, target);
	return group < 0 ? group : write_file(group, "cgroup.procs", "0", 1);
}

unsigned cgroup_leave(const char *wish, char *why, size_t why_size)
{
	_cleanup_(fclosep) FILE *f = fopen("/proc/self/cgroup", "re");
	char line[PATH_MAX + 256], copy[sizeof(line)];
	unsigned n_stays = 0;

	while (f && fgets(line, sizeof(line), f)) {
		int r;

		line[strcspn(line, "\n")] = '\0';
		strcpy(copy, line);
		r = leave_one(copy, wish);
		if (r < 0 && n_stays++ == 0)
			snprintf(why, why_size, "%.128s: %s", line, strerror(-r));
	}
	return n_stays;
}
