// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

#include "clone_state.h"
#include "mount_find.h"
#include "usage.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/human_units.h"
#include "veneer/base/log.h"
#include "veneer/tools/du.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int print_usage(void)
{
	printf("usage: veneer clones [--json]\n\n"
	       "List this user's clones (veneer clone): the state and the mount point of each,\n"
	       "the disk space of its changes, and the directory.\n\n"
	       "  --json       one JSON object, sizes in bytes\n\n"
	       "Exit code: 0; 1 when something cannot be read; 2 for wrong usage.\n");
	return 0;
}

static const char *state_of(const struct clone_state *c)
{
	return clone_state_is_applying(c)    ? "applying"
	       : mount_find_is_ours(c->dest) ? "mounted"
					     : "unmounted";
}

static int print_one(void *arg, struct clone_state *c)
{
	_cleanup_(freep) char *upper = clone_state_file(c, "upper");
	json_t *list = arg;
	struct du u = { 0 };
	uint64_t bytes;
	/* The upper is missing if apply was interrupted while it emptied the clone. */
	int r = !upper ? -ENOMEM : access(upper, F_OK) < 0 ? 0 : du_layer(upper, NULL, &u);

	if (r < 0) {
		log_error("%s: %s", c->path, strerror(-r));
		u = (struct du){ 0 };
	}
	bytes = u.data_bytes + u.map_bytes + u.other_bytes;
	if (!list)
		printf("%-9s %10s  %s  of %s\n", state_of(c), human_units_bytes(bytes).text,
		       c->dest, c->dir);
	else if (json_array_append_new(list, json_pack("{ss, ss, ss, sI, ss}", "dest", c->dest,
						       "dir", c->dir, "state", state_of(c), "bytes",
						       (json_int_t)bytes, "path", c->path)) < 0)
		return -ENOMEM;
	return 0;
}

static int print_json(void)
{
	json_t *list = json_array(), *all = json_pack("{sO?}", "clones", list);
	int r = all ? clone_state_each(print_one, list) : -ENOMEM;

	if (r == 0 && json_dumpf(all, stdout, JSON_INDENT(2)) == 0)
		putchar('\n');
	json_decref(list);
	json_decref(all);
	return r;
}

int cmd_clones(int argc, char **argv)
{
	static const struct option options[] = { { "json", no_argument, NULL, 'j' },
						 { "help", no_argument, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	bool is_json = false;
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		if (c == 'h')
			return print_usage();
		if (c != 'j') {
			usage_wrong_option(argv, c);
			return usage_hint("clones");
		}
		is_json = true;
	}
	if (argc > optind) {
		usage_unexpected(argv[optind]);
		return usage_hint("clones");
	}
	return (is_json ? print_json() : clone_state_each(print_one, NULL)) < 0;
}
