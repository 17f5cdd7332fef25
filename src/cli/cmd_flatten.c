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
#include "veneer/mount/mount.h"
#include "veneer/server/client.h"
#include "veneer/sys/rmtree.h"
#include "veneer/tools/flatten.h"
#include "veneer/tools/report.h"

#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

enum form { FORM_TEXT, FORM_JSON, FORM_QUIET };

static int print_usage(void)
{
	printf("usage: veneer flatten [OPTION...] -o lowerdir=A[:B...],upperdir=U[,workdir=W]\n"
	       "       veneer flatten [OPTION...] --in-place MOUNTPOINT|U\n\n"
	       "Turn the upper U, which must not be mounted, into a layer of plain files for\n"
	       "overlayfs and fuse-overlayfs: partial files get their blocks from lower layers,\n"
	       "renamed directories get copies of their lower contents, and the block map is\n"
	       "removed. It can be stopped at any moment and run again.\n\n"
	       "  --in-place   have the server flatten a mount in use: all partial files become\n"
	       "               plain ones, even while they are open; renamed directories and an\n"
	       "               empty map stay. With -o: if U is mounted, else as without it\n"
	       "  --json       the result as one JSON object\n"
	       "  -q, --quiet  neither progress nor result\n\n"
	       "Exit code: 0; 1 when something could not be flattened, or it had to stop; 2 for\n"
	       "wrong usage.\n");
	return 0;
}

/* ---- progress ---- */

/* The progress of a server's work. */
struct live {
	struct progress shown;
	struct promote_worker_progress last;
};

static void draw_live(void *arg, const struct promote_worker_progress *s)
{
	struct live *l = arg;

	l->last = *s;
	if (progress_is_due(&l->shown))
		progress_show(&l->shown, "file",
			      &(struct progress_point){ s->files, s->nfiles, s->bytes, s->nbytes },
			      "");
}

static void draw(void *arg, const struct flatten_stats *s)
{
	char more[96] = "";

	if (!progress_is_due(arg))
		return;
	if (s->copied)
		snprintf(more, sizeof(more), ", %s copied",
			 human_units_of(s->copied, "entry").text);
	progress_show(arg, "file",
		      &(struct progress_point){ s->files, s->nfiles, s->bytes, s->nbytes }, more);
}

static size_t made_whole(const struct flatten_stats *s)
{
	return s->files > s->left ? s->files - s->left : 0;
}

static void print_json(const char *path, const struct flatten_stats *s, uint64_t cloned)
{
	_cleanup_(freep) char *text = report_path(path);
	json_t *j = text ? json_pack("{ss, sI, sI, sI, sI, sI, sI}", "path", text, "files",
				     (json_int_t)made_whole(s), "bytes", (json_int_t)s->bytes,
				     "cloned_bytes", (json_int_t)cloned, "directories",
				     (json_int_t)s->dirs, "entries", (json_int_t)s->copied, "left",
				     (json_int_t)s->left)
			 : NULL;

	if (j)
		json_dumpf(j, stdout, JSON_INDENT(2));
	printf("\n");
	json_decref(j);
}

static void print_end(const char *upper, const struct flatten_stats *s)
{
	if (!s->files && !s->dirs && !s->copied && !s->left) {
		printf("%s: %s\n", upper,
		       s->has_removed_map ? "its map was empty and is gone" : "is flat");
		return;
	}
	printf("%s: %s made whole, %s copied", upper, human_units_of(made_whole(s), "file").text,
	       human_units_bytes(s->bytes).text);
	if (s->dirs || s->copied)
		printf(", %s expanded by %s", human_units_of(s->dirs, "renamed directory").text,
		       human_units_of(s->copied, "entry").text);
	if (s->left)
		printf("; left as before: %s", human_units_of(s->left, "file").text);
	printf("\n");
}

/* ---- a private mount ---- */

static int flatten(struct mount_opts *opts, enum form form)
{
	_cleanup_(freep) char *upper = strdup(opts->upper);
	struct progress p;
	struct flatten_stats s;
	char err[PATH_MAX * 2] = "";
	struct mount m;
	int r;

	if (!upper)
		return -ENOMEM;
	progress_start(&p, form == FORM_QUIET);
	r = mount_open(&m, opts, err, sizeof(err));
	if (r < 0) {
		log_error("%s", err);
	} else {
		r = flatten_tree(&m.tree, draw, &p, &s);
		progress_clear(&p);
		if (r < 0)
			offline_upper_say_why(upper, r);
		else if (form == FORM_JSON)
			print_json(upper, &s, 0);
		else if (form == FORM_TEXT)
			print_end(upper, &s);
	}
	mount_close(&m);
	return r < 0 ? r : s.left > 0;
}

