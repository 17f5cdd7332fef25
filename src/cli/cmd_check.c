// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

#include "mount_find.h"
#include "offline.h"
#include "progress.h"
#include "terminal.h"
#include "usage.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/human_units.h"
#include "veneer/base/log.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/layer/fd_cache.h"
#include "veneer/mount/mount.h"
#include "veneer/mount/upper_lock.h"
#include "veneer/sys/file.h"
#include "veneer/tools/check.h"
#include "veneer/tools/report.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

static int print_usage(void)
{
	printf("usage: veneer check [OPTION...] -o lowerdir=A[:B...],upperdir=U[,workdir=W]\n"
	       "       veneer check [OPTION...] LAYER|MOUNTPOINT\n\n"
	       "Find damage in the upper U, or in a layer by itself: in its block map, its\n"
	       "partial files and its renamed directories, and changes of the lower files that\n"
	       "they need. Also find the remains of mounts and tools that were killed, in the\n"
	       "layer and in the work directory W.\n\n"
	       "  --repair     repair everything that can be repaired provably without loss;\n"
	       "               without it nothing is changed\n"
	       "  --salvage    also, where the map was lost, fill each block without data from\n"
	       "               the lower file: zeros that were written there are lost\n"
	       "  --json       one JSON object\n"
	       "  -q, --quiet  no progress\n\n"
	       "Exit code: 0 when there is no damage (any more); 1 for damage, or when something\n"
	       "could not be read; 2 for wrong usage.\n");
	return 0;
}

/* Layers from the top down. */
struct stack {
	struct layer **layers;
	size_t n;
};

static void stack_release(struct stack *s)
{
	while (s->n > 0)
		layer_unref(s->layers[--s->n]);
	free(s->layers);
}

static int open_layer(const char *path, struct layer **ret)
{
	int r = layer_open(path, ret);

	if (r < 0)
		log_error("cannot open %s: %s", path, strerror(-r));
	return r;
}

/* Also opens a snapshot that a crash left without a name. */
static int open_snapshot(const char *root, uint64_t id, struct layer **ret)
{
	_cleanup_(closep) int dir = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(freep) char *path = branch_dir_path(root, id);
	int fd = dir < 0 ? -errno : path ? branch_dir_open(dir, id) : -ENOMEM;
	int r = fd < 0 ? fd : layer_open_fd(fd, path, ret);

	if (r < 0)
		log_error("cannot open %s: %s", path ? path : root, strerror(-r));
	return r;
}

/* l is taken over. */
static int stack_add(struct stack *s, struct layer *l)
{
	int r = array_grow(&s->layers, s->n);

	if (r < 0)
		layer_unref(l);
	else
		s->layers[s->n++] = l;
	return r;
}

/* Add a snapshot of the layer at this path, and the snapshots below it. */
static int stack_add_snapshots(struct stack *s, const char *path, const struct branch_chain *c,
			       uint64_t id)
{
	const size_t n = branch_chain_below(c, id, NULL);
	_cleanup_(freep) uint64_t *ids = calloc(n + 1, sizeof(*ids));
	int r = ids ? 0 : -ENOMEM;

	if (ids)
		branch_chain_below(c, id, ids);
	for (size_t k = 0; r == 0 && k < n; k++) {
		struct layer *l;

		r = open_snapshot(path, ids[k], &l);
		r = r ?: stack_add(s, l);
	}
	return r;
}

/* Load the snapshots of a layer; having none is no error. */
static int load_chain(const char *path, struct branch_chain *ret)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = fd < 0 ? -errno : branch_dir_load(fd, ret);

	if (r == -ENOENT && fd >= 0)
		r = 0;
	if (r == 0)
		r = branch_dir_is_interrupted(fd, ret);
	if (r < 0)
		log_error("%s: cannot read its snapshots: %s", path,
			  r == -EUCLEAN ? "their chain is damaged" : strerror(-r));
	else if (r)
		log_error("%s: a snapshot of it was interrupted: the next mount finishes that",
			  path);
	return r > 0 ? -EBUSY : r;
}

static int stack_add_lower(struct stack *s, const char *path)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	struct layer *l;
	int r = open_layer(path, &l);

	r = r ?: stack_add(s, l);
	r = r ?: load_chain(path, &c);
	return r ?: stack_add_snapshots(s, path, &c, c.head);
}

/* Open the image below a layer: the snapshot that it stands on, if any, and the lower layers. */
static int open_below(const struct mount_opts *opts, const struct branch_chain *c, uint64_t id,
		      struct image **ret)
{
	_cleanup_(stack_release) struct stack s = { 0 };
	int r = stack_add_snapshots(&s, opts->upper, c, id);

