// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

#include "offline.h"
#include "offline_squash.h"
#include "offline_upper.h"
#include "progress.h"
#include "usage.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/human_units.h"
#include "veneer/base/log.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/mount/mount_squash.h"
#include "veneer/mount/upper_lock.h"
#include "veneer/server/client.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static int print_usage(void)
{
	printf("usage: veneer squash [-q] [--rate RATE] MOUNTPOINT [OLD..NEW]\n"
	       "       veneer squash [-q] -o lowerdir=A[:B...],upperdir=U [OLD..NEW]\n\n"
	       "Merge neighbouring snapshots: NEW, which shows the same as before, takes in\n"
	       "those below it down to OLD, which are removed. Without names: all snapshots\n"
	       "below the upper, as far as nothing else stands on one of them. Own blocks of\n"
	       "partial files are copied, and other files get another name. Programs in a mount\n"
	       "go on. It can be stopped at any moment, and then nothing has changed.\n\n"
	       "  -q, --quiet  neither progress nor result\n"
	       "  --rate RATE  limit in bytes a second, with K, M or G behind it; an entry\n"
	       "               counts as 4K\n\n"
	       "Exit code: 0; 1 when nothing was changed; 2 for wrong usage.\n");
	return 0;
}

/* OLD and NEW of "OLD..NEW"; NULL: not given. */
struct range {
	char *from, *to;
	uint64_t rate; /* bytes a second; 0: no limit */
};

/* False after a sentence. */
static bool split(char *given, struct range *ret)
{
	char *dots = given ? strstr(given, "..") : NULL;

	*ret = (struct range){ NULL, NULL, 0 };
	if (!given)
		return true;
	if (dots) {
		*dots = '\0';
		*ret = (struct range){ given, dots + 2, 0 };
	}
	if (dots && branch_chain_is_name(ret->from) && branch_chain_is_name(ret->to))
		return true;
	log_error("two names of snapshots are needed, as in OLD..NEW");
	return false;
}

/* False after a sentence. */
static bool take_rate(const struct offline_args *a, struct range *ret)
{
	if (!a->rate)
		return true;
	if (a->nlists)
		log_error("--rate is for a mount that is in use");
	else if (human_units_scan(a->rate, "KMG", 1024, &ret->rate))
		return true;
	else
		log_error("--rate %s: bytes a second are needed, with K, M or G behind them",
			  a->rate);
	return false;
}

static void print_end(const char *path, const struct client_squashed *s)
{
	if (s->n < 2)
		printf("%s: there is nothing to make one\n", path);
	else
		printf("%s: %s became one, of %s, for which %s were copied\n", path,
		       human_units_of(s->n, "snapshot").text,
		       human_units_of(s->entries, "entry").text, human_units_bytes(s->bytes).text);
}

/* ---- a mount in use ---- */

struct live {
	struct progress shown;
	struct client_squashed last;
};

static void draw_live(void *arg, const struct client_squashed *s)
{
	struct live *l = arg;

	l->last = *s;
	if (progress_is_due(&l->shown))
		progress_show(&l->shown, "entry",
			      &(struct progress_point){ s->entries, 0, s->bytes, 0 }, "");
}

static int ask(const char *path, const char *names, struct live *live, char *err, size_t err_size)
{
	_cleanup_(rundir_release) struct rundir at = { .fd = -1 };
	_cleanup_(closep) int fd = -1;
	struct client_target at_mount;
	int r = client_target_of(path, &at_mount);

	snprintf(err, err_size, "%s", strerror(-r));
	r = r ?: rundir_open(&at, err, err_size);
	r = r ?: client_connect(&at, false, &fd, err, err_size);
	if (fd < 0 && r == -ENOENT)
		snprintf(err, err_size, "no server is running: nobody listens at %s", at.path);
	return r
		       ?: client_squash(
				  fd,
				  &(struct client_squash_ask){ &at_mount, names, draw_live, live },
				  err, err_size);
}

/* Exit code. */
static int squash_live(const char *path, const struct range *range, bool is_quiet)
{
	char names[2 * BRANCH_CHAIN_NAME_MAX + 32], err[PATH_MAX * 2] = "";
	struct live live = { .last = { 0 } };
	int r, n;

	n = snprintf(names, sizeof(names), "%s\n%s", range->from ?: "", range->to ?: "");
	if (range->rate)
		snprintf(names + n, sizeof(names) - (size_t)n, "\n%" PRIu64, range->rate);
	progress_start(&live.shown, is_quiet);
	r = ask(path, names, &live, err, sizeof(err));
	progress_clear(&live.shown);
	if (r < 0)
		log_error("%s: %s", path, err);
	else if (!is_quiet)
		print_end(path, &live.last);
	return r < 0;
}

/* ---- an upper without a mount ---- */

/* Exit code. */
static int squash_offline(struct mount_opts *opts, const struct range *range, bool is_quiet)
{
	_cleanup_(freep) char *path = strdup(opts->upper);
	struct client_squashed done = { 0 };
	struct offline_upper upper;
	int r = offline_refuse_no_snapshots(opts->upper);

	if (r < 0)
		return 1;
	r = offline_upper_open(&upper, opts, BRANCH_DIR_NAME);
	if (r == 0) {
		_cleanup_(closep) int lock = branch_dir_lock(upper.rootfd);

		if (lock < 0) {
			r = lock == -EBUSY ? -EAGAIN : lock;
			log_error("%s: %s", opts->upper, mount_squash_reason(r));
		} else {
			r = offline_squash(opts,
					   &(struct offline_squash_range){ range->from, range->to },
					   is_quiet, &done);
		}
	}
	offline_upper_close(&upper);
	if (r == 0 && !is_quiet)
		print_end(path ?: "", &done);
	return r != 0;
}

int cmd_squash(int argc, char **argv)
{
	struct offline_args args;
	struct mount_opts opts;
	struct range range;
	const char *given;
	int r;

	if (offline_arguments(argc, argv, "--quiet --rate SECOND", true, &args) < 0)
		return usage_hint("squash");
	if (args.wants_help)
		return print_usage();
	if (args.nlists && args.second) {
		log_error("%s: a mount point, or -o lowerdir=...,upperdir=...", args.path);
		return usage_hint("squash");
	}
	if (!args.nlists && !args.path) {
		usage_missing("MOUNTPOINT");
		return usage_hint("squash");
	}
	given = args.nlists ? args.path : args.second;
	if (!split(given ? strdupa(given) : NULL, &range) || !take_rate(&args, &range))
		return usage_hint("squash");
	if (!args.nlists)
		return squash_live(args.path, &range, args.is_quiet);
	if (offline_options(&args, &opts) < 0)
		return 2;
	r = squash_offline(&opts, &range, args.is_quiet);
	options_release(&opts);
	return r;
}
