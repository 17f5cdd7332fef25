// SPDX-License-Identifier: Apache-2.0
#include "veneer/mountinfo.h"

#include "veneer/cleanup.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>

ino_t mountinfo_namespace(pid_t pid)
{
	char path[48];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
	return stat(path, &st) < 0 ? 0 : st.st_ino;
}

/* 1: not there; 0: there, or not to be told; -1: the process is gone. */
static int process_lacks(pid_t pid, ino_t mount_ns, unsigned dev_major, unsigned dev_minor)
{
	_cleanup_(freep) char *line = NULL;
	unsigned line_major, line_minor;
	char path[48];
	size_t size = 0, n_lines = 0;
	int lacks = 1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return -1;
	/* Another mount of it, a bind mount for one, counts too. */
	while (getline(&line, &size, f) > 0) {
		n_lines++;
		if (sscanf(line, "%*u %*u %u:%u", &line_major, &line_minor) != 2 ||
		    (line_major == dev_major && line_minor == dev_minor))
			lacks = 0;
	}
	if (ferror(f))
		lacks = 0;
	fclose(f);
	/* One that ended meanwhile shows nothing, or belongs to another process by now. */
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
	/* All of them are asked: one that has another root sees less. */
	while (d && lacks != 0 && (de = readdir(d))) {
		pid_t pid = atoi(de->d_name);
		int r = pid > 0 && mountinfo_namespace(pid) == mount_ns ?
				process_lacks(pid, mount_ns, dev_major, dev_minor) : -1;

		if (r >= 0)
			lacks = r;
	}
	if (d)
		closedir(d);
	return lacks == 1;
}
