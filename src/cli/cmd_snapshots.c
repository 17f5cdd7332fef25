// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

#include "mount_find.h"
#include "usage.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/human_units.h"
#include "veneer/base/log.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/tools/du.h"
#include "veneer/tools/report.h"

#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static int print_usage(void)
{
	printf("usage: veneer snapshots [--json] UPPER|MOUNTPOINT\n\n"
	       "List the snapshots of an upper, oldest first: name, time, disk space, number of\n"
	       "files and directories. A star marks the snapshot on which the upper stands. If a\n"
	       "snapshot does not stand on the previous one, the one below it is at the end.\n\n"
	       "  --json       one JSON object, sizes in bytes\n\n"
	       "Exit code: 0; 1 when something cannot be read; 2 for wrong usage.\n");
	return 0;
}

struct listing {
	const char *upper;
	const struct branch_chain *chain;
	bool is_json;
	json_t *list;
};

static const char *name_of(const struct branch_chain *c, uint64_t id)
{
	const struct branch_chain_entry *e = id ? branch_chain_by_id(c, id) : NULL;

	return e ? e->name : NULL;
}

static uint64_t bytes_of(const struct du *u)
{
	return u->data_bytes + u->map_bytes + u->other_bytes;
}

static void format_time(int64_t ns, char ret[32])
{
	const time_t seconds = (time_t)(ns / 1000000000);
	struct tm tm;

	if (!gmtime_r(&seconds, &tm) || !strftime(ret, 32, "%Y-%m-%dT%H:%M:%SZ", &tm))
		strcpy(ret, "?");
}

static void print_row(const struct listing *l, size_t k, const struct du *u)
{
	const struct branch_chain_entry *e = &l->chain->entries[k];
	const uint64_t above = k ? l->chain->entries[k - 1].id : 0;
	const char *parent = e->parent != above ? name_of(l->chain, e->parent) : NULL;
	char when[32];

	format_time(e->time_ns, when);
	printf("%c %-24s %s %10s %8" PRIu64 "%s%s\n", e->id == l->chain->head ? '*' : ' ', e->name,
	       when, human_units_bytes(bytes_of(u)).text, u->inodes, parent ? "  on " : "",
	       parent ? parent : "");
}

static json_t *json_row(const struct listing *l, size_t k, const struct du *u)
{
	const struct branch_chain_entry *e = &l->chain->entries[k];
	char when[32], id[17];

	format_time(e->time_ns, when);
	snprintf(id, sizeof(id), "%016" PRIx64, e->id);
	return json_pack("{ss, ss, ss?, ss, sI, sI, sI}", "name", e->name, "id", id, "parent",
			 name_of(l->chain, e->parent), "time", when, "time_ns",
			 (json_int_t)e->time_ns, "bytes", (json_int_t)bytes_of(u), "inodes",
			 (json_int_t)u->inodes);
}

static int list_one(const struct listing *l, size_t k)
{
	_cleanup_(freep) char *path = branch_dir_path(l->upper, l->chain->entries[k].id);
	struct du u;
	int r = path ? du_layer(path, NULL, &u) : -ENOMEM;

	if (r < 0)
		return r;
	if (!l->is_json)
		print_row(l, k, &u);
	else if (json_array_append_new(l->list, json_row(l, k, &u)) < 0)
		r = -ENOMEM;
	return r;
}

static int print_json(const struct listing *l)
{
	_cleanup_(freep) char *path = report_path(l->upper);
	json_t *all = path ? json_pack("{ss, ss?, sO}", "upper", path, "head",
				       name_of(l->chain, l->chain->head), "snapshots", l->list)
			   : NULL;
	int r = all && json_dumpf(all, stdout, JSON_INDENT(2)) == 0 ? 0 : -ENOMEM;

	putchar('\n');
	json_decref(all);
	return r;
}

static int load(const char *upper, struct branch_chain *ret)
{
	_cleanup_(closep) int fd = open(upper, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = fd < 0 ? -errno : branch_dir_load(fd, ret);

	if (r == -ENOENT && fd >= 0)
		return 0;
	if (r < 0)
		log_error("%s: cannot read its snapshots: %s", upper,
			  r == -EUCLEAN ? "their chain is damaged" : strerror(-r));
	return r;
}

/* Exit code. */
static int list(const char *given, bool is_json)
{
	_cleanup_(branch_chain_release) struct branch_chain chain = { 0 };
	_cleanup_(freep) char *found = NULL;
	int r = mount_find_upper(given, "veneer snapshots", &found);
	struct listing l = { .upper = found ? found : given, .chain = &chain, .is_json = is_json };

	r = r < 0 ? r : load(l.upper, &chain);
	if (r < 0)
		return 1;
	l.list = json_array();
	r = l.list ? 0 : -ENOMEM;
	for (size_t k = 0; r == 0 && k < chain.n; k++)
		r = list_one(&l, k);
	if (r == 0 && is_json)
		r = print_json(&l);
	json_decref(l.list);
	if (r == -ENOMEM)
		log_error("out of memory");
	return r < 0;
}

int cmd_snapshots(int argc, char **argv)
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
		if (c == '?') {
			usage_wrong_option(argv, c);
			return usage_hint("snapshots");
		}
		is_json = true;
	}
	if (optind == argc)
		usage_missing("UPPER");
	else if (argc - optind > 1)
		usage_unexpected(argv[optind + 1]);
	else
		return list(argv[optind], is_json);
	return usage_hint("snapshots");
}
