// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

#include "stats_fetch.h"
#include "terminal.h"
#include "usage.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/human_units.h"
#include "veneer/base/log.h"
#include "veneer/tools/prometheus.h"
#include "veneer/tools/stats_text.h"

#include <getopt.h>
#include <jansson.h>
#include <string.h>

enum form { FORM_TABLES, FORM_JSON, FORM_PROMETHEUS };

static int print_usage(void)
{
	printf("usage: veneer stats [--json|--prometheus] [MOUNTPOINT]\n\n"
	       "Print the counters of the server: for all of its mounts, or in full for the one\n"
	       "at MOUNTPOINT. veneer(1) explains the figures.\n\n"
	       "  --json        one JSON object instead of tables\n"
	       "  --prometheus  the text format of Prometheus\n\n"
	       "Exit code: 0; 1 when there is no server, or no such mount; 2 for wrong usage.\n");
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
	const bool is_red = terminal_has_colours(stdout) && stats_text_is_urgent(m);

	printf("\n%sThe upper takes %s", is_red ? "\033[31m" : "",
	       human_units_bytes(q->bytes).text);
	if (q->max_bytes)
		printf(" of %s that it may (size=)", human_units_bytes(q->max_bytes).text);
	printf(", %s", human_units_count(q->inodes).text);
	if (q->max_inodes)
		printf(" of %s", human_units_count(q->max_inodes).text);
	printf(" inodes%s.%s\n", q->max_inodes ? " (inodes=)" : "", is_red ? "\033[0m" : "");
}

static int print_tables(const struct report *r, bool is_one)
{
	int result = 0;

	if (!is_one)
		return stats_text_print(r, terminal_has_colours(stdout), stdout);
	for (size_t i = 0; result == 0 && i < r->nmounts; i++) {
		result = stats_text_print_mount(&r->mounts[i], stdout);
		if (result == 0 && r->mounts[i].has_quota)
			print_quota(&r->mounts[i]);
	}
	return result;
}

static int print_report(enum form form, const char *mountpoint)
{
	_cleanup_(report_release) struct report report = { .pid = 0 };
	_cleanup_(freep) char *json = NULL;
	char err[STATS_FETCH_ERR_SIZE] = "";
	int r = stats_fetch_report(&json, &report, err);

	if (r < 0)
		log_error("%s", err);
	if (r == 0 && mountpoint)
		r = stats_fetch_pick(mountpoint, &json);
	if (r < 0)
		return 1;
	if (mountpoint) {
		report_release(&report);
		r = report_parse(json, &report);
	}
	if (r == 0)
		r = form == FORM_JSON	      ? print_json(json)
		    : form == FORM_PROMETHEUS ? prometheus_print(&report, stdout)
					      : print_tables(&report, mountpoint);
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
