// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

#include "clone_state.h"
#include "mount_find.h"
#include "output_file.h"
#include "progress.h"
#include "terminal.h"
#include "upper_layers.h"
#include "usage.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/human_units.h"
#include "veneer/base/log.h"
#include "veneer/layer/fd_cache.h"
#include "veneer/mount/options.h"
#include "veneer/sys/file.h"
#include "veneer/tools/diff.h"

#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

struct arguments {
	const char *upper, *output;
	char *list; /* lowerdir=... */
	bool is_json, is_tar, is_quiet, lists_all;
};

static int print_usage(void)
{
	printf("usage: veneer diff [--json] [-r] [-o lowerdir=A[:B...]] [--quiet] UPPER\n"
	       "       veneer diff --tar [-o FILE] [--quiet] -o lowerdir=A[:B...] UPPER\n"
	       "       veneer diff [OPTION...] MOUNTPOINT|CLONE\n\n"
	       "List the changes of the layer UPPER, or of a mount: A added, C changed, D\n"
	       "deleted, and for files that were changed in part the number of their own blocks.\n"
	       "UPPER may be in use. In the lower layers only names are looked up.\n\n"
	       "  -o lowerdir=A[:B...]  the layers below UPPER, top first. Without it only the\n"
	       "                        layer is read: a directory counts as changed, a file as\n"
	       "                        added unless it is marked as copied up\n"
	       "  -r                    also list the contents of deleted directories\n"
	       "  --json                one JSON object\n"
	       "  --tar                 write the layer of an OCI image: tar with whiteouts\n"
	       "  -o FILE               write to FILE instead of standard output\n"
	       "  -q, --quiet           no progress\n\n"
	       "Exit code: 0; 1 when something cannot be read or written; 2 for wrong usage.\n");
	return 0;
}

static int list(const struct arguments *args, const struct mount_opts *opts)
{
	struct progress shown;
	const struct step step = progress_walk(&shown);
	struct diff d;
	int r;

	progress_start(&shown, args->is_quiet);
	r = diff_read(args->upper, opts->lower, opts->n_lower, args->lists_all, &step, &d);
	progress_clear(&shown);
	if (r == 0) {
		r = args->is_json ? diff_print_json(&d, stdout)
				  : diff_print(&d, terminal_has_colours(stdout), stdout);
		if (fflush(stdout) != 0)
			r = -EIO;
		if (r < 0)
			log_error("cannot print: %s", strerror(-r));
	}
	diff_release(&d);
	return r < 0;
}

static void draw(void *arg, const struct diff_progress *p)
{
	if (progress_is_due(arg))
		progress_show(
			arg, "entry",
			&(struct progress_point){ p->entries, p->nentries, p->bytes, p->nbytes },
			"");
}

/* The size of the files' data in a stream of veneer send. */
static uint64_t delta_bytes(const struct diff *d)
{
	uint64_t sum = 0;

	for (size_t k = 0; k < d->n; k++)
		sum += d->entries[k].is_partial ? d->entries[k].own_blks << BLK_SHIFT
						: d->entries[k].size;
	return sum;
}

static int write_tar(const struct arguments *args, const struct mount_opts *opts)
{
	struct output_file to = { .path = args->output, .fd = -1 };
	struct diff_progress done = { 0 };
	struct progress shown;
	const struct step step = progress_walk(&shown);
	struct diff d;
	int r;

	progress_start(&shown, args->is_quiet);
	r = diff_read(args->upper, opts->lower, opts->n_lower, false, &step, &d);
	/* Start again: the rate of writing is unrelated to the rate of reading. */
	progress_clear(&shown);
	progress_start(&shown, args->is_quiet);
	if (r == 0)
		r = output_file_open(&to);
	if (r == 0) {
		r = diff_tar_write(&d, to.fd, draw, &shown, &done);
		progress_clear(&shown);
		r = output_file_close(&to, r);
		if (r == 0 && !args->is_quiet)
			fprintf(stderr, "%s: %s, %s of data; veneer send takes %s\n", args->upper,
				human_units_of(done.entries, "entry").text,
				human_units_bytes(done.bytes).text,
				human_units_bytes(delta_bytes(&d)).text);
	}
	diff_release(&d);
	return r < 0;
}

/* 0; 1: help was asked for; -EINVAL after a sentence on standard error. */
static int parse(int argc, char **argv, struct arguments *ret)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "tar", no_argument, NULL, 't' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":ho:qr", options, NULL)) != -1) {
		if (c == 'h')
			return 1;
		if (c == '?' || c == ':') {
			usage_wrong_option(argv, c);
			return -EINVAL;
		}
		ret->is_json |= c == 'j';
		ret->is_tar |= c == 't';
		ret->is_quiet |= c == 'q';
		ret->lists_all |= c == 'r';
		if (c == 'o' && strstr(optarg, "lowerdir="))
			ret->list = optarg;
		else if (c == 'o')
			ret->output = optarg;
	}
	ret->upper = argv[optind];
	if (argc == optind)
		usage_missing("UPPER");
	else if (argc - optind > 1)
		usage_unexpected(argv[optind + 1]);
	else if (ret->is_json && ret->is_tar)
		log_error("--json and --tar exclude each other");
	else if (!ret->is_tar && ret->output)
		log_error("-o %s: neither lowerdir=..., nor is there a file to write without --tar",
			  ret->output);
	else
		return 0;
	return -EINVAL;
}

/* For an unmounted clone: use its upper on its directory. */
static int look_behind_clone(struct arguments *args, char **ret_upper, char **ret_list)
{
	_cleanup_(clone_state_release) struct clone_state c = { .lock_fd = -1 };
	_cleanup_(freep) char *dest = mount_find_path(args->upper);
	int r = dest ? clone_state_find(dest, &c) : 0;

	if (r <= 0)
		return r;
	*ret_upper = clone_state_file(&c, "upper");
	if (!args->list)
		args->list = *ret_list = clone_state_layers(&c, false);
	args->upper = *ret_upper;
	return args->upper && args->list ? 0 : -ENOMEM;
}

/* For a mount: use its upper on its layers. */
static int look_behind(struct arguments *args, char **ret_upper, char **ret_list)
{
	_cleanup_(report_release) struct report one = { .pid = 0 };
	int r = mount_find_look(args->upper, "veneer diff", &one);

	if (r == 0)
		return look_behind_clone(args, ret_upper, ret_list);
	if (r < 0)
		return r;
	if (!one.mounts[0].upper) {
		log_error("%s is mounted read-only: nothing is changed in it", args->upper);
		return -EROFS;
	}
	*ret_upper = strdup(one.mounts[0].upper);
	if (!args->list && one.mounts[0].lowers)
		args->list = *ret_list = mount_find_options(&one.mounts[0], false);
	args->upper = *ret_upper;
	return args->upper ? 0 : -ENOMEM;
}

int cmd_diff(int argc, char **argv)
{
	_cleanup_(options_release) struct mount_opts opts = { 0 };
	_cleanup_(freep) char *upper = NULL, *lowers = NULL;
	struct arguments args = { 0 };
	int r = parse(argc, argv, &args);

	if (r)
		return r < 0 ? usage_hint("diff") : print_usage();
	if (look_behind(&args, &upper, &lowers) < 0)
		return 1;
	if (args.is_tar && !args.list) {
		log_error("an archive needs the lower layers: -o lowerdir=A[:B...]");
		return 2;
	}
	if (args.list && upper_layers_parse(args.list, &opts) < 0)
		return 2;
	fd_cache_init();
	file_guard_init();
	return args.is_tar ? write_tar(&args, &opts) : list(&args, &opts);
}
