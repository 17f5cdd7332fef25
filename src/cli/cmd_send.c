// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

#include "mount_find.h"
#include "output_file.h"
#include "progress.h"
#include "snapshot_call.h"
#include "upper_layers.h"
#include "usage.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/human_units.h"
#include "veneer/base/log.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/layer/fd_cache.h"
#include "veneer/sys/file.h"
#include "veneer/tools/delta.h"
#include "veneer/tools/oci_layout.h"

#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

struct arguments {
	char *given, *list; /* list: lowerdir=... */
	const char *from, *output, *token;
	char *layout; /* LAYOUT:TAG */
	bool is_compressed, is_dry, is_json, is_quiet;
};

static int print_usage(void)
{
	printf("usage: veneer send [OPTION...] [--from SNAPSHOT] MOUNTPOINT[@SNAPSHOT]\n"
	       "       veneer send [OPTION...] -o lowerdir=A[:B...] UPPER[@SNAPSHOT]\n\n"
	       "Write the changes of a snapshot, by block, as a stream from which veneer receive\n"
	       "makes the snapshot elsewhere. For a mount without @SNAPSHOT one is taken now;\n"
	       "for an UPPER without a mount all of its changes are sent. tar can list the\n"
	       "stream.\n\n"
	       "  --from SNAPSHOT       send only the changes since this snapshot, which the\n"
	       "                        receiver must have; else since the lower layers\n"
	       "  -o lowerdir=A[:B...]  the layers below UPPER\n"
	       "  -o FILE               write to FILE instead of standard output\n"
	       "  --oci LAYOUT:TAG      write to an OCI image layout, as an artifact that skopeo\n"
	       "                        copies to a registry\n"
	       "  -z, --zstd            compress the stream\n"
	       "  -n, --dry-run         only print the size\n"
	       "  --json                print the size as a JSON object\n"
	       "  --resume TOKEN        resume a stream; veneer receive prints the token\n"
	       "  -q, --quiet           no progress\n\n"
	       "Exit code: 0; 1 when something cannot be read or written; 2 for wrong usage.\n");
	return 0;
}

/* ---- source ---- */

struct delta_source {
	struct upper_layers layers;
	struct layer_stack stack;
	struct delta_head head;
	struct diff d;
	int fd; /* of the upper */
};

static void delta_source_release(struct delta_source *s)
{
	diff_release(&s->d);
	layer_stack_release(&s->stack);
	upper_layers_release(&s->layers);
	closep(&s->fd);
}

/* Split the name of the snapshot off, if there is one: a path may have an @ itself. */
static char *split_name(char *given)
{
	_cleanup_(freep) char *path = mount_find_path(given);
	char *at = strrchr(given, '@');
	struct stat st;

	if (!at || (path && mount_find_is_ours(path)) || stat(given, &st) == 0)
		return NULL;
	*at = '\0';
	return at + 1;
}

static const struct branch_chain_entry *find(const struct branch_chain *c, const char *name)
{
	const struct branch_chain_entry *e = branch_chain_by_name(c, name);

	if (!e)
		log_error("%s: there is no snapshot of this name", name);
	return e;
}

static bool stands_on(const struct branch_chain *c, const struct branch_chain_entry *e,
		      const struct branch_chain_entry *from)
{
	do
		e = branch_chain_by_id(c, e->parent);
	while (e && e != from);
	return e;
}

/* Fill the head with the snapshot and its base. 0, or -errno after a sentence. */
static int choose(struct delta_source *s, const char *name, const char *from_name)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	const struct branch_chain_entry *e, *from;
	int r = branch_dir_load(s->fd, &c);

	if (r < 0 && r != -ENOENT) {
		log_error("%s: its snapshots cannot be read: %s", s->layers.upper, strerror(-r));
		return r;
	}
	e = find(&c, name);
	from = e && from_name ? find(&c, from_name) : NULL;
	if (!e || (from_name && !from))
		return -ENOENT;
	if (from && !stands_on(&c, e, from)) {
		log_error("%s does not stand on %s", name, from_name);
		return -EINVAL;
	}
	s->head = (struct delta_head){ .id = e->id,
				       .from = from ? from->id : 0,
				       .time_ns = e->time_ns };
	strcpy(s->head.name, e->name);
	return 0;
}

