// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

#include "usage.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/prefetch/planner.h"
#include "veneer/prefetch/profile.h"
#include "veneer/prefetch/state_dir.h"
#include "veneer/sys/path.h"
#include "veneer/tools/report.h"

#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define FORMAT_NAME "veneer-profile"
#define ERR_SIZE    512

static int print_usage(void)
{
	printf("usage: veneer profile [--state DIR] [--json] list\n"
	       "       veneer profile [--state DIR] [--json] show IMAGE\n"
	       "       veneer profile [--state DIR] export [IMAGE]\n"
	       "       veneer profile [--state DIR] import [FILE]\n"
	       "       veneer profile [--state DIR] forget IMAGE|--all\n\n"
	       "Manage the profiles of images, which record the first reads of their starts.\n"
	       "IMAGE is a number of the list. export prints JSON; import reads it, and replaces\n"
	       "the profiles of these images. Images are identified by device, inode and birth\n"
	       "time of their layers, and so only on this machine.\n\n"
	       "  --state DIR  the state directory (default: the server's)\n"
	       "  --json       list and show: the table as one JSON array\n\n"
	       "Exit code: 0; 1 when it cannot be done; 2 for wrong usage.\n");
	return 0;
}

static void decrefp(json_t **j)
{
	json_decref(*j);
}

static bool parse_key(const char *text, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 16);
	return *text && !*end && !errno && *ret;
}

/* ---- out ---- */

/* A walk over the images. */
struct walk {
	uint64_t wanted; /* 0: all */
	size_t found;
	json_t *images; /* NULL: not collected */
	bool is_json;
};

static json_t *key_json(uint64_t key)
{
	return json_sprintf("%016" PRIx64, key);
}

