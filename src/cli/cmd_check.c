// SPDX-License-Identifier: Apache-2.0
#include "veneer/commands.h"

#include "offline.h"

#include "veneer/check.h"
#include "veneer/cleanup.h"
#include "veneer/fdcache.h"
#include "veneer/file.h"
#include "veneer/log.h"
#include "veneer/mount.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

static int print_usage(FILE *out)
{
	fprintf(out,
		"usage: veneer check [--repair] -o lowerdir=A[:B...],upperdir=U[,workdir=W]\n"
		"       veneer check [--repair] LAYER\n\n"
		"Find what is damaged in the upper U, or in a layer by itself: in its block map, its partial files and its\n"
		"renamed directories, and whether the lower files they need are what they were; and what mounts and tools\n"
		"that were killed left in it and in the work directory W. Changes nothing without\n"
		"--repair, and with it only what provably loses nothing.\n"
		"Exit code: 0 when all is well (now); 1 for damage, or what could not be looked at; 2 for wrong usage.\n");
	return out == stderr ? 2 : 0;
}

static int open_below(const struct mount_opts *opts, struct image **ret)
{
	struct layer **layers = calloc(opts->n_lower, sizeof(*layers));
	size_t n = 0;
	int r = layers ? 0 : -ENOMEM;

	for (; r == 0 && n < opts->n_lower; n++) {
		r = layer_open(opts->lower[n], &layers[n]);
		if (r < 0) {
			log_error("cannot open lowerdir %s: %s", opts->lower[n], strerror(-r));
			break;
		}
	}
	r = r ?: image_new(layers, n, ret);
	while (n > 0)
		layer_unref(layers[--n]);
	free(layers);
	return r;
}

/* A repair needs the layer for itself; only looking, a live mount is worth a warning. */
static int lock_layer(const struct layer *l, bool repairs)
{
	if (repairs) {
		int r = mount_lock_upper(l->rootfd);

		if (r < 0)
			log_error("%s is in use by a mount", l->path);
		return r;
	}
	if (flock(l->rootfd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		log_warn("%s is in use by a mount: what it is changing may look damaged", l->path);
	else
		flock(l->rootfd, LOCK_UN);
	return 0;
}

static int check(const char *path, const char *work, struct image *below, bool repairs)
{
	struct check_result s = { 0 };
	struct layer *l;
	struct stat before;
	int r = layer_open(path, &l);

	if (r < 0) {
		log_error("cannot open %s: %s", path, strerror(-r));
		return 1;
	}
	r = lock_layer(l, repairs);
	if (r == 0) {
		r = fstat(l->rootfd, &before) < 0 ? -errno : check_layer(l, below, repairs, stdout, &s);
		if (r == 0 && work)
			r = check_work(work, repairs, stdout, &s);
		if (r < 0)
			log_error("%s: cannot be checked: %s", path, strerror(-r));
		else if (s.found == 0)
			printf("%s: %zu partial files, no damage\n", path, s.files);
		if (repairs)
			futimens(l->rootfd, (struct timespec[]){ before.st_atim, before.st_mtim });
	}
	layer_unref(l);
	return r < 0 || s.found > s.repaired;
}

int cmd_check(int argc, char **argv)
{
	struct mount_opts opts = { 0 };
	struct image *below = NULL;
	struct offline_args args;
	int code = 0;

	if (argc < 2 || offline_arguments(argc, argv, "--repair", true, &args) < 0)
		return print_usage(stderr);
	if (args.wants_help)
		return print_usage(stdout);
	if (!args.path == !args.nlists)
		return print_usage(stderr);
	if (args.nlists && offline_options(&args, &opts) < 0)
		return 2;
	fdcache_init();
	file_guard_init();
	if (args.nlists && open_below(&opts, &below) < 0)
		code = 1;
	else
		code = check(args.path ? args.path : opts.upper, opts.work, below, args.repairs);
	image_unref(below);
	options_release(&opts);
	return code;
}
