// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

#include "progress.h"
#include "upper_layers.h"
#include "usage.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/human_units.h"
#include "veneer/base/log.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/layer/branch_receive.h"
#include "veneer/layer/fd_cache.h"
#include "veneer/mount/upper_lock.h"
#include "veneer/sys/file.h"
#include "veneer/sys/probe.h"
#include "veneer/tools/delta.h"
#include "veneer/tools/layer_stack.h"
#include "veneer/tools/oci_layout.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct arguments {
	const char *given, *name, *input;
	char *list; /* lowerdir=... */
	char *layout; /* LAYOUT:TAG */
	bool is_quiet, wants_token, aborts;
};

static int print_usage(void)
{
	printf("usage: veneer receive [OPTION...] MOUNTPOINT\n"
	       "       veneer receive [OPTION...] -o lowerdir=A[:B...] UPPER\n"
	       "       veneer receive --resume-token|--abort MOUNTPOINT|UPPER\n\n"
	       "Make a snapshot from a stream of veneer send on standard input. The snapshot\n"
	       "appears only after all of it has been verified. UPPER is created if it does not\n"
	       "exist; if it is empty and stands on the base of the stream, it shows the\n"
	       "snapshot afterwards. Prints the name of the snapshot.\n\n"
	       "  -o lowerdir=A[:B...]  the layers below UPPER, the same as on the sender\n"
	       "  -i FILE               read from FILE instead of standard input\n"
	       "  --oci LAYOUT:TAG      read from an OCI image layout\n"
	       "  --name NAME           name of the snapshot (default: as on the sender)\n"
	       "  --resume-token        print the token to resume a stream that ended early\n"
	       "  --abort               remove the received part of such a stream\n"
	       "  -q, --quiet           no progress\n\n"
	       "Exit code: 0; 1 when nothing was changed; 2 for wrong usage.\n");
	return 0;
}

struct receiver {
	const struct arguments *args;
	struct upper_layers layers;
	int rootfd; /* of the upper */
	bool is_alone; /* no mount uses the upper or can start to */
	bool is_made; /* the upper was created */
	struct branch_receive to;
	struct branch_chain_entry entry; /* its entry in the chain */
	bool becomes_head;
	struct delta_layer layer;
	struct image *below;
};

static void receiver_release(struct receiver *v)
{
	delta_layer_close(&v->layer);
	image_unref(v->below);
	branch_receive_release(&v->to);
	closep(&v->rootfd);
	upper_layers_release(&v->layers);
}

/* ---- where it goes ---- */

static int open_upper(struct receiver *v)
{
	const char *path = v->layers.upper;
	int r;

	v->is_made = !v->layers.is_mounted && mkdir(path, 0755) == 0;
	if (!v->layers.is_mounted && !v->is_made && errno != EEXIST) {
		log_error("%s: %s", path, strerror(errno));
		return -errno;
	}
	v->rootfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = v->rootfd < 0 ? -errno : v->layers.is_mounted ? 0 : upper_lock_alone(path, v->rootfd);
	v->is_alone = r == 0 && !v->layers.is_mounted;
	if (r < 0)
		log_error("%s: %s", path,
			  r == -EBUSY ? "it is in use by a mount: give its mount point"
				      : strerror(-r));
	return r;
}

static int refuse(const struct receiver *v, int r, const char *what, const char *why)
{
	log_error("%s: %s%s%s", v->args->given, what, *what ? ": " : "", why);
	return r;
}

/* Name the delta of a layer, which has neither number nor name. */
static int name_anew(const struct branch_chain *c, struct branch_chain_entry *e)
{
	char name[BRANCH_CHAIN_NAME_MAX + 1] = "";
	struct branch_chain all = *c;
	int r;

	/* A scratch copy, which is changed and not saved. */
	all.entries = calloc(c->n + 1, sizeof(*all.entries));
	if (!all.entries)
		return -ENOMEM;
	if (c->n)
		memcpy(all.entries, c->entries, c->n * sizeof(*all.entries));
	all.head = 0;
	r = branch_dir_plan(&all, name, &e->id);
	if (r == 0)
		*e = *branch_chain_by_id(&all, e->id);
	branch_chain_release(&all);
	return r;
}

/* Find its entry in the chain. */
static int plan(struct receiver *v, const struct delta_head *head)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	struct branch_chain_entry *e = &v->entry;
	const struct branch_chain_entry *same;
	/* After a crash, part of a snapshot may still be in the live part. */
	int r = v->is_alone ? branch_dir_recover(v->rootfd) : 0;

	r = r ?: branch_dir_load(v->rootfd, &c);
	if (r < 0 && r != -ENOENT)
		return refuse(v, r, "", "the chain of its snapshots cannot be read");
	*e = (struct branch_chain_entry){ .id = head->id,
					  .parent = head->from,
					  .time_ns = head->time_ns };
	strcpy(e->name, head->name);
	r = head->id ? 0 : name_anew(&c, e);
	if (v->args->name)
		strcpy(e->name, v->args->name);
	if (r < 0)
		return refuse(v, r, "", strerror(-r));
	same = branch_chain_by_id(&c, e->id);
	if (same)
		return refuse(v, -EEXIST, same->name, "this snapshot is there already");
	if (branch_chain_by_name(&c, e->name))
		return refuse(v, -EEXIST, e->name,
			      "there is another snapshot of this name: give one by --name");
	if (e->parent && !branch_chain_by_id(&c, e->parent))
		return refuse(v, -ENOENT, "",
			      "it does not have the snapshot that the delta stands on");
	v->becomes_head = v->is_alone && c.head == e->parent &&
			  branch_receive_is_empty(v->rootfd) == 1;
	return 0;
}

