// SPDX-License-Identifier: Apache-2.0
#include "veneer/commands.h"

#include "fetch.h"
#include "terminal.h"
#include "usage.h"

#include "veneer/cleanup.h"
#include "veneer/log.h"
#include "veneer/panel.h"
#include "veneer/prometheus.h"
#include "veneer/quantity.h"

#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <string.h>

enum form { FORM_TABLES, FORM_JSON, FORM_PROMETHEUS };

static int print_usage(void)
{
	printf("usage: veneer stats [--json|--prometheus] [MOUNTPOINT]\n\n"
	       "Print what the server has counted: for all of its mounts, or in full for the\n"
	       "one at MOUNTPOINT. What the figures mean is in veneer(1).\n\n"
	       "  --json        one JSON object, in place of tables\n"
	       "  --prometheus  the text format of Prometheus\n\n"
	       "Exit code: 0; 1 when there is no server, or no such mount; 2 for wrong usage.\n");
	return 0;
}

/* What the user calls a mount, in all the ways that the server may. */
struct wanted {
	char *given, *real;
};

/* Also of a mount that does not answer: its own name is not looked up then. */
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
	if (!dir || asprintf(&real, "%s/%s", strcmp(dir, "/") ? dir : "", slash ? slash + 1 : path) < 0)
		return NULL;
	return real;
}

static bool is_wanted(void *arg, const char *mountpoint)
{
	const struct wanted *w = arg;
	_cleanup_(freep) char *real = NULL, *text = NULL;

	if ((w->given && !strcmp(w->given, mountpoint)) || (w->real && !strcmp(w->real, mountpoint)))
		return true;
	real = real_path(mountpoint);
	text = real ? report_path(real) : NULL;
	return w->real && text && !strcmp(text, w->real);
}

/* The text with the mount at path alone. */
static int pick(const char *path, char **json)
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

static int print_json(const char *json)
{
	json_t *j = json_loads(json, 0, NULL);
	int r = j ? json_dumpf(j, stdout, JSON_INDENT(2)) : -1;

	json_decref(j);
	putchar('\n');
	return r < 0 ? -ENOMEM : 0;
}

static void print_quota(const struct report_mount *m)
{
	const struct quota_usage *q = &m->quota;
	const bool is_red = terminal_has_colours(stdout) && panel_is_urgent(m);

	printf("\n%sThe upper takes %s", is_red ? "\033[31m" : "", quantity_bytes(q->bytes).text);
	if (q->max_bytes)
		printf(" of %s that it may (size=)", quantity_bytes(q->max_bytes).text);
	printf(", %s", quantity_count(q->inodes).text);
	if (q->max_inodes)
		printf(" of %s", quantity_count(q->max_inodes).text);
	printf(" inodes%s.%s\n", q->max_inodes ? " (inodes=)" : "", is_red ? "\033[0m" : "");
}

static int print_tables(const struct report *r, bool is_one)
{
	int result = 0;

	if (!is_one)
		return panel_print(r, terminal_has_colours(stdout), stdout);
	for (size_t i = 0; result == 0 && i < r->nmounts; i++) {
		result = panel_print_mount(&r->mounts[i], stdout);
		if (result == 0 && r->mounts[i].has_quota)
			print_quota(&r->mounts[i]);
	}
	return result;
}

static int print_report(enum form form, const char *mountpoint)
{
	_cleanup_(report_release) struct report report = { .pid = 0 };
	_cleanup_(freep) char *json = NULL;
	char err[FETCH_ERR_SIZE] = "";
	int r = fetch_report(&json, &report, err);

	if (r < 0)
		log_error("%s", err);
	if (r == 0 && mountpoint)
		r = pick(mountpoint, &json);
	if (r < 0)
		return 1;
	if (mountpoint) {
		report_release(&report);
		r = report_parse(json, &report);
	}
	if (r == 0)
		r = form == FORM_JSON ? print_json(json) :
		    form == FORM_PROMETHEUS ? prometheus_print(&report, stdout) : print_tables(&report, mountpoint);
	if (r == 0 && (fflush(stdout) != 0 || ferror(stdout)))
		r = -EIO;
	if (r < 0)
		log_error("cannot print: %s", strerror(-r));
	return r < 0;
}

int cmd_stats(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "prometheus", no_argument, NULL, 'p' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	enum form form = FORM_TABLES;
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		const enum form asked = c == 'j' ? FORM_JSON : FORM_PROMETHEUS;

		if (c == 'h')
			return print_usage();
		if (c == '?')
			usage_wrong_option(argv, c);
		else if (form != FORM_TABLES && form != asked)
			log_error("--json and --prometheus exclude each other");
		if (c == '?' || (form != FORM_TABLES && form != asked))
			return usage_hint("stats");
		form = asked;
	}
	if (argc - optind > 1) {
		usage_unexpected(argv[optind + 1]);
		return usage_hint("stats");
	}
	return print_report(form, argv[optind]);
}
