// SPDX-License-Identifier: Apache-2.0
/* Reads groups and capabilities of a caller from /proc, as requests do not have them. A caller that
 * is not there, because it is in another process namespace or gone, has none. */
#include "op.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/minmax.h"
#include "veneer/fuse/attach.h"
#include "veneer/sys/file.h"

#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define STATUS_SIZE 8192
#define GROUPS_MAX  128

static bool is_member(const gid_t *groups, int n, gid_t gid)
{
	for (int k = 0; k < n; k++)
		if (groups[k] == gid)
			return true;
	return false;
}

bool caller_may_setgid(void *request, gid_t gid)
{
	fuse_req_t req = request;
	struct stat st = { .st_gid = gid };
	gid_t some[GROUPS_MAX];
	_cleanup_(freep) gid_t *all = NULL;
	int n, more;

	mount_present_ids(op_mount(req), &st);
	if (fuse_req_ctx(req)->gid == st.st_gid || caller_has_cap(req, CAP_FSETID))
		return true;
	n = fuse_req_getgroups(req, GROUPS_MAX, some);
	if (n <= GROUPS_MAX)
		return is_member(some, n, st.st_gid);
	all = calloc((size_t)n, sizeof(*all));
	more = all ? fuse_req_getgroups(req, n, all) : 0;
	return is_member(all, MIN(more, n), st.st_gid);
}

static bool is_in_our_user_namespace(pid_t pid)
{
	struct stat theirs, ours;
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	return stat(path, &theirs) == 0 && stat("/proc/self/ns/user", &ours) == 0 &&
	       theirs.st_ino == ours.st_ino && theirs.st_dev == ours.st_dev;
}

bool caller_has_cap(void *request, int cap)
{
	static const char key[] = "\nCapEff:\t";
	const pid_t pid = fuse_req_ctx(request)->pid;
	char path[48], status[STATUS_SIZE];
	const char *line;

	if (pid <= 0 || !is_in_our_user_namespace(pid))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (file_read_text(path, status, sizeof(status)) <= 0)
		return false;
	line = strstr(status, key);
	return line && strtoull(line + strlen(key), NULL, 16) >> cap & 1;
}

bool caller_may_unmount(void *request)
{
	const struct fuse_ctx *who = fuse_req_ctx(request);

	/* Without it fusermount3 unmounts. */
	if (attach_may_bind())
		return who->uid == geteuid() && caller_has_cap(request, CAP_SYS_ADMIN);
	return who->uid == geteuid() && who->pid > 0 && is_in_our_user_namespace(who->pid);
}
