// SPDX-License-Identifier: Apache-2.0
#include "mountinfo-internal.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void find_place(int fd, struct mountinfo_place *p)
{
	char link[sizeof("/proc/self/fd/-2147483648")], path[PATH_MAX];
	struct statx st;
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path));
	if (len <= 0 || len >= (ssize_t)sizeof(path) ||
	    statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) < 0 || !(st.stx_mask & STATX_MNT_ID))
		return;
	path[len] = '\0';
	p->path = strdup(strcmp(path, "/") ? path : "");
	p->mount = p->path ? st.stx_mnt_id : 0;
}

/* mountinfo writes space, tab, newline and backslash as three octal digits. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && strspn(s + 1, "01234567") >= 3 && s[1] <= '3') {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

static bool has_word(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
		if (strcspn(p, ",") == len && !strncmp(p, word, len))
			return true;
	return false;
}

/* "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue" */
bool mountinfo_read_line(char *line, struct mountinfo_place *places, size_t n)
{
	char *id = strsep(&line, " "), *parent = strsep(&line, " "), *point, *options;
	unsigned long long own, above;

	strsep(&line, " ");
	strsep(&line, " ");
	point = strsep(&line, " ");
	options = strsep(&line, " ");
	if (!options)
		return false;
	own = strtoull(id, NULL, 10);
	above = strtoull(parent, NULL, 10);
	unescape(point);
	for (size_t i = 0; i < n; i++) {
		struct mountinfo_place *p = &places[i];
		size_t len = p->mount ? strlen(p->path) : 0;

		if (!p->mount)
			continue;
		if (p->mount == own) {
			p->is_known = true;
			p->is_special |= has_word(options, "idmapped");
		}
		/* A mount nested in such a mount needs no test of its own. */
		if (p->mount == above && own != above && !strncmp(point, p->path, len) &&
		    point[len] == '/')
			p->is_special = true;
	}
	return true;
}

/* ret_*: within the line. False: the line is malformed. */
static bool split_line(char *line, uint64_t *ret_id, char **ret_dev, char **ret_root,
		       char **ret_point)
{
	char *id = strsep(&line, " ");

	strsep(&line, " ");
	*ret_dev = strsep(&line, " ");
	*ret_root = strsep(&line, " ");
	*ret_point = strsep(&line, " ");
	if (!*ret_point)
		return false;
	*ret_id = strtoull(id, NULL, 10);
	unescape(*ret_root);
	unescape(*ret_point);
	return true;
}

int mountinfo_find(struct mountinfo_mount *mounts, size_t n)
{
	_cleanup_(freep) char *line = NULL;
	char *dev, *root, *point;
	uint64_t id;
	size_t size = 0;
	FILE *f = fopen("/proc/self/mountinfo", "re");
	int r = 0;

	if (!f)
		return -errno;
	while (r == 0 && getline(&line, &size, f) > 0) {
		if (!split_line(line, &id, &dev, &root, &point))
			continue;
		for (size_t i = 0; r == 0 && i < n; i++) {
			struct mountinfo_mount *m = &mounts[i];

			if (m->id != id || m->root ||
			    sscanf(dev, "%u:%u", &m->dev_major, &m->dev_minor) != 2)
				continue;
			m->root = strdup(strcmp(root, "/") ? root : "");
			m->point = strdup(strcmp(point, "/") ? point : "");
			r = m->root && m->point ? 0 : -ENOMEM;
		}
	}
	if (ferror(f))
		r = -EIO;
	fclose(f);
	return r;
}

/* A process with another root has other names for paths. */
static bool has_whole_view(pid_t pid)
{
	char link[48], root[2];

	snprintf(link, sizeof(link), "/proc/%d/root", (int)pid);
	return readlink(link, root, sizeof(root)) == 1 && root[0] == '/';
}

int mountinfo_plain(pid_t pid, const int *fds, size_t n, bool *ret)
{
	_cleanup_(freep) struct mountinfo_place *places = calloc(n ? n : 1, sizeof(*places));
	_cleanup_(freep) char *line = NULL;
	char path[48];
	size_t size = 0;
	bool is_whole;
	ssize_t len;
	FILE *f;

	memset(ret, 0, n * sizeof(*ret));
	if (!places)
		return -ENOMEM;
	if (pid && !has_whole_view(pid))
		return -EXDEV;
	snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)(pid ? pid : getpid()));
	f = fopen(path, "re");
	if (!f)
		return -errno;
	for (size_t i = 0; i < n; i++)
		find_place(fds[i], &places[i]);
	errno = 0;
	while ((len = getline(&line, &size, f)) > 0) {
		if (line[len - 1] == '\n')
			line[len - 1] = '\0';
		if (!mountinfo_read_line(line, places, n))
			break;
	}
	is_whole = len < 0 && feof(f) && !ferror(f);
	fclose(f);
	for (size_t i = 0; i < n; i++) {
		ret[i] = is_whole && places[i].is_known && !places[i].is_special;
		free(places[i].path);
	}
	return is_whole ? 0 : -EIO;
}

ino_t mountinfo_namespace(pid_t pid)
{
	char path[48];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
	return stat(path, &st) < 0 ? 0 : st.st_ino;
}

bool mountinfo_line_may_be(const char *line, unsigned dev_major, unsigned dev_minor)
{
	unsigned line_major, line_minor;

	return sscanf(line, "%*u %*u %u:%u", &line_major, &line_minor) != 2 ||
	       (line_major == dev_major && line_minor == dev_minor);
}

