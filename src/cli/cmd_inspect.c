// SPDX-License-Identifier: Apache-2.0
#include "veneer/commands.h"

#include "usage.h"

#include "veneer/cleanup.h"
#include "veneer/format.h"
#include "veneer/inspect.h"
#include "veneer/log.h"
#include "veneer/report.h"
#include "veneer/xattr.h"

#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int inspect_dir(const char *path, FILE *out)
{
	struct layer *l;
	int r = layer_open(path, &l);

	if (r < 0)
		return r;
	r = inspect_layer(l, out);
	layer_unref(l);
	return r;
}

/* A partial file's layer is the nearest directory above it that has a map. */
static int inspect_partial(const char *path, FILE *out)
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
		r = inspect_file(l, full + strlen(dir) + 1, out);
		layer_unref(l);
		return r;
	}
	fprintf(out, "%s: DAMAGED: a partial file, and no directory above it has a map\n", path);
	return -EUCLEAN;
}

static int inspect_path(const char *path, FILE *out)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		r = -errno;
	else if (S_ISDIR(st.st_mode))
		r = inspect_dir(path, out);
	else if (xattr_get(fd, "", FORMAT_PARTIAL_ATTR, NULL, 0) >= 0)
		r = inspect_partial(path, out);
	else
		r = inspect_map(fd, path, out);
	if (r < 0 && r != -EUCLEAN)
		log_error("%s: %s", path, strerror(-r));
	return r < 0 ? 1 : 0;
}

static json_t *lines_json(const char *path, bool is_damaged, char *text)
{
	_cleanup_(freep) char *name = report_path(path);
	json_t *lines = json_array();

	for (char *line = strtok(text, "\n"); lines && line; line = strtok(NULL, "\n")) {
		_cleanup_(freep) char *plain = report_path(line);

		if (!plain || json_array_append_new(lines, json_string(plain)) < 0) {
			json_decref(lines);
			lines = NULL;
		}
	}
	return name && lines ? json_pack("{ss, sb, so}", "path", name, "damaged", is_damaged, "lines", lines) : NULL;
}

/* Exit code. */
static int inspect_json(char **paths)
{
	json_t *all = json_array();
	int code = 0;

	for (; all && *paths; paths++) {
		_cleanup_(freep) char *text = NULL;
		size_t len = 0;
		FILE *out = open_memstream(&text, &len);
		int r = out ? inspect_path(*paths, out) : 1;

		code |= r;
		if (out)
			fclose(out);
		if (!out || json_array_append_new(all, lines_json(*paths, r != 0, text)) < 0)
			code = 1;
	}
	if (!all || json_dumpf(all, stdout, JSON_INDENT(2)) < 0)
		code = 1;
	putchar('\n');
	json_decref(all);
	return code;
}

static int print_usage(FILE *out)
{
	fprintf(out, "usage: veneer inspect [--json] PATH...\n\n"
		     "Print the block map and the partial files of a layer (a directory), the line of one\n"
		     "partial file, or a map file.\n\n"
		     "  --json  one JSON array: of each PATH its lines\n\n"
		     "Exit code: 0; 1 when something is damaged or cannot be read; 2 for wrong usage.\n");
	return out == stderr ? 2 : 0;
}

int cmd_inspect(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' }, { "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 },
	};
	bool is_json = false;
	int code = 0, c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		if (c == 'h')
			return print_usage(stdout);
		if (c == '?') {
			usage_wrong_option(argv, c);
			return print_usage(stderr);
		}
		is_json = true;
	}
	if (optind == argc) {
		usage_missing("PATH");
		return print_usage(stderr);
	}
	if (is_json)
		return inspect_json(argv + optind);
	for (int i = optind; i < argc; i++)
		code |= inspect_path(argv[i], stdout);
	return code;
}