	for (size_t k = 0; r == 0 && k < opts->n_lower; k++)
		r = stack_add_lower(&s, opts->lower[k]);
	return r ?: image_new(s.layers, s.n, ret);
}

/* A repair needs the layer alone; a mere check only warns of a live mount. */
static int lock_layer(const struct layer *l, bool repairs)
{
	if (repairs) {
		int r = upper_lock_alone(l->path, l->rootfd);

		if (r < 0)
			log_error("%s %s", l->path,
				  r == -EBUSY ? "is in use by a mount" : "cannot be locked");
		return r;
	}
	/* Mounts that only read a snapshot hold it, too. */
	if (flock(l->rootfd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		log_warn("%s is in use by a mount: files that it is changing may look damaged",
			 l->path);
	else
		flock(l->rootfd, LOCK_UN);
	return 0;
}

/* ---- output ---- */

struct output {
	bool is_json, has_colours, has_failed;
	struct progress shown;
	json_t *findings, *repairs; /* if is_json */
};

static json_t *finding_json(const struct check_finding *f)
{
	_cleanup_(freep) char *layer = report_path(f->layer), *path = report_path(f->path),
			      *text = report_line(f->text);

	return layer && path && text ? json_pack("{ss, ss, ss, ss}", "code", f->code, "layer",
						 layer, "path", path, "text", text)
				     : NULL;
}

/* Print a line: red for a fault, green for a repair. */
static void print_finding(void *arg, const struct check_finding *f)
{
	_cleanup_(freep) char *layer = report_line(f->layer), *path = report_line(f->path),
			      *text = report_line(f->text);
	struct output *o = arg;

	if (o->is_json) {
		if (json_array_append_new(f->is_repair ? o->repairs : o->findings,
					  finding_json(f)) < 0)
			o->has_failed = true;
		return;
	}
	progress_clear(&o->shown);
	if (o->has_colours)
		fputs(f->is_repair ? "\033[32m" : "\033[31m", stdout);
	printf("%s/%s: %s%s%s\n", layer ? layer : "?", path ? path : "?",
	       f->is_repair ? "repaired: " : "", text ? text : f->code,
	       o->has_colours ? "\033[0m" : "");
	/* Show repairs as soon as they are made. */
	fflush(stdout);
}

static void output_release(struct output *o)
{
	json_decref(o->findings);
	json_decref(o->repairs);
}

static int output_init(struct output *o, bool is_json, bool is_quiet)
{
	*o = (struct output){ .is_json = is_json, .has_colours = terminal_has_colours(stdout) };
	if (is_json) {
		o->findings = json_array();
		o->repairs = json_array();
	}
	progress_start(&o->shown, is_quiet);
	return is_json && !(o->findings && o->repairs) ? -ENOMEM : 0;
}

static int print_json(const char *path, const struct check_result *s, const struct output *o)
{
	_cleanup_(freep) char *text = report_path(path);
	json_t *j = json_pack("{ss?, sI, sI, sI, sO, sO}", "path", text, "partial_files",
			      (json_int_t)s->files, "found", (json_int_t)s->found, "repaired",
			      (json_int_t)s->repaired, "findings", o->findings, "repairs",
			      o->repairs);
	int r = j && !o->has_failed && json_dumpf(j, stdout, JSON_INDENT(2)) == 0 ? 0 : -ENOMEM;

	putchar('\n');
	json_decref(j);
	return r;
}

/* ---- one layer ---- */

struct job {
	const char *path, *work; /* work: NULL, or the work directory */
	const struct mount_opts *opts; /* NULL: the lower layers are unknown */
	struct image *below; /* set and released by check_on */
	enum check_mode mode;
};

static int check_locked(struct layer *l, const struct job *job, struct output *o,
			struct check_result *s)
{
	const struct step step = progress_walk(&o->shown);
	const struct check_hooks hooks = { .found = print_finding, .arg = o, .step = &step };
	struct stat before;
	int r = fstat(l->rootfd, &before) < 0 ? -errno
					      : check_layer(l, job->below, job->mode, &hooks, s);

	if (r == 0 && job->work)
		r = check_orphans_work(job->work, job->mode >= CHECK_REPAIRS, &hooks, s);
	progress_clear(&o->shown);
	if (job->mode >= CHECK_REPAIRS)
		futimens(l->rootfd, (struct timespec[]){ before.st_atim, before.st_mtim });
	if (r < 0)
		log_error("%s: cannot be checked: %s", job->path, strerror(-r));
	else if (s->found == 0 && !o->is_json)
		printf("%s: %s, no damage\n", job->path,
		       human_units_of(s->files, "partial file").text);
	return r;
}

/* Adds to *s. l is released. 0 or -errno. */
static int check_one(struct layer *l, const struct job *job, struct output *o,
		     struct check_result *s)
{
	struct check_result one = { 0 };
	int r = lock_layer(l, job->mode >= CHECK_REPAIRS);

	if (r == 0)
		r = check_locked(l, job, o, &one);
	layer_unref(l);
	s->files += one.files;
	s->found += one.found;
	s->repaired += one.repaired;
	return r;
}

/* Check a layer, or one of its snapshots, against the layers below it. */
static int check_on(struct layer *l, struct job job, const struct branch_chain *c, uint64_t id,
		    struct output *o, struct check_result *s)
{
	int r = job.opts ? open_below(job.opts, c, id, &job.below) : 0;

	if (r < 0)
		layer_unref(l);
	else
		r = check_one(l, &job, o, s);
	image_unref(job.below);
	return r;
}

/* A snapshot never changes: a repair sets missing guards there, and does nothing else. */
static int check_snapshot(struct layer *l, const struct job *job, const struct branch_chain *c,
			  uint64_t id, struct output *o, struct check_result *s)
{
	const enum check_mode mode = job->mode == CHECK_LOOKS ? CHECK_LOOKS : CHECK_GUARDS;
	const struct job one = { .path = l->path, .opts = job->opts, .mode = mode };

	return check_on(l, one, c, id, o, s);
}

/* Exit code. */
static int check(const struct job *job, struct output *o)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	struct check_result s = { 0 };
	struct layer *l;
	int r = open_layer(job->path, &l);

	if (r < 0)
		return 1;
	r = load_chain(job->path, &c);
	if (r < 0)
		layer_unref(l);
	else
		r = check_on(l, *job, &c, c.head, o, &s);
	for (size_t k = 0; r == 0 && k < c.n; k++) {
		r = open_snapshot(job->path, c.entries[k].id, &l);
		r = r ?: check_snapshot(l, job, &c, c.entries[k].parent, o, &s);
	}
	if (r == 0 && o->is_json)
		r = print_json(job->path, &s, o);
	return r < 0 || s.found > s.repaired;
}

/* For a mount: check its upper on its layers. */
static int look_behind(struct offline_args *args, char **ret_list)
{
	_cleanup_(report_release) struct report one = { .pid = 0 };
	int r = args->path ? mount_find_look(args->path, "veneer check", &one) : 0;

	if (r <= 0)
		return r;
	if (!one.mounts[0].upper || !one.mounts[0].lowers) {
		log_error("%s is mounted read-only and has no upper directory: give veneer check a "
			  "layer",
			  args->path);
		return -EROFS;
	}
	*ret_list = mount_find_options(&one.mounts[0], true);
	args->lists[args->nlists++] = *ret_list;
	args->path = NULL;
	return *ret_list ? 0 : -ENOMEM;
}

int cmd_check(int argc, char **argv)
{
	_cleanup_(freep) char *list = NULL;
	struct mount_opts opts = { 0 };
	struct offline_args args;
	struct output output;
	int code = 1;

	if (offline_arguments(argc, argv, "--quiet --repair --salvage --json", true, &args) < 0)
		return usage_hint("check");
	if (args.wants_help)
		return print_usage();
	if (!args.path == !args.nlists) {
		if (args.path)
			usage_unexpected(args.path);
		else
			usage_missing("LAYER, or -o lowerdir=...,upperdir=...");
		return usage_hint("check");
	}
	if (args.salvages && args.path) {
		log_error("--salvage takes the lower layers: -o lowerdir=...,upperdir=...");
		return usage_hint("check");
	}
	if (look_behind(&args, &list) < 0)
		return 1;
	if (args.nlists && offline_options(&args, &opts) < 0)
		return 2;
	fd_cache_init();
	file_guard_init();
	if (output_init(&output, args.is_json, args.is_quiet) < 0)
		log_error("out of memory");
	else
		code = check(&(struct job){ .path = args.path ? args.path : opts.upper,
					    .work = opts.work,
					    .opts = args.nlists ? &opts : NULL,
					    .mode = args.salvages  ? CHECK_SALVAGES
						    : args.repairs ? CHECK_REPAIRS
								   : CHECK_LOOKS },
			     &output);
	output_release(&output);
	options_release(&opts);
	return code;
}
