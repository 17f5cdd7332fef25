// SPDX-License-Identifier: Apache-2.0
#include "check_orphans.h"

#include "check_report.h"

#include "veneer/base/cleanup.h"
#include "veneer/data/publish.h"
#include "veneer/layer/origin_xattr.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/layer/source.h"
#include "veneer/mount/workdir.h"
#include "veneer/sys/rmtree.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

struct places {
	const struct check_report_place *at;
	bool repairs;
};

/* name "": the directory itself. */
static char *join(char ret[PATH_MAX], const char *dir, const char *name)
{
	snprintf(ret, PATH_MAX, "%s%s%s", dir, *name ? "/" : "", name);
	return ret;
}

static void say(struct places *p, const char *code, const char *dir, const char *name,
		const char *what)
{
	char path[PATH_MAX];

	check_report_say(p->at, code, join(path, dir, name), "%s", what);
}

/* Report the repair if the entry is gone. */
static void note_repair(struct places *p, const char *code, int dirfd, const char *entry,
			const char *dir, const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	if (fstatat(dirfd, entry, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
		check_report_repaired(p->at, code, join(path, dir, name), "removed");
}

/* Call fn for each entry of the directory. 0, also if it does not exist. */
static int each_entry(int dirfd, const char *name,
		      void (*fn)(struct places *p, int fd, const char *name), struct places *p)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r;
	struct dirent *de;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d) {
		r = -errno;
		closep(&fd);
		return r == -ENOENT || r == -ENOTDIR || r == -ELOOP ? 0 : r;
	}
	while ((errno = 0, de = readdir(d)))
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			fn(p, fd, de->d_name);
	r = -errno;
	closedir(d);
	return r;
}

/* ---- copies of hard-linked files ---- */

/* Does the entry record its origin? Then the next mount can give it all of its names. */
static bool says_origin(int fd, const char *name, const struct stat *st)
{
	char origin[PATH_MAX];
	struct partial_xattr m;
	int r = S_ISREG(st->st_mode) ? source_read_mark(fd, name, &m, NULL) : 0;

	if (r == 1)
		return *m.path && !m.is_copy;
	return r == 0 && origin_xattr_read(fd, name, false, origin) == 1;
}

static void check_pending(struct places *p, int fd, const char *name)
{
	struct stat st;

	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	if (!S_ISDIR(st.st_mode) && st.st_nlink > 1 && says_origin(fd, name, &st)) {
		say(p, "copy-unfinished", PUBLISH_PENDING_NAME, name,
		    "a copy that has not got all of its names; the next mount gives them to it");
		return;
	}
	say(p, "copy-left", PUBLISH_PENDING_NAME, name,
	    st.st_nlink > 1 ? "a copy without a record of its origin"
			    : "a copy that got no name before its mount ended");
	if (!p->repairs)
		return;
	if (S_ISDIR(st.st_mode))
		rmtree(fd, name);
	else
		unlinkat(fd, name, 0);
	note_repair(p, "copy-left", fd, name, PUBLISH_PENDING_NAME, name);
}

/* Remove the empty directory, as a mount does when it ends. */
static void remove_empty(struct places *p, int rootfd)
{
	if (p->repairs && p->at->s->found == p->at->s->repaired)
		unlinkat(rootfd, PUBLISH_PENDING_NAME, AT_REMOVEDIR);
}

/* ---- directories of tools ---- */

static void check_tool(struct places *p, int rootfd, const char *name)
{
	struct stat st;

	if (fstatat(rootfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	say(p, "tool-left", name, "", "left by a tool that was stopped");
	if (!p->repairs)
		return;
	if (S_ISDIR(st.st_mode))
		rmtree(rootfd, name);
	else
		unlinkat(rootfd, name, 0);
	note_repair(p, "tool-left", rootfd, name, name, "");
}

int check_orphans_in_layer(int rootfd, bool repairs, const struct check_report_place *at)
{
	struct check_result s = { .files = 0 };
	struct check_report_place own = { .hooks = at->hooks, .layer = at->layer, .s = &s };
	struct places p = { .at = &own, .repairs = repairs };
	int r = each_entry(rootfd, PUBLISH_PENDING_NAME, check_pending, &p);

	remove_empty(&p, rootfd);
	check_tool(&p, rootfd, ".wh..wh.check");
	check_tool(&p, rootfd, ".wh..wh.flatten");
	at->s->found += s.found;
	at->s->repaired += s.repaired;
	return r;
}

/* ---- the work directory ---- */

static void check_work_entry(struct places *p, int fd, const char *name)
{
	_cleanup_(closep) int own = -1;

	if (strncmp(name, WORKDIR_PREFIX, strlen(WORKDIR_PREFIX)) != 0)
		return;
	own = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	/* The directory belongs to a living mount. */
	if (own >= 0 && flock(own, LOCK_EX | LOCK_NB) < 0)
		return;
	say(p, "mount-left", "work", name, "left by a mount that was killed");
	if (!p->repairs)
		return;
	if (own >= 0)
		rmtree(fd, name);
	else
		unlinkat(fd, name, 0);
	note_repair(p, "mount-left", fd, name, "work", name);
}

int check_orphans_work(const char *path, bool repairs, const struct check_hooks *hooks,
		       struct check_result *ret)
{
	_cleanup_(closep) int top = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	const struct check_report_place at = { .hooks = hooks, .layer = path, .s = ret };
	struct places p = { .at = &at, .repairs = repairs };
	_cleanup_(closep) int work = -1;
	char err[PATH_MAX * 2];
	int r;

	if (top < 0)
		return -errno;
	r = each_entry(top, "work", check_work_entry, &p);
	work = openat(top, "work", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (work < 0)
		return r;
	r = r ?: workdir_check_volatile(work, path, false, err, sizeof(err));
	if (r == -EINVAL)
		say(&p, "volatile", "work", "", err);
	return r == -EINVAL ? 0 : r;
}