static int list_one(const struct profile_image *img, void *arg)
{
	struct walk *w = arg;
	_cleanup_(freep) char *label = report_line(img->label);
	char when[32] = "?", precision[16] = "-";
	struct tm tm;

	if (!w->found++)
		printf("%-16s  %6s  %-19s  %9s  %s\n", "image", "starts", "last start", "precision",
		       "top layer");
	if (localtime_r(&(time_t){ img->last_seen }, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
	if (img->score.judged)
		snprintf(precision, sizeof(precision), "%.0f %%%s", img->score.precision * 100,
			 planner_trusts(&img->score) ? "" : ", off");
	printf("%016" PRIx64 "  %6u  %-19s  %9s  %s\n", img->key, img->starts, when, precision,
	       label ? label : "?");
	return 0;
}

/* null: no expectation was judged yet. */
static json_t *precision_json(const struct profile_score *score)
{
	return score->judged ? json_real(score->precision) : json_null();
}

static int list_one_json(const struct profile_image *img, void *arg)
{
	struct walk *w = arg;
	_cleanup_(freep) char *label = report_path(img->label);

	return json_array_append_new(
		       w->images, json_pack("{s:o, s:I, s:I, s:o, s:b, s:s?}", "image",
					    key_json(img->key), "starts", (json_int_t)img->starts,
					    "last_start", (json_int_t)img->last_seen, "precision",
					    precision_json(&img->score), "is_trusted",
					    planner_trusts(&img->score), "label", label)) < 0
		       ? -ENOMEM
		       : 0;
}

static int show_json(const struct profile_image *img, json_t *items)
{
	for (size_t i = 0; i < img->nitems; i++) {
		const struct profile_item *item = &img->items[i];
		_cleanup_(freep) char *path = report_path(img->files[item->file].path);

		if (json_array_append_new(
			    items, json_pack("{s:f, s:I, s:I, s:s, s:I, s:s?}", "chance",
					     predictor_chance(&item->history, img->starts),
					     "starts", (json_int_t)item->history.count, "after_ms",
					     (json_int_t)item->history.first_ms, "what",
					     item->kind == PROFILE_READ ? "read" : "written",
					     "extent", (json_int_t)item->extent, "path", path)) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int show_one(const struct profile_image *img, void *arg)
{
	struct walk *w = arg;

	if (img->key != w->wanted)
		return 0;
	w->found++;
	if (w->is_json)
		return show_json(img, w->images);
	printf("%6s  %6s  %8s  %-7s  %s\n", "chance", "starts", "after ms", "what",
	       "extent of 32 KiB, file");
	for (size_t i = 0; i < img->nitems; i++) {
		const struct profile_item *item = &img->items[i];
		_cleanup_(freep) char *path = report_line(img->files[item->file].path);

		printf("%4.0f %%  %6u  %8u  %-7s  %" PRIu32 " %s\n",
		       predictor_chance(&item->history, img->starts) * 100, item->history.count,
		       item->history.first_ms, item->kind == PROFILE_READ ? "read" : "written",
		       item->extent, path ? path : "?");
	}
	return 0;
}

/* Any bytes as a JSON string: Latin-1, one character per byte. */
static json_t *bytes_json(const char *s)
{
	_cleanup_(freep) char *text = malloc(2 * strlen(s) + 1);
	char *to = text;

	for (; text && *s; s++) {
		const unsigned char c = (unsigned char)*s;

		if (c >= 0x80)
			*to++ = (char)(0xc0 | c >> 6);
		*to++ = (char)(c >= 0x80 ? 0x80 | (c & 0x3f) : c);
	}
	if (!text)
		return NULL;
	*to = '\0';
	return json_string(text);
}

static json_t *items_json(const struct profile_image *img, size_t file)
{
	json_t *items = json_array();

	for (size_t i = 0; i < img->nitems; i++) {
		const struct profile_item *item = &img->items[i];

		if (item->file == file)
			json_array_append_new(
				items, json_pack("{s:s, s:I, s:o, s:I, s:I, s:I, s:I}", "kind",
						 item->kind == PROFILE_READ ? "read" : "written",
						 "extent", (json_int_t)item->extent, "seen",
						 key_json(item->history.seen), "count",
						 (json_int_t)item->history.count, "first_ms",
						 (json_int_t)item->history.first_ms, "place",
						 (json_int_t)item->history.order, "last_seen",
						 (json_int_t)item->last_seen));
	}
	return items;
}

static int export_one(const struct profile_image *img, void *arg)
{
	struct walk *w = arg;
	json_t *layers = json_array(), *files = json_array();

	if (w->wanted && img->key != w->wanted) {
		json_decref(layers);
		json_decref(files);
		return 0;
	}
	w->found++;
	for (size_t i = 0; i < img->nlayers; i++)
		json_array_append_new(layers, key_json(img->layers[i]));
	for (size_t i = 0; i < img->nfiles; i++)
		json_array_append_new(files, json_pack("{s:o, s:o, s:o}", "path",
						       bytes_json(img->files[i].path), "layer",
						       key_json(img->files[i].layer), "items",
						       items_json(img, i)));
	return json_array_append_new(
		       w->images,
		       json_pack("{s:o, s:o, s:I, s:I, s:I, s:f, s:o, s:o}", "image",
				 key_json(img->key), "label", bytes_json(img->label), "starts",
				 (json_int_t)img->starts, "last_seen", (json_int_t)img->last_seen,
				 "judged", (json_int_t)img->score.judged, "precision",
				 img->score.precision, "layers", layers, "files", files)) < 0
		       ? -ENOMEM
		       : 0;
}

/* ---- in ---- */

static bool key_of(const json_t *j, const char *name, uint64_t *ret)
{
	const char *text = json_string_value(json_object_get(j, name));

	return text && parse_key(text, ret);
}

static uint32_t number(const json_t *j, const char *name)
{
	const json_int_t n = json_integer_value(json_object_get(j, name));

	return n < 0 ? 0 : n > INT32_MAX ? INT32_MAX : (uint32_t)n;
}

/* The inverse of bytes_json; malloc'd, NULL: not a result of it. */
static char *bytes_of(const json_t *j, const char *name)
{
	const char *s = json_string_value(json_object_get(j, name));
	char *text = s ? malloc(strlen(s) + 1) : NULL, *to = text;

	for (; text && *s; s++) {
		const unsigned char c = (unsigned char)*s;

		if (c >= 0xc4) {
			freep(&text);
			return NULL;
		}
		*to++ = c < 0x80 ? *s : (char)((c & 3) << 6 | (*++s & 0x3f));
	}
	if (text)
		*to = '\0';
	return text;
}

static bool take_item(const json_t *j, uint32_t file, struct profile_image *img)
{
	const char *kind = json_string_value(json_object_get(j, "kind"));
	struct profile_item *item = &img->items[img->nitems];

	*item = (struct profile_item){
		.file = file,
		.extent = number(j, "extent"),
		.last_seen = json_integer_value(json_object_get(j, "last_seen")),
		.history = { .count = number(j, "count"),
			     .first_ms = number(j, "first_ms"),
			     .order = number(j, "place") },
	};
	if (!kind || !key_of(j, "seen", &item->history.seen) ||
	    (strcmp(kind, "read") != 0 && strcmp(kind, "written") != 0))
		return false;
	item->kind = !strcmp(kind, "read") ? PROFILE_READ : PROFILE_WRITTEN;
	img->nitems++;
	return true;
}

static bool take_file(const json_t *j, struct profile_image *img)
{
	const json_t *items = json_object_get(j, "items");
	struct profile_file *f = &img->files[img->nfiles];
	size_t n = json_array_size(items);

	f->path = bytes_of(j, "path");
	if (!f->path)
		return false;
	img->nfiles++;
	if (!path_is_plain(f->path, strlen(f->path)) || !key_of(j, "layer", &f->layer) ||
	    img->nitems + n > PROFILE_ITEMS_MAX)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!take_item(json_array_get(items, i), (uint32_t)img->nfiles - 1, img))
			return false;
	return true;
}

static bool take_image(const json_t *j, struct profile_image *img)
{
	const json_t *layers = json_object_get(j, "layers"), *files = json_object_get(j, "files");
	const size_t nlayers = json_array_size(layers), nfiles = json_array_size(files);
	const double precision = json_number_value(json_object_get(j, "precision"));

	*img = (struct profile_image){
		.starts = number(j, "starts"),
		.last_seen = json_integer_value(json_object_get(j, "last_seen")),
		.score = { number(j, "judged"), precision >= 0 && precision <= 1 ? precision : 0 },
		.label = bytes_of(j, "label"),
		.layers = calloc(nlayers + 1, sizeof(*img->layers)),
		.files = calloc(nfiles + 1, sizeof(*img->files)),
		.items = calloc(PROFILE_ITEMS_MAX, sizeof(*img->items)),
	};
	if (!img->label || !img->layers || !img->files || !img->items ||
	    !key_of(j, "image", &img->key) || !img->starts)
		return false;
	for (; img->nlayers < nlayers; img->nlayers++) {
		const char *text = json_string_value(json_array_get(layers, img->nlayers));

		if (!text || !parse_key(text, &img->layers[img->nlayers]))
			return false;
	}
	for (size_t i = 0; i < nfiles; i++)
		if (!take_file(json_array_get(files, i), img))
			return false;
	return true;
}

static int import(int dirfd, const char *path, char *err, size_t err_size)
{
	json_error_t why;
	_cleanup_(decrefp) json_t *j = path ? json_load_file(path, 0, &why)
					    : json_loadf(stdin, 0, &why);
	const json_t *images = json_object_get(j, "images");
	const char *format = json_string_value(json_object_get(j, "format"));
	int r = 0;

	snprintf(err, err_size, "%s: %s", path ? path : "standard input",
		 j ? "it is no exported profile" : why.text);
	if (!format || strcmp(format, FORMAT_NAME) != 0 ||
	    number(j, "version") != PROFILE_VERSION || !json_is_array(images))
		return -EINVAL;
	for (size_t i = 0; r == 0 && i < json_array_size(images); i++) {
		_cleanup_(profile_image_release) struct profile_image img = { 0 };

		r = take_image(json_array_get(images, i), &img)
			    ? profile_put(dirfd, &img, err, err_size)
			    : -EINVAL;
	}
	return r;
}

/* ---- the commands ---- */

static int print_json(const json_t *j)
{
	return json_dumpf(j, stdout, JSON_INDENT(1)) < 0 || printf("\n") < 0 ? -EIO : 0;
}

static int list_or_show(int dirfd, uint64_t key, bool is_json, char *err, size_t err_size)
{
	_cleanup_(decrefp) json_t *j = json_array();
	struct walk w = { .wanted = key, .images = j, .is_json = is_json };
	int r = profile_each(dirfd, key != 0,
			     key       ? show_one
			     : is_json ? list_one_json
				       : list_one,
			     &w, err, err_size);

	if (r == 0 && key && !w.found)
		return -ENOENT;
	/* What is damaged hides no other. */
	return (is_json ? print_json(j) : 0) ?: r;
}

static int export(int dirfd, uint64_t key, char *err, size_t err_size)
{
	_cleanup_(decrefp) json_t *j = json_pack("{s:s, s:i, s:[]}", "format", FORMAT_NAME,
						 "version", PROFILE_VERSION, "images");
	struct walk w = { .wanted = key, .images = json_object_get(j, "images") };
	int r = profile_each(dirfd, true, export_one, &w, err, err_size);

	if (r == 0 && key && !w.found)
		return -ENOENT;
	return print_json(j) ?: r;
}

/* The parsed command line. */
struct args {
	const char *state, *what, *arg;
	bool is_all, is_json, takes_image;
};

static int act(int dirfd, const struct args *a, uint64_t key, char *err, size_t err_size)
{
	if (!strcmp(a->what, "list") || !strcmp(a->what, "show"))
		return list_or_show(dirfd, key, a->is_json, err, err_size);
	if (!strcmp(a->what, "export"))
		return export(dirfd, key, err, err_size);
	return !strcmp(a->what, "import") ? import(dirfd, a->arg, err, err_size)
					  : profile_forget(dirfd, key, err, err_size);
}

static int run(const struct args *a, uint64_t key)
{
	const char *what = a->what;
	const bool is_readonly = strcmp(what, "import") != 0 && strcmp(what, "forget") != 0;
	_cleanup_(freep) char *path = a->state ? strdup(a->state) : state_dir_path();
	_cleanup_(closep) int dir = path ? state_dir_open(path, is_readonly) : -ENOENT;
	char err[ERR_SIZE] = "";
	int r = dir;

	/* no profile was learned yet */
	if (r == -ENOENT && is_readonly && !key)
		return a->is_json ? puts("[]") < 0 : 0;
	if (r >= 0)
		r = act(dir, a, key, err, sizeof(err));
	if (r == -ENOENT && key)
		log_error("%s: no such image is known", a->arg);
	else if (r < 0)
		log_error("%s: %s", path ? path : "no state directory", *err ? err : strerror(-r));
	return r < 0 ? 1 : 0;
}

/* 0, or -EINVAL after a sentence on standard error. */
static int parse_arguments(int argc, char **argv, struct args *a)
{
	const char *what = a->what = optind < argc ? argv[optind] : "";
	const char *arg = a->arg = optind + 1 < argc ? argv[optind + 1] : NULL;
	const bool lists = !strcmp(what, "list"), shows = !strcmp(what, "show"),
		   forgets = !strcmp(what, "forget");

	a->takes_image = shows || !strcmp(what, "export") || forgets;
	if (!*what)
		usage_missing("list, show, export, import or forget");
	else if (!a->takes_image && !lists && strcmp(what, "import") != 0)
		usage_unexpected(what);
	else if (optind + 2 < argc || (lists && arg))
		usage_unexpected(lists ? arg : argv[optind + 2]);
	else if (shows && !arg)
		usage_missing("IMAGE");
	else if (forgets && !arg == !a->is_all)
		usage_missing("IMAGE or --all, one of the two");
	else if (a->is_json && !lists && !shows)
		log_error("--json is for list and show");
	else
		return 0;
	return -EINVAL;
}

int cmd_profile(int argc, char **argv)
{
	static const struct option options[] = {
		{ "state", required_argument, NULL, 's' },
		{ "all", no_argument, NULL, 'a' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	struct args a = { 0 };
	uint64_t key = 0;
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		if (c == 's')
			a.state = optarg;
		else if (c == 'a')
			a.is_all = true;
		else if (c == 'j')
			a.is_json = true;
		else if (c == 'h')
			return print_usage();
		else
			break;
	}
	if (c != -1)
		usage_wrong_option(argv, c);
	if (c != -1 || parse_arguments(argc, argv, &a) < 0)
		return usage_hint("profile");
	if (a.takes_image && a.arg && !parse_key(a.arg, &key)) {
		log_error("%s: no such image is known", a.arg);
		return 1;
	}
	return run(&a, key);
}
