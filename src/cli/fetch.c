// SPDX-License-Identifier: Apache-2.0
#include "fetch.h"

#include "veneer/cleanup.h"
#include "veneer/client.h"
#include "veneer/prometheus.h"

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
		snprintf(err, err_size, "no server is running in this user namespace, but there is the socket of one in another: "
			 "`podman unshare veneer stats` asks the server of rootless containers");
	else if (r == -ENOENT)
		snprintf(err, err_size, "no server is running: nobody listens at %s", at.path);
	return r ?: client_stats(fd, ret_json, err, err_size);
}

int fetch_report(char **ret_json, struct report *ret, char err[FETCH_ERR_SIZE])
{
	_cleanup_(freep) char *json = NULL;
	int r = ask(&json, err, FETCH_ERR_SIZE);

	if (r < 0)
		return r;
	r = report_parse(json, ret);
	if (r < 0) {
		snprintf(err, FETCH_ERR_SIZE, "cannot use the server's answer: %s", strerror(-r));
		return r;
	}
	*ret_json = steal_ptr(&json);
	return 0;
}

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

static int take_report(struct roster *mounts, struct report *ret)
{
	struct adding a = { ret, report_begin(ret) };

	roster_each(mounts, add_mount, &a);
	return a.result;
}

int fetch_own(struct roster *mounts, char **ret_json)
{
	_cleanup_(report_release) struct report report = { .pid = 0 };

	return take_report(mounts, &report) ?: report_json(&report, ret_json);
}

int fetch_metrics(struct roster *mounts, char **ret_text)
{
	_cleanup_(report_release) struct report report = { .pid = 0 };
	_cleanup_(freep) char *text = NULL;
	size_t len;
	int r = take_report(mounts, &report);
	FILE *f = r < 0 ? NULL : open_memstream(&text, &len);

	if (!f)
		return -ENOMEM;
	r = prometheus_print(&report, f);
	/* Both, whatever the first says: without the second there is no text. */
	if (ferror(f) | fclose(f))
		r = -ENOMEM;
	if (r == 0)
		*ret_text = steal_ptr(&text);
	return r;
}
