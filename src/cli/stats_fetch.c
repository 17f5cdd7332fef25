// SPDX-License-Identifier: Apache-2.0
#include "stats_fetch.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/server/client.h"
#include "veneer/tools/container_name.h"
#include "veneer/tools/prometheus.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static int ask(char **ret_json, char *err, size_t err_size)
{
	_cleanup_(rundir_release) struct rundir at;
	_cleanup_(closep) int fd = -1;
	int r = rundir_open(&at, err, err_size);

	if (r < 0)
		return r;
	r = client_connect(&at, false, &fd, err, err_size);
	if (r == -ENOENT && rundir_has_other(&at))
		snprintf(err, err_size,
			 "no server is running in this user namespace, but there is the socket of "
			 "one in another: "
			 "`podman unshare veneer stats` asks the server of rootless containers");
	else if (r == -ENOENT)
		snprintf(err, err_size, "no server is running: nobody listens at %s", at.path);
	return r ?: client_stats(fd, ret_json, err, err_size);
}

/* Look the container names up here, as the server cannot see the paths. */
static int name_containers(char **json)
{
	json_t *j = json_loads(*json, 0, NULL), *mounts = json_object_get(j, "mounts");
	int r = 0;

	for (size_t i = 0; r == 0 && i < json_array_size(mounts); i++) {
		json_t *m = json_array_get(mounts, i);
		const char *point = json_string_value(json_object_get(m, "mountpoint"));
		_cleanup_(freep) char *name = NULL;

		r = point ? container_name(point, &name) : 0;
		if (r == 0 && name && json_object_set_new(m, "container", json_string(name)) < 0)
			r = -ENOMEM;
	}
	if (j && r == 0) {
		char *text = json_dumps(j, JSON_COMPACT);

		free(*json);
		*json = text;
		r = text ? 0 : -ENOMEM;
	}
	json_decref(j);
	return r;
}

int stats_fetch_report(char **ret_json, struct report *ret, char err[STATS_FETCH_ERR_SIZE])
{
	_cleanup_(freep) char *json = NULL;
	int r = ask(&json, err, STATS_FETCH_ERR_SIZE);

	if (r < 0)
		return r;
	r = name_containers(&json);
	if (r == 0)
		r = report_parse(json, ret);
	if (r < 0) {
		snprintf(err, STATS_FETCH_ERR_SIZE, "cannot use the server's answer: %s",
			 strerror(-r));
		return r;
	}
	*ret_json = steal_ptr(&json);
	return 0;
}

/* ---- one mount of the report ---- */

/* The user's and the server's path of a mount. */
struct wanted {
	char *given, *real;
};

/* The real path, also of a mount that does not answer: its last component is then not looked up. */
static char *real_path(const char *path)
{
	_cleanup_(freep) char *copy = NULL;
	_cleanup_(freep) char *dir = NULL;
	char *real = realpath(path, NULL), *slash;

	if (real)
		return real;
	copy = strdup(path);
	slash = copy ? strrchr(copy, '/') : NULL;
	if (slash)
		*slash = '\0';
	dir = realpath(!slash ? "." : *copy ? copy : "/", NULL);
	if (!dir ||
	    asprintf(&real, "%s/%s", strcmp(dir, "/") ? dir : "", slash ? slash + 1 : path) < 0)
		return NULL;
	return real;
}

static bool is_wanted(void *arg, const char *mountpoint)
{
	const struct wanted *w = arg;
	_cleanup_(freep) char *real = NULL, *text = NULL;

	if ((w->given && !strcmp(w->given, mountpoint)) ||
	    (w->real && !strcmp(w->real, mountpoint)))
		return true;
	real = real_path(mountpoint);
	text = real ? report_path(real) : NULL;
	return w->real && text && !strcmp(text, w->real);
}

int stats_fetch_pick(const char *path, char **json)
{
	_cleanup_(freep) char *given = strdup(path), *real = real_path(path);
	_cleanup_(freep) char *given_text = NULL, *real_text = NULL;
	struct wanted w;
	char *picked;
	int r;

	for (size_t n = given ? strlen(given) : 0; n > 1 && given[n - 1] == '/'; n--)
		given[n - 1] = '\0';
	given_text = given ? report_path(given) : NULL;
	real_text = real ? report_path(real) : NULL;
	w = (struct wanted){ given_text, real_text };
	r = report_only(*json, is_wanted, &w, &picked);
	if (r == -ENOENT)
		log_error("%s is not a mount of the server", path);
	else if (r < 0)
		log_error("cannot use the server's answer: %s", strerror(-r));
	if (r < 0)
		return r;
	free(*json);
	*json = picked;
	return 0;
}

/* ---- the server's side ---- */

struct adding {
	struct report *report;
	int result;
};

static void add_mount(struct mount *m, const struct served_place *at, void *arg)
{
	struct adding *a = arg;

	(void)at;
	if (a->result == 0)
		a->result = report_add(a->report, m);
}

static int take_report(struct mount_table *mounts, struct report *ret)
{
	struct adding a = { ret, report_begin(ret) };

	mount_table_each(mounts, add_mount, &a);
	return a.result;
}

int stats_fetch_own(struct mount_table *mounts, char **ret_json)
{
	_cleanup_(report_release) struct report report = { .pid = 0 };

	return take_report(mounts, &report) ?: report_json(&report, ret_json);
}

int stats_fetch_metrics(struct mount_table *mounts, char **ret_text)
{
	_cleanup_(report_release) struct report report = { .pid = 0 };
	_cleanup_(freep) char *text = NULL;
	size_t len;
	int r = take_report(mounts, &report);
	FILE *f = r < 0 ? NULL : open_memstream(&text, &len);

	if (!f)
		return -ENOMEM;
	r = prometheus_print(&report, f);
	/* Call both in any case: only fclose makes the text. */
	if (ferror(f) | fclose(f))
		r = -ENOMEM;
	if (r == 0)
		*ret_text = steal_ptr(&text);
	return r;
}
