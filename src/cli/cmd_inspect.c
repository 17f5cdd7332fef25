// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

#include "mount_find.h"
#include "usage.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/map/format.h"
#include "veneer/sys/xattr.h"
#include "veneer/tools/inspect.h"
#include "veneer/tools/report.h"

#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int inspect_dir(const char *path, const struct inspect_out *to)
{
	struct layer *l;
	int r = layer_open(path, &l);

	if (r < 0)
		return r;
	r = inspect_layer(l, to);
	layer_unref(l);
	return r;
}

static int inspect_snapshot(const char *upper, const struct branch_chain *c,
			    const struct branch_chain_entry *e, const struct inspect_out *to)
{
	const struct branch_chain_entry *on = branch_chain_by_id(c, e->parent);
	_cleanup_(freep) char *path = branch_dir_path(upper, e->id);

	if (!path)
		return -ENOMEM;
	inspect_say(to, "branch", path, "", "snapshot %s, on %s%s", e->name,
		    on ? on->name : "no other", c->head == e->id ? "; the upper is on it" : "");
	return inspect_dir(path, to);
}

static int inspect_snapshots(const char *path, const struct inspect_out *to)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	int worst = 0, r = fd < 0 ? -errno : branch_dir_load(fd, &c);

	if (r == -ENOENT)
		return 0;
	if (r == -EUCLEAN || r == -EPROTO)
		inspect_say(to, "damaged", path, BRANCH_DIR_NAME,
			    "DAMAGED: the chain of its snapshots%s",
			    r == -EPROTO ? ": a newer version wrote it" : "");
	for (size_t k = 0; k < c.n && (r == 0 || r == -EUCLEAN); k++) {
		r = inspect_snapshot(path, &c, &c.entries[k], to);
		worst = r < 0 ? r : worst;
	}
	return r ?: worst;
}