/* 1: not mounted; 0: mounted, or unknown; -1: the process has ended. */
static int process_lacks(pid_t pid, ino_t mount_ns, unsigned dev_major, unsigned dev_minor)
{
	_cleanup_(freep) char *line = NULL;
	char path[48];
	size_t size = 0, n_lines = 0;
	int lacks = 1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return -1;
	/* Any mount of it counts, such as a bind mount. */
	while (getline(&line, &size, f) > 0) {
		n_lines++;
		if (mountinfo_line_may_be(line, dev_major, dev_minor))
			lacks = 0;
	}
	if (ferror(f))
		lacks = 0;
	fclose(f);
	/* The process has ended meanwhile and shows nothing, or its pid belongs to another one
	 * now. */
	return n_lines == 0 || mountinfo_namespace(pid) != mount_ns ? -1 : lacks;
}

bool mountinfo_lacks(ino_t mount_ns, unsigned dev_major, unsigned dev_minor)
{
	struct dirent *de;
	int lacks = -1;
	DIR *d;

	if (!mount_ns || (!dev_major && !dev_minor))
		return false;
	d = opendir("/proc");
	/* Ask all processes: one with another root sees less. */
	while (d && lacks != 0 && (de = readdir(d))) {
		pid_t pid = atoi(de->d_name);
		int r = pid > 0 && mountinfo_namespace(pid) == mount_ns
				? process_lacks(pid, mount_ns, dev_major, dev_minor)
				: -1;

		if (r >= 0)
			lacks = r;
	}
	if (d)
		closedir(d);
	return lacks == 1;
}

/* A search, and its callback. */
struct wanted {
	unsigned dev_major, dev_minor;
	uint64_t mount; /* mount id; 0: any mount of the file system */
	void (*seen)(const char *root, void *arg);
	void *arg;
};

static bool read_root(const char *line, const struct wanted *w)
{
	_cleanup_(freep) char *root = NULL;
	unsigned dev_major, dev_minor;
	unsigned long long mount;

	if (sscanf(line, "%llu %*u %u:%u %ms", &mount, &dev_major, &dev_minor, &root) != 4 ||
	    dev_major != w->dev_major || dev_minor != w->dev_minor ||
	    (w->mount && w->mount != mount))
		return false;
	w->seen(root, w->arg);
	return w->mount;
}

/* 1: the one wanted mount was found. */
static int roots_of(pid_t pid, const struct wanted *w)
{
	_cleanup_(freep) char *line = NULL;
	size_t size = 0, n_lines = 0;
	bool is_over = false;
	char path[48];
	FILE *f;
	int r;

	snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return -ESRCH;
	while (!is_over && getline(&line, &size, f) > 0) {
		n_lines++;
		is_over = read_root(line, w);
	}
	r = ferror(f) ? -EIO : n_lines ? is_over : -ESRCH;
	fclose(f);
	return r;
}

static bool is_in(pid_t pid, ino_t mount_ns)
{
	return pid > 0 && mountinfo_namespace(pid) == mount_ns && has_whole_view(pid);
}

/* Reads each namespace once, by a process that sees all of it; a process without such a view is
 * read itself. */
static int roots_of_all(ino_t mount_ns, pid_t *ret, const struct wanted *w)
{
	_cleanup_(freep) ino_t *known = NULL;
	size_t n = 0, k;
	struct dirent *de;
	DIR *d = opendir("/proc");
	int r = mount_ns ? -ESRCH : 0, one;

	if (!d)
		return -errno;
	while (r != -EIO && r != 1 && (de = readdir(d))) {
		pid_t pid = atoi(de->d_name);
		ino_t ns = pid > 0 ? mountinfo_namespace(pid) : 0;

		if (pid <= 0 || (mount_ns && !is_in(pid, mount_ns)))
			continue;
		for (k = 0; k < n && known[k] != ns; k++)
			;
		if (ns && k < n)
			continue;
		one = roots_of(pid, w);
		if (one == -EIO || one == 1)
			r = one;
		if (mount_ns) {
			*ret = pid;
			r = r == -EIO ? r : 0;
			break;
		}
		if (ns && has_whole_view(pid) && array_grow(&known, n) == 0)
			known[n++] = ns;
	}
	closedir(d);
	return r;
}

int mountinfo_roots(ino_t mount_ns, pid_t *pid, unsigned dev_major, unsigned dev_minor,
		    void (*seen)(const char *root, void *arg), void *arg)
{
	const struct wanted w = {
		.dev_major = dev_major, .dev_minor = dev_minor, .seen = seen, .arg = arg
	};

	if (mount_ns && is_in(*pid, mount_ns) && roots_of(*pid, &w) == 0)
		return 0;
	return roots_of_all(mount_ns, pid, &w);
}

static void note_root(const char *root, void *arg)
{
	char **ret = arg;

	if (!*ret)
		*ret = strdup(root);
}

/* A mount has one id in all namespaces while it exists. */
int mountinfo_root_of(pid_t pid, uint64_t mount, unsigned dev_major, unsigned dev_minor, char **ret)
{
	const struct wanted w = { .dev_major = dev_major,
				  .dev_minor = dev_minor,
				  .mount = mount,
				  .seen = note_root,
				  .arg = ret };

	*ret = NULL;
	if (roots_of(pid, &w) != 1)
		roots_of_all(0, NULL, &w);
	return *ret ? 0 : -ENOENT;
}