/* Squash the snapshots into the live part, which is then flattened. */
static int join_snapshots(const struct offline_args *args, enum form form)
{
	struct offline_upper upper;
	struct mount_opts opts;
	int r = offline_options(args, &opts);

	if (r < 0)
		return r;
	r = offline_upper_open(&upper, &opts, BRANCH_DIR_NAME);
	r = r ?: offline_squash_all(&opts, upper.rootfd, form != FORM_TEXT);
	offline_upper_close(&upper);
	options_release(&opts);
	return r;
}

/* Remove the branch directory, as the chain is empty. */
static void drop_branches(int rootfd)
{
	_cleanup_(closep) int lock = branch_dir_lock(rootfd);

	if (lock >= 0)
		rmtree(rootfd, BRANCH_DIR_NAME);
}

static int flatten_offline(const struct offline_args *args, struct mount_opts *opts, enum form form)
{
	const int has_snapshots = offline_has_snapshots(opts->upper);
	struct offline_upper upper;
	int r;

	if (has_snapshots < 0 || (has_snapshots && join_snapshots(args, form) < 0))
		return 1;
	r = offline_upper_open(&upper, opts, "");
	if (r == 0)
		drop_branches(upper.rootfd);
	r = r ?: flatten(opts, form);
	offline_upper_close(&upper);
	return r != 0;
}

/* ---- a mount in use ---- */

static void print_live_end(const char *path, const struct promote_worker_progress *s)
{
	printf("%s: %s made whole, %s brought in", path, human_units_of(s->files, "file").text,
	       human_units_bytes(s->bytes).text);
	if (s->cloned)
		printf(", %s of it cloned", human_units_bytes(s->cloned).text);
	if (s->left)
		printf("; left as before: %s (the server's log says why)",
		       human_units_of(s->left, "file").text);
	printf("\n");
}

/* Exit code; -ENOENT: no server has the mount, and err is a sentence. */
static int flatten_live(const char *path, enum form form, char *err, size_t err_size)
{
	struct live live = { .last = { 0 } };
	_cleanup_(rundir_release) struct rundir at = { .fd = -1 };
	_cleanup_(closep) int fd = -1;
	struct client_target at_mount;
	int r = client_target_of(path, &at_mount);

	if (r < 0) {
		log_error("%s: %s", path, strerror(-r));
		return 1;
	}
	progress_start(&live.shown, form == FORM_QUIET);
	r = rundir_open(&at, err, err_size);
	r = r ?: client_connect(&at, false, &fd, err, err_size);
	if (r == -ENOENT)
		snprintf(err, err_size, "no server is running: nobody listens at %s", at.path);
	r = r ?: client_flatten(fd, &at_mount, draw_live, &live, err, err_size);
	progress_clear(&live.shown);
	if (r == -ENOENT)
		return r;
	if (r < 0)
		log_error("%s: %s", path, err);
	else if (form == FORM_JSON)
		print_json(path,
			   &(struct flatten_stats){ .files = live.last.files + live.last.left,
						    .bytes = live.last.bytes,
						    .left = live.last.left },
			   live.last.cloned);
	else if (form == FORM_TEXT)
		print_live_end(path, &live.last);
	return r < 0 || live.last.left > 0;
}

static int in_place(const char *path, enum form form)
{
	char err[PATH_MAX * 2] = "";
	int r = flatten_live(path, form, err, sizeof(err));

	if (r != -ENOENT)
		return r;
	log_error("%s: %s; an unmounted upper needs -o lowerdir=...,upperdir=...", path, err);
	return 1;
}

int cmd_flatten(int argc, char **argv)
{
	char err[PATH_MAX * 2] = "";
	struct offline_args args;
	struct mount_opts opts;
	enum form form;
	int r = -ENOENT;

	if (offline_arguments(argc, argv, "--quiet --in-place --json", true, &args) < 0)
		return usage_hint("flatten");
	if (args.wants_help)
		return print_usage();
	form = args.is_quiet ? FORM_QUIET : args.is_json ? FORM_JSON : FORM_TEXT;
	if (args.path && args.is_in_place && !args.nlists)
		return in_place(args.path, form);
	if (args.path || !args.nlists) {
		if (args.path)
			log_error("%s: a mount point goes with --in-place, a layer with -o "
				  "lowerdir=...,upperdir=...",
				  args.path);
		else
			usage_missing("-o lowerdir=...,upperdir=...");
		return usage_hint("flatten");
	}
	if (offline_options(&args, &opts) < 0)
		return 2;
	if (args.is_in_place)
		r = flatten_live(opts.upper, form, err, sizeof(err));
	if (r == -ENOENT)
		r = flatten_offline(&args, &opts, form);
	options_release(&opts);
	return r;
}