/* Resume a stream whose beginning the receiver has. */
static int resume(struct delta_source *s, const char *token)
{
	struct delta_head h;

	if (delta_token_parse(token, &h) < 0 || h.id != s->head.id || h.from != s->head.from) {
		log_error("%s: this token is not of this snapshot", token);
		return -EINVAL;
	}
	s->head.first = h.first;
	s->head.sum = h.sum;
	s->head.names = h.names;
	return 0;
}

/* Hold an upper without a mount, so that none can start. */
static int hold_upper(const struct delta_source *s)
{
	if (flock(s->fd, LOCK_SH | LOCK_NB) == 0)
		return 0;
	log_error("%s is in use by a mount: send a snapshot of it", s->layers.upper);
	return -EBUSY;
}

static int put_layers(struct delta_source *s, size_t *ret_n)
{
	const char *upper = s->layers.upper;
	int r = s->head.id ? layer_stack_put_snapshots(&s->stack, upper, s->head.id, s->head.from)
			   : layer_stack_put_upper(&s->stack, upper);

	*ret_n = s->stack.n;
	if (s->head.from)
		r = r ?: layer_stack_put_snapshots(&s->stack, upper, s->head.from, 0);
	for (size_t k = 0; r == 0 && k < s->layers.n_lower; k++)
		r = layer_stack_put_lower(&s->stack, s->layers.lower[k]);
	return r;
}

static int take_snapshot(const char *path, char **ret_name)
{
	char err[PATH_MAX * 2];
	int r = snapshot_call(path, NULL, "", ret_name, err, sizeof(err));

	if (r < 0)
		log_error("%s: %s", path, err);
	return r;
}

/* 0, or -errno after a sentence. */
static int open_source(struct delta_source *s, const struct arguments *args, struct progress *shown)
{
	_cleanup_(freep) char *taken = NULL;
	const char *name = split_name(args->given);
	const struct step step = progress_walk(shown);
	size_t n_upper;
	int r = upper_layers_find(args->given, args->list, "veneer send", &s->layers);

	if (r == 0 && s->layers.is_mounted && !name) {
		r = take_snapshot(args->given, &taken);
		name = taken;
	}
	if (r < 0)
		return r;
	s->fd = open(s->layers.upper, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->fd < 0) {
		log_error("%s: %s", s->layers.upper, strerror(errno));
		return -errno;
	}
	if (!name && (args->from || args->token)) {
		log_error("--from and --resume are for snapshots: %s@SNAPSHOT", args->given);
		return -EINVAL;
	}
	r = name ? choose(s, name, args->from) : hold_upper(s);
	r = r ?: args->token ? resume(s, args->token) : 0;
	r = r ?: put_layers(s, &n_upper);
	return r ?: diff_read_stack(&s->stack, n_upper, false, &step, &s->d);
}

/* ---- sending ---- */

static void draw(void *arg, const struct delta_progress *p)
{
	if (progress_is_due(arg))
		progress_show(arg, "entry", &(struct progress_point){ p->entries, 0, p->bytes, 0 },
			      "");
}

static void print_size(const struct arguments *args, const struct delta_progress *p, FILE *to)
{
	if (args->is_json)
		fprintf(to,
			"{\"entries\": %" PRIu64 ", \"bytes\": %" PRIu64
			", \"file_bytes\": %" PRIu64 "}\n",
			p->entries, p->bytes, p->whole);
	else
		fprintf(to, "%s: %s, %s of the %s of the changed files\n", args->given,
			human_units_of(p->entries, "entry").text, human_units_bytes(p->bytes).text,
			human_units_bytes(p->whole).text);
}

