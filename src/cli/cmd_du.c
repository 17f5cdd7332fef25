// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

#include "mount_find.h"
#include "progress.h"
#include "usage.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/human_units.h"
#include "veneer/base/log.h"
#include "veneer/tools/du.h"
#include "veneer/tools/report.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

static int print_usage(void)
{
	printf("usage: veneer du [--json] [--quiet] UPPER|MOUNTPOINT...\n\n"
	       "Print the disk space of each layer: data of files, the block map, directories\n"
	       "and links, inodes; and the size of its data if whole files had been copied up,\n"
	       "as overlayfs does. Files with several names count once. UPPER may be in use.\n\n"
	       "  --json       one JSON array, sizes in bytes\n"
	       "  -q, --quiet  no progress\n\n"
	       "Exit code: 0; 1 when something cannot be read; 2 for wrong usage.\n");
	return 0;
}

static void print_row(const char *what, struct human_units q, const char *more)
{
	printf("  %-20s %12s%s\n", what, q.text, more);
}

static void print_one(const char *path, const struct du *u)
{
	char more[192];

	printf("%s\n", path);
	snprintf(more, sizeof(more), "  %s of it in %s", human_units_bytes(u->partial_bytes).text,
		 human_units_of(u->partial_files, "partial file").text);
	print_row("data", human_units_bytes(u->data_bytes), u->partial_files ? more : "");
	print_row("block map", human_units_bytes(u->map_bytes), "");
	print_row("directories, links", human_units_bytes(u->other_bytes), "");
	snprintf(more, sizeof(more), "  and %s", human_units_of(u->whiteouts, "whiteout").text);
	print_row("inodes", human_units_count(u->inodes), u->whiteouts ? more : "");
	snprintf(more, sizeof(more), "  %s more",
		 human_units_bytes(u->whole_bytes - u->data_bytes).text);
	print_row("data, copied whole", human_units_bytes(u->whole_bytes),
		  u->whole_bytes > u->data_bytes ? more : "");
}

static json_t *one_json(const char *path, const struct du *u)
{
	_cleanup_(freep) char *text = report_path(path);

	return text ? json_pack("{ss, sI, sI, sI, sI, sI, sI, sI, sI}", "path", text, "data_bytes",
				(json_int_t)u->data_bytes, "map_bytes", (json_int_t)u->map_bytes,
				"other_bytes", (json_int_t)u->other_bytes, "inodes",
				(json_int_t)u->inodes, "whiteouts", (json_int_t)u->whiteouts,
				"partial_files", (json_int_t)u->partial_files, "partial_bytes",
				(json_int_t)u->partial_bytes, "whole_bytes",
				(json_int_t)u->whole_bytes)
		    : NULL;
}

static int print_all(char **paths, bool is_json, bool is_quiet)
{
	struct progress shown;
	const struct step step = progress_walk(&shown);
	json_t *list = json_array();
	int code = 0, r = list ? 0 : -ENOMEM;

	for (; r == 0 && *paths; paths++) {
		_cleanup_(freep) char *upper = NULL;
		struct du u;
		int failed;

		progress_start(&shown, is_quiet);
		failed = mount_find_upper(*paths, "veneer du", &upper);
		if (failed >= 0)
			failed = du_layer(upper ? upper : *paths, &step, &u);
		progress_clear(&shown);
		if (failed < 0)
			code = 1;
		else if (is_json)
			r = json_array_append_new(list, one_json(*paths, &u)) < 0 ? -ENOMEM : 0;
		else
			print_one(*paths, &u);
	}
	if (r == 0 && is_json) {
		r = json_dumpf(list, stdout, JSON_INDENT(2)) < 0 ? -EIO : 0;
		putchar('\n');
	}
	if (r == 0 && (fflush(stdout) != 0 || ferror(stdout)))
		r = -EIO;
	if (r < 0)
		log_error("cannot print: %s", strerror(-r));
	json_decref(list);
	return r < 0 ? 1 : code;
}

int cmd_du(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	bool is_json = false, is_quiet = false;
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":hq", options, NULL)) != -1) {
		if (c == 'h')
			return print_usage();
		if (c == '?') {
			usage_wrong_option(argv, c);
			return usage_hint("du");
		}
		is_json |= c == 'j';
		is_quiet |= c == 'q';
	}
	if (optind < argc)
		return print_all(argv + optind, is_json, is_quiet);
	usage_missing("UPPER");
	return usage_hint("du");
}