static int open_below(struct receiver *v)
{
	_cleanup_(layer_stack_release) struct layer_stack s = { 0 };
	int r = layer_stack_put_snapshots(&s, v->layers.upper, v->entry.parent, 0);

	for (size_t k = 0; r == 0 && k < v->layers.n_lower; k++)
		r = layer_stack_put_lower(&s, v->layers.lower[k]);
	return r ?: image_new(s.v, s.n, &v->below);
}

/* Does the received part belong to the beginning of this stream? */
static int check_token(const struct receiver *v, const struct delta_head *head)
{
	char token[BRANCH_RECEIVE_TOKEN_MAX], wanted[BRANCH_RECEIVE_TOKEN_MAX];
	int r = branch_receive_token(v->rootfd, token);

	delta_token_format(head, wanted, sizeof(wanted));
	if (r < 0 || strcmp(token, wanted) != 0)
		return refuse(v, -EINVAL, "",
			      "it does not have the beginning of this stream, which goes on");
	return 0;
}

static int open_place(struct receiver *v, const struct delta_head *head)
{
	int r = branch_receive_begin(v->rootfd, head->first, &v->to);

	if (r == -EBUSY)
		return refuse(v, r, "", "another delta is being received");
	if (r < 0)
		refuse(v, r, "", strerror(-r));
	return r;
}

static int open_layer(struct receiver *v)
{
	struct probe_dir can;
	int r = probe_work_dir(v->to.work, &can);

	if (r == 0 && can.is_readonly)
		r = -EROFS;
	v->layer = (struct delta_layer){ .rootfd = v->to.root,
					 .work_fd = v->to.work,
					 .below = v->below,
					 .style = { .has_device = can.has_whiteout,
						    .has_rename = can.has_rename_whiteout,
						    .has_trusted = can.has_trusted_xattr,
						    .has_user_attr = can.has_user_xattr } };
	r = r ?: delta_layer_open(&v->layer);
	return r < 0 ? refuse(v, r, "", strerror(-r)) : 0;
}

static int begin(void *arg, const struct delta_head *head, struct delta_layer **ret)
{
	struct receiver *v = arg;
	int r = plan(v, head);

	r = r ?: head->first ? check_token(v, head) : 0;
	r = r ?: open_below(v) ?: open_place(v, head) ?: open_layer(v);
	*ret = &v->layer;
	return r;
}

/* ---- the end ---- */

/* The stream ended early: keep the received part. */
static int keep(struct receiver *v, const struct delta_received *done)
{
	char token[BRANCH_RECEIVE_TOKEN_MAX];
	struct delta_head at = done->head;
	int r = delta_layer_sync(&v->layer);

	at.first = done->entries;
	at.sum = done->sum;
	at.names = done->names;
	delta_token_format(&at, token, sizeof(token));
	delta_layer_close(&v->layer);
	r = r ?: branch_receive_keep(&v->to, token);
	log_error("%s: the stream ended too early%s%s", v->args->given,
		  r < 0 ? "" : ": veneer send --resume ", r < 0 ? "" : token);
	return r;
}

static int publish(struct receiver *v, const struct delta_received *done)
{
	int r = delta_layer_sync(&v->layer);

	delta_layer_close(&v->layer);
	r = r ?: branch_receive_publish(v->rootfd, &v->to, &v->entry, v->becomes_head);
	if (r < 0)
		return refuse(v, r, v->entry.name,
			      r == -EBUSY ? "its snapshots are being changed" : strerror(-r));
	if (!v->args->is_quiet)
		fprintf(stderr, "%s: %s, %s\n", v->args->given,
			human_units_of(done->p.entries, "entry").text,
			human_units_bytes(done->p.bytes).text);
	printf("%s\n", v->entry.name);
	return 0;
}

static void draw(void *arg, const struct delta_progress *p)
{
	if (progress_is_due(arg))
		progress_show(arg, "entry", &(struct progress_point){ p->entries, 0, p->bytes, 0 },
			      "");
}

/* 0, or -errno after a sentence. */
static int receive(struct receiver *v, int fd)
{
	const struct delta_target target = { begin, v };
	struct progress shown;
	const struct delta_hooks hooks = { draw, &shown };
	struct delta_received done;
	int r;

	progress_start(&shown, v->args->is_quiet);
	r = delta_receive(fd, &target, &hooks, &done);
	progress_clear(&shown);
	if (r == -EPIPE && done.head.id && done.entries && keep(v, &done) == 0)
		return r;
	if (r == -EPIPE && !(done.head.id && done.entries))
		log_error("%s: the stream ended too early", v->args->given);
	r = r ?: publish(v, &done);
	/* For a stream that can be resumed, the received part stays. */
	if (r < 0 && v->to.fd >= 0) {
		delta_layer_close(&v->layer);
		branch_receive_cancel(v->rootfd, &v->to);
	}
	return r;
}