static int send_to_layout(struct delta_source *s, const struct arguments *args,
			  const struct delta_hooks *hooks, struct delta_progress *ret)
{
	_cleanup_(oci_layout_release) struct oci_layout l = OCI_LAYOUT_NONE;
	const char *tag = oci_layout_split(args->layout);
	int r;

	if (!tag) {
		log_error("--oci %s: this is no LAYOUT:TAG", args->layout);
		return -EINVAL;
	}
	r = oci_layout_begin(args->layout, &l);
	r = r ?: delta_send(&s->d, &s->head, true, l.fd, hooks, ret);
	return r ?: oci_layout_commit(&l, tag, &s->head, ret);
}

static int send_to_file(struct delta_source *s, const struct arguments *args,
			const struct delta_hooks *hooks, struct delta_progress *ret)
{
	struct output_file to = { .path = args->output, .fd = -1 };
	int r = output_file_open(&to);

	if (r < 0)
		return r;
	r = delta_send(&s->d, &s->head, args->is_compressed, to.fd, hooks, ret);
	return output_file_close(&to, r);
}

/* 0, or -errno after a sentence. */
static int send_it(struct delta_source *s, const struct arguments *args, struct progress *shown)
{
	const struct delta_hooks hooks = { draw, shown };
	struct delta_progress done;
	int r = args->is_dry   ? delta_send(&s->d, &s->head, false, -1, &hooks, &done)
		: args->layout ? send_to_layout(s, args, &hooks, &done)
			       : send_to_file(s, args, &hooks, &done);

	progress_clear(shown);
	if (r == 0 && (args->is_dry || !args->is_quiet))
		print_size(args, &done, args->is_dry ? stdout : stderr);
	return r;
}

/* ---- the command ---- */

static const char short_options[] = ":hno:qz";

static int take_option(int c, struct arguments *ret)
{
	switch (c) {
	case 'f':
		ret->from = optarg;
		return 0;
	case 'j':
		ret->is_json = true;
		return 0;
	case 'n':
		ret->is_dry = true;
		return 0;
	case 'l':
		ret->layout = optarg;
		return 0;
	case 'q':
		ret->is_quiet = true;
		return 0;
	case 'r':
		ret->token = optarg;
		return 0;
	case 'z':
		ret->is_compressed = true;
		return 0;
	default:
		if (strstr(optarg, "lowerdir="))
			ret->list = optarg;
		else
			ret->output = optarg;
		return 0;
	}
}

/* 0; 1: help was asked for; -EINVAL after a sentence on standard error. */
static int parse(int argc, char **argv, struct arguments *ret)
{
	static const struct option options[] = {
		{ "dry-run", no_argument, NULL, 'n' },
		{ "from", required_argument, NULL, 'f' },
		{ "help", no_argument, NULL, 'h' },
		{ "json", no_argument, NULL, 'j' },
		{ "oci", required_argument, NULL, 'l' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "resume", required_argument, NULL, 'r' },
		{ "zstd", no_argument, NULL, 'z' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, short_options, options, NULL)) != -1) {
		if (c == 'h')
			return 1;
		if (c == '?' || c == ':') {
			usage_wrong_option(argv, c);
			return -EINVAL;
		}
		take_option(c, ret);
	}
	ret->given = argv[optind];
	if (argc == optind)
		usage_missing("MOUNTPOINT");
	else if (argc - optind > 1)
		usage_unexpected(argv[optind + 1]);
	else if (ret->layout && (ret->output || ret->token))
		log_error("--oci excludes -o FILE and --resume");
	else
		return 0;
	return -EINVAL;
}

int cmd_send(int argc, char **argv)
{
	_cleanup_(delta_source_release) struct delta_source s = { .fd = -1 };
	struct arguments args = { 0 };
	struct progress shown;
	int r = parse(argc, argv, &args);

	if (r)
		return r < 0 ? usage_hint("send") : print_usage();
	signal(SIGPIPE, SIG_IGN);
	fd_cache_init();
	file_guard_init();
	progress_start(&shown, args.is_quiet);
	r = open_source(&s, &args, &shown);
	progress_clear(&shown);
	progress_start(&shown, args.is_quiet);
	return r < 0 || send_it(&s, &args, &shown) < 0;
}
