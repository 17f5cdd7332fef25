// SPDX-License-Identifier: Apache-2.0
#include "veneer/commands.h"

#include "offline.h"
#include "terminal.h"
#include "usage.h"

#include "veneer/check.h"
#include "veneer/cleanup.h"
#include "veneer/fdcache.h"
#include "veneer/file.h"
#include "veneer/log.h"
#include "veneer/mount.h"
#include "veneer/report.h"

#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

static int print_usage(FILE *out)
{
	fprintf(out,
		"usage: veneer check [--repair] [--json] -o lowerdir=A[:B...],upperdir=U[,workdir=W]\n"
		"       veneer check [--repair] [--json] LAYER\n\n"
		"Find what is damaged in the upper U, or in a layer by itself: in its block map, its partial files\n"
		"and its renamed directories, and whether the lower files they need are what they were; and what\n"
		"mounts and tools that were killed left in it and in the work directory W.\n\n"
		"  --repair  put right what can be, if that provably loses nothing; without it nothing is changed\n"
		"  --json    one JSON object\n\n"
		"Exit code: 0 when all is well (now); 1 for damage, or what could not be looked at; 2 for wrong\n"
		"usage.\n");
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

/* The lines that say what was found, as one object. */
static int print_json(const char *path, const struct check_result *s, char *lines)
{
	_cleanup_(freep) char *text = report_path(path);
	json_t *list = json_array(), *j;
	int r = list ? 0 : -ENOMEM;

	for (char *line = strtok(lines, "\n"); line && r == 0; line = strtok(NULL, "\n")) {
		_cleanup_(freep) char *plain = report_path(line);

		r = plain && json_array_append_new(list, json_string(plain)) == 0 ? 0 : -ENOMEM;
	}
	j = json_pack("{ss?, sI, sI, sI, so}", "path", text, "partial_files", (json_int_t)s->files, "found", (json_int_t)s->found,
		      "repaired", (json_int_t)s->repaired, "findings", list);
	if (r == 0)
		r = j && json_dumpf(j, stdout, JSON_INDENT(2)) == 0 ? 0 : -EIO;
	putchar('\n');
	json_decref(j);
	return r;
}

/* ---- colours ---- */

/* Of one finding a line: red, or green for what was put right. */
static ssize_t write_coloured(void *cookie, const char *text, size_t len)
{
	(void)cookie;
	for (const char *line = text, *end; line < text + len; line = end) {
		const char *newline = memchr(line, '\n', len - (size_t)(line - text));
		const int n = (int)((newline ? newline : text + len) - line);

		end = newline ? newline + 1 : text + len;
		printf("\033[%sm%.*s\033[0m%s", memmem(line, (size_t)n, ": repaired: ", 12) ? "32" : "31", n, line, newline ? "\n" : "");
	}
	return fflush(stdout) == 0 ? (ssize_t)len : 0;
}

/* Where findings go: standard output itself, unless that can show colours. NULL on no memory. */
static FILE *open_lines(void)
{
	FILE *out;

	if (!terminal_has_colours(stdout))
		return stdout;
	out = fopencookie(NULL, "w", (cookie_io_functions_t){ .write = write_coloured });
	if (out)
		setvbuf(out, NULL, _IOLBF, BUFSIZ);
	return out;
}

static void close_lines(FILE *out)
{
	if (out && out != stdout)
		fclose(out);
}

static int check(const char *path, const char *work, struct image *below, bool repairs, bool is_json)
{
	_cleanup_(freep) char *lines = NULL;
	size_t len = 0;
	FILE *out = is_json ? open_memstream(&lines, &len) : open_lines();
	struct check_result s = { 0 };
	struct layer *l;
	struct stat before;
	int r = out ? layer_open(path, &l) : -ENOMEM;

	if (r < 0) {
		log_error("cannot open %s: %s", path, strerror(-r));
		close_lines(out);
		return 1;
	}
	r = lock_layer(l, repairs);
	if (r == 0) {
		r = fstat(l->rootfd, &before) < 0 ? -errno : check_layer(l, below, repairs, out, &s);
		if (r == 0 && work)
			r = check_work(work, repairs, out, &s);
		if (r < 0)
			log_error("%s: cannot be checked: %s", path, strerror(-r));
		else if (s.found == 0 && !is_json)
			printf("%s: %zu partial files, no damage\n", path, s.files);
		if (repairs)
			futimens(l->rootfd, (struct timespec[]){ before.st_atim, before.st_mtim });
	}
	layer_unref(l);
	close_lines(out);
	if (is_json)
		r = r < 0 ? r : print_json(path, &s, lines);
	return r < 0 || s.found > s.repaired;
}

int cmd_check(int argc, char **argv)
{
	struct mount_opts opts = { 0 };
	struct image *below = NULL;
	struct offline_args args;
	int code = 0;

	if (offline_arguments(argc, argv, "--repair --json", true, &args) < 0)
		return print_usage(stderr);
	if (args.wants_help)
		return print_usage(stdout);
	if (!args.path == !args.nlists) {
		if (args.path)
			usage_unexpected(args.path);
		else
			usage_missing("LAYER, or -o lowerdir=...,upperdir=...");
		return print_usage(stderr);
	}
	if (args.nlists && offline_options(&args, &opts) < 0)
		return 2;
	fdcache_init();
	file_guard_init();
	if (args.nlists && open_below(&opts, &below) < 0)
		code = 1;
	else
		code = check(args.path ? args.path : opts.upper, opts.work, below, args.repairs, args.is_json);
	image_unref(below);
	options_release(&opts);
	return code;
}