/* ---- the command ---- */

/* 0; 1: help was asked for; -EINVAL after a sentence on standard error. */
static int parse(int argc, char **argv, struct arguments *ret)
{
	static const struct option options[] = {
		{ "abort", no_argument, NULL, 'a' },
		{ "help", no_argument, NULL, 'h' },
		{ "name", required_argument, NULL, 'n' },
		{ "oci", required_argument, NULL, 'l' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "resume-token", no_argument, NULL, 't' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":hi:o:q", options, NULL)) != -1) {
		if (c == 'h')
			return 1;
		if (c == '?' || c == ':') {
			usage_wrong_option(argv, c);
			return -EINVAL;
		}
		ret->aborts |= c == 'a';
		ret->wants_token |= c == 't';
		ret->is_quiet |= c == 'q';
		if (c == 'i')
			ret->input = optarg;
		else if (c == 'l')
			ret->layout = optarg;
		else if (c == 'n')
			ret->name = optarg;
		else if (c == 'o')
			ret->list = optarg;
	}
	ret->given = argv[optind];
	if (argc == optind)
		usage_missing("MOUNTPOINT");
	else if (argc - optind > 1)
		usage_unexpected(argv[optind + 1]);
	else if (ret->layout && ret->input)
		log_error("--oci and -i exclude each other");
	else if (ret->name && !branch_chain_is_name(ret->name))
		log_error("%s: a snapshot cannot have this name", ret->name);
	else
		return 0;
	return -EINVAL;
}

/* A descriptor, or -errno after a sentence. */
static int open_input(const struct arguments *args)
{
	const char *tag = args->layout ? oci_layout_split(args->layout) : NULL;
	int fd;

	if (args->layout && tag)
		return oci_layout_open(args->layout, tag);
	if (args->layout) {
		log_error("--oci %s: this is no LAYOUT:TAG", args->layout);
		return -EINVAL;
	}
	fd = args->input ? open(args->input, O_RDONLY | O_CLOEXEC) : dup(STDIN_FILENO);
	if (fd < 0)
		log_error("%s: %s", args->input ?: "standard input", strerror(errno));
	return fd < 0 ? -errno : fd;
}

/* 0, or -errno after a sentence. */
static int run(struct receiver *v)
{
	_cleanup_(closep) int fd = open_input(v->args);
	int r = fd;

	if (fd < 0)
		return fd;
	r = open_upper(v) ?: receive(v, fd);
	/* rmdir fails if a received part is there, which must stay. */
	if (r < 0 && v->is_made)
		rmdir(v->layers.upper);
	return r;
}

static int find_token(const struct receiver *v, char token[BRANCH_RECEIVE_TOKEN_MAX])
{
	struct delta_head head;
	int r = branch_receive_token(v->rootfd, token);

	/* Another user may have put anything there. */
	if (r == 0 && delta_token_parse(token, &head) < 0)
		r = -ENOENT;
	return r < 0 ? refuse(v, r, "", r == -ENOENT ? "no delta has come in part" : strerror(-r))
		     : 0;
}

static int take_away(const struct receiver *v)
{
	int r = branch_receive_abort(v->rootfd);

	return r == 0 ? 0
		      : refuse(v, r, "",
			       r == -ENOENT  ? "no delta has come in part"
			       : r == -EBUSY ? "a delta is being received"
					     : strerror(-r));
}

/* Print or remove the state of a stream that ended early. Exit code. */
static int tell(const struct arguments *args)
{
	struct receiver v = { .args = args, .rootfd = -1, .to = BRANCH_RECEIVE_NONE };
	char none[] = "lowerdir=/", token[BRANCH_RECEIVE_TOKEN_MAX];
	int r = upper_layers_find(args->given, none, "veneer receive", &v.layers);

	v.rootfd = r < 0 ? r : open(v.layers.upper, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r == 0 && v.rootfd < 0)
		r = refuse(&v, -errno, "", strerror(errno));
	if (args->aborts)
		r = r ?: take_away(&v);
	else
		r = r ?: find_token(&v, token);
	if (r == 0 && !args->aborts)
		printf("%s\n", token);
	receiver_release(&v);
	return r < 0;
}

int cmd_receive(int argc, char **argv)
{
	struct receiver v = { .rootfd = -1, .to = BRANCH_RECEIVE_NONE };
	struct arguments args = { 0 };
	int r = parse(argc, argv, &args);

	if (r)
		return r < 0 ? usage_hint("receive") : print_usage();
	if (args.wants_token || args.aborts)
		return tell(&args);
	umask(0);
	fd_cache_init();
	file_guard_init();
	v.args = &args;
	r = upper_layers_find(args.given, args.list, "veneer receive", &v.layers) ?: run(&v);
	receiver_release(&v);
	return r < 0;
}