/* The layer of a partial file is the nearest directory above it with a map. */
static int inspect_partial(const char *path, const struct inspect_out *to)
{
	_cleanup_(freep) char *full = realpath(path, NULL);
	_cleanup_(freep) char *dir = full ? strdup(full) : NULL;
	struct layer *l;
	int r;

	if (!dir)
		return -errno;
	for (char *slash = strrchr(dir, '/'); slash; slash = strrchr(dir, '/')) {
		char map[PATH_MAX + sizeof(MAPFILE_NAME)];

		*slash = '\0';
		snprintf(map, sizeof(map), "%s/" MAPFILE_NAME, dir);
		if (faccessat(AT_FDCWD, map, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		r = layer_open(*dir ? dir : "/", &l);
		if (r < 0)
			return r;
		r = inspect_file(l, full + strlen(dir) + 1, to);
		layer_unref(l);
		return r;
	}
	inspect_say(to, "damaged", NULL, path,
		    "DAMAGED: a partial file, and no directory above it has a map");
	return -EUCLEAN;
}

static int inspect_upper(const char *path, const struct inspect_out *to)
{
	int r = inspect_dir(path, to), below = 0;

	if (r == 0 || r == -EUCLEAN)
		below = inspect_snapshots(path, to);
	return below == 0 || (below == -EUCLEAN && r < 0) ? r : below;
}

static int inspect_path(const char *given, const struct inspect_out *to)
{
	_cleanup_(freep) char *upper = NULL;
	_cleanup_(closep) int fd = -1;
	const char *path;
	struct stat st;
	int r = mount_find_upper(given, "veneer inspect", &upper);

	if (r < 0)
		return 1;
	path = upper ? upper : given;
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		r = -errno;
	else if (S_ISDIR(st.st_mode))
		r = inspect_upper(path, to);
	else if (xattr_get(fd, "", FORMAT_PARTIAL_ATTR, NULL, 0) >= 0)
		r = inspect_partial(path, to);
	else
		r = inspect_map(fd, NULL, path, to);
	if (r < 0 && r != -EUCLEAN)
		log_error("%s: %s", path, strerror(-r));
	return r < 0 ? 1 : 0;
}

/* ---- output ---- */

/* The current line, which is alone in the stream. */
struct lines {
	json_t *list; /* collects the lines; else they are printed */
	FILE *out;
	char *text; /* buffer of out */
	size_t len;
	bool has_failed;
};

/* Take the line from the stream, malloc'd; NULL: no memory. */
static char *take_line(struct lines *l)
{
	char *text = NULL;

	if (fflush(l->out) == 0 && l->text) {
		l->text[l->len ? l->len - 1 : 0] = '\0';
		text = report_line(l->text);
	}
	rewind(l->out);
	return text;
}

static void add_line(void *arg, const char *code, const char *layer, const char *path)
{
	struct lines *l = arg;
	_cleanup_(freep) char *layer_text = layer ? report_path(layer) : NULL,
			      *path_text = report_path(path), *text = take_line(l);

	if (!text || !path_text || (layer && !layer_text) ||
	    json_array_append_new(l->list, json_pack("{ss, ss?, ss, ss}", "code", code, "layer",
						     layer_text, "path", path_text, "text",
						     text + strspn(text, " "))) < 0)
		l->has_failed = true;
}

static void print_line(void *arg, const char *code, const char *layer, const char *path)
{
	struct lines *l = arg;
	_cleanup_(freep) char *text = take_line(l);

	(void)code;
	(void)layer;
	(void)path;
	if (!text || puts(text) < 0)
		l->has_failed = true;
}

/* Exit code. */
static int inspect_text(const char *path)
{
	struct lines l = { .list = NULL };
	const struct inspect_out to = { .out = open_memstream(&l.text, &l.len),
					.line = print_line,
					.arg = &l };
	int code = 1;

	l.out = to.out;
	if (to.out) {
		code = inspect_path(path, &to);
		fclose(to.out);
	}
	if (!to.out || l.has_failed)
		log_error("%s: cannot be printed", path);
	free(l.text);
	return l.has_failed ? 1 : code;
}

/* NULL: no memory. *ret_code: the exit code. */
static json_t *path_json(const char *path, int *ret_code)
{
	_cleanup_(freep) char *name = report_path(path);
	struct lines l = { .list = json_array() };
	const struct inspect_out to = { .out = open_memstream(&l.text, &l.len),
					.line = add_line,
					.arg = &l };
	json_t *j = NULL;

	l.out = to.out;
	if (l.list && to.out)
		*ret_code = inspect_path(path, &to);
	if (to.out)
		fclose(to.out);
	free(l.text);
	if (name && l.list && to.out && !l.has_failed)
		j = json_pack("{ss, sb, sO}", "path", name, "damaged", *ret_code != 0, "lines",
			      l.list);
	json_decref(l.list);
	return j;
}

/* Exit code. */
static int inspect_json(char **paths)
{
	json_t *all = json_array();
	int code = 0;

	for (; all && *paths; paths++) {
		int r = 1;

		if (json_array_append_new(all, path_json(*paths, &r)) < 0)
			code = 1;
		code |= r;
	}
	if (!all || json_dumpf(all, stdout, JSON_INDENT(2)) < 0)
		code = 1;
	putchar('\n');
	json_decref(all);
	return code;
}

static int print_usage(void)
{
	printf("usage: veneer inspect [--json] PATH...\n\n"
	       "Print the block map and the partial files of a layer (a directory, or a mount\n"
	       "point for its upper), one partial file, or a map file.\n\n"
	       "  --json  one JSON array with the lines of each PATH\n\n"
	       "Exit code: 0; 1 when something is damaged or cannot be read; 2 for wrong usage.\n");
	return 0;
}

int cmd_inspect(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	bool is_json = false;
	int code = 0, c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		if (c == 'h')
			return print_usage();
		if (c == '?') {
			usage_wrong_option(argv, c);
			return usage_hint("inspect");
		}
		is_json = true;
	}
	if (optind == argc) {
		usage_missing("PATH");
		return usage_hint("inspect");
	}
	if (is_json)
		return inspect_json(argv + optind);
	for (int i = optind; i < argc; i++)
		code |= inspect_text(argv[i]);
	return code;
}
