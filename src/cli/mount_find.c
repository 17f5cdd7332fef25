// SPDX-License-Identifier: Apache-2.0
#include "mount_find.h"

#include "stats_fetch.h"

#include "veneer/base/buf.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"

#include <limits.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>

char *mount_find_path(const char *given)
{
	_cleanup_(freep) char *copy = strdup(given), *dir = NULL;
	size_t n = copy ? strlen(copy) : 0;
	char *slash, *full;

	while (n > 1 && copy[n - 1] == '/')
		copy[--n] = '\0';
	slash = copy ? strrchr(copy, '/') : NULL;
	if (!copy || !strcmp(copy, "/"))
		return copy ? strdup(copy) : NULL;
	if (!strcmp(slash ? slash + 1 : copy, ".") || !strcmp(slash ? slash + 1 : copy, ".."))
		return realpath(copy, NULL);
	if (slash)
		*slash = '\0';
	dir = realpath(!slash ? "." : *copy ? copy : "/", NULL);
	if (!dir ||
	    asprintf(&full, "%s/%s", strcmp(dir, "/") ? dir : "", slash ? slash + 1 : copy) < 0)
		return NULL;
	return full;
}

bool mount_find_is_ours(const char *path)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	bool is_found = false;
	struct mntent *m;

	while (f && (m = getmntent(f)))
		if (!strcmp(m->mnt_dir, path))
			is_found = !strcmp(m->mnt_type, "fuse.fuse-overlayfs");
	if (f)
		endmntent(f);
	return is_found;
}

/* Get the report of the mount at this path alone. */
static int look(const char *path, struct report *ret, char *err)
{
	_cleanup_(report_release) struct report all = { .pid = 0 };
	_cleanup_(freep) char *json = NULL;
	int r = stats_fetch_report(&json, &all, err);

	r = r ?: stats_fetch_pick(path, &json);
	return r ?: report_parse(json, ret);
}

int mount_find_look(const char *given, const char *command, struct report *ret)
{
	_cleanup_(freep) char *path = mount_find_path(given);
	char err[STATS_FETCH_ERR_SIZE] = "";
	int r;

	if (!path || !mount_find_is_ours(path))
		return 0;
	r = look(path, ret, err);
	if (r < 0)
		log_error("%s is a mount point, and no server can name its layers (%s): give "
			  "%s its upper directory",
			  given, *err ? err : "it serves no such mount", command);
	return r < 0 ? r : 1;
}

int mount_find_upper(const char *given, const char *command, char **ret)
{
	_cleanup_(report_release) struct report one = { .pid = 0 };
	int r = mount_find_look(given, command, &one);

	if (r <= 0)
		return r;
	if (!one.mounts[0].upper) {
		log_error("%s is mounted read-only and has no upper directory, which %s works on",
			  given, command);
		return -EROFS;
	}
	*ret = strdup(one.mounts[0].upper);
	return *ret ? 1 : -ENOMEM;
}

/* Put a backslash before each special character of the grammar. */
static int put_path(struct buf *b, const char *path)
{
	int r = 0;

	for (; *path && r == 0; path++) {
		if (strchr("\\:,\"", *path))
			r = buf_put(b, "\\", 1);
		r = r ?: buf_put(b, path, 1);
	}
	return r;
}

char *mount_find_path_option(const char *name, const char *path)
{
	_cleanup_(buf_release) struct buf b = { 0 };
	int r = buf_put(&b, name, strlen(name)) ?: put_path(&b, path) ?: buf_put(&b, "", 1);

	return r < 0 ? NULL : (char *)steal_ptr(&b.data);
}

char *mount_find_options(const struct report_mount *m, bool with_upper)
{
	_cleanup_(buf_release) struct buf b = { 0 };
	int r = buf_put(&b, "lowerdir=", 9);

	for (size_t k = 0; r == 0 && m->lowers && k < m->nlower; k++) {
		r = k ? buf_put(&b, ":", 1) : 0;
		r = r ?: put_path(&b, m->lowers[k]);
	}
	if (r == 0 && with_upper)
		r = buf_put(&b, ",upperdir=", 10) ?: put_path(&b, m->upper);
	r = r ?: buf_put(&b, "", 1);
	return r < 0 ? NULL : (char *)steal_ptr(&b.data);
}
