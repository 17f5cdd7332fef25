// SPDX-License-Identifier: Apache-2.0
#include "veneer/mount/options.h"

#include "options-internal.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/container_path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_WINDOW_S 15

static void parse_release(struct options_parser *p)
{
	options_release(&p->o);
	buf_release(&p->kernel);
}

/* Is it an option of fstab(5) for mount(8) and systemd, which they pass on nevertheless? */
static bool is_for_mount(const char *arg)
{
	static const char *const words[] = {
		"_netdev", "auto",  "defaults", "group", "nofail",
		"nouser",  "owner", "user",	"users", NULL,
	};

	for (const char *const *w = words; *w; w++)
		if (!strcmp(arg, *w))
			return true;
	return !strncmp(arg, "comment=", 8) || !strncmp(arg, "user=", 5) ||
	       !strncmp(arg, "x-", 2) || !strncmp(arg, "X-", 2);
}

/* Is it an option of an earlier build? */
static bool is_removed(const char *arg)
{
	return !strncmp(arg, "predictor=", 10);
}

static int remember_unknown(struct options_parser *p, const char *arg)
{
	if ((p->is_helper && is_for_mount(arg)) || (p->is_saved && is_removed(arg)))
		return 0;
	return options_strv_push(&p->o.unknown, &p->o.n_unknown, strdup(arg));
}

static int set(struct options_parser *p, char *opt)
{
	int r = options_set(p, opt);

	return r == -ENOENT ? remember_unknown(p, opt) : r;
}

static int parse_option_list(struct options_parser *p, const char *list)
{
	_cleanup_(freep) char *copy = strdup(list);
	bool may_quote = true;
	char *s = copy;

	if (!copy)
		return -ENOMEM;
	for (char *opt = s; opt; opt = s) {
		int r;

		while (*s && *s != ',') {
			char *closing = *s == '"' && may_quote ? strchr(s + 1, '"') : NULL;

			/* A quote without a closing one is part of a name. */
			if (*s == '"')
				may_quote = closing != NULL;
			if (closing)
				s = closing;
			else if (*s == '\\' && s[1])
				s++;
			s++;
		}
		if (*s)
			*s++ = '\0';
		else
			s = NULL;
		r = set(p, opt);
		if (r < 0)
			return r;
	}
	return 0;
}

static int parse_dash(struct options_parser *p, const char *arg)
{
	char debug[] = "debug";

	if (strcmp(arg, "-f") == 0)
		p->o.is_foreground = true;
	else if (strcmp(arg, "-d") == 0 || strcmp(arg, "--debug") == 0)
		return set(p, debug);
	else if (strcmp(arg, "-h") == 0 || strcmp(arg, "--help") == 0)
		p->o.wants_help = true;
	else if (strcmp(arg, "-V") == 0 || strcmp(arg, "--version") == 0)
		p->o.wants_version = true;
	else
		return remember_unknown(p, arg);
	return 0;
}

static bool is_helper_name(const char *program)
{
	const char *slash = strrchr(program, '/');

	return !strcmp(slash ? slash + 1 : program, "mount.veneer");
}

static int put_source(struct options_parser *p, const char *s)
{
	int r = options_put_word(p, "fsname=");

	for (; *s && r == 0; s++) {
		if (*s == ',' || *s == '\\')
			r = buf_put(&p->kernel, "\\", 1);
		if (r == 0)
			r = buf_put(&p->kernel, s, 1);
	}
	return r;
}

/* mount -a finds a mount by source and mount point of its line in fstab(5). If an engine's path
 * names a container, the source in /proc/mounts names it, too. With share=pages it does not, as
 * several containers share a file system. */
static int set_source(struct options_parser *p)
{
	char id[NAME_MAX + 1], source[sizeof("fuse-overlayfs:") + NAME_MAX];

	if (p->is_helper)
		return p->source && *p->source ? put_source(p, p->source) : 0;
	if (!p->o.mountpoint || p->o.share == SHARE_PAGES ||
	    !container_path_short_id(p->o.mountpoint, id))
		return 0;
	snprintf(source, sizeof(source), "fuse-overlayfs:%s", id);
	return put_source(p, source);
}

/* These became arguments by a blank after a comma, or for lack of -o. Ignoring them would make a
 * different mount. */
static bool is_stray(const char *arg)
{
	return !strncmp(arg, "lowerdir=", 9) || !strncmp(arg, "upperdir=", 9) ||
	       !strncmp(arg, "workdir=", 8);
}

static int parse_argv(struct options_parser *p, int argc, char *const *argv)
{
	const char *last = NULL;

	p->is_helper = argc > 0 && is_helper_name(argv[0]);
	for (int i = 1; i < argc; i++) {
		int r = 0;

		if (argv[i][0] != '-') {
			p->source = last;
			last = argv[i];
			if (!p->is_helper && !p->stray && is_stray(last))
				p->stray = last;
			free(p->o.mountpoint);
			p->o.mountpoint = argv[i][0] ? options_path_absolute(p->cwd, argv[i])
						     : strdup("");
			r = p->o.mountpoint ? 0 : -ENOMEM;
		} else if (argv[i][1] != 'o') {
			r = parse_dash(p, argv[i]);
		} else if (argv[i][2]) {
			r = parse_option_list(p, argv[i] + 2);
		} else if (i + 1 < argc) {
			r = parse_option_list(p, argv[++i]);
		} else {
			r = options_fail(p, "missing argument after -o");
		}
		if (r < 0)
			return r;
	}
	return 0;
}

static int check_complete(struct options_parser *p, bool is_root)
{
	const struct mount_opts *o = &p->o;

	if (o->wants_help || o->wants_version)
		return 0;
	if (p->stray)
		return options_fail(
			p,
			"%s is not a part of -o: put -o before the options, and no blank "
			"between them",
			p->stray);
	if (!o->mountpoint || !o->mountpoint[0])
		return options_fail(
			p,
			"no mountpoint specified: the last argument is the directory to mount at");
	if (o->n_lower == 0)
		return options_fail(p, "lowerdir not specified: -o "
				       "lowerdir=A[:B...][,upperdir=U,workdir=W] names the layers");
	if (p->allows_root && p->allows_other)
		return options_fail(
			p, "allow_root and allow_other exclude each other: give one of them");
	if (p->allows_root && !is_root)
		return options_fail(
			p, "allow_root needs a mount by root: otherwise the kernel admits the "
			   "mounting user without an option, "
			   "or everybody, with allow_other");
	if (o->is_strict && o->n_unknown)
		return options_fail(p, "unknown option: %s; with strict that is an error",
				    o->unknown[0]);
	/* A read-only mount does not use its work directory. */
	if (o->upper && !o->work && !o->is_readonly)
		return options_fail(
			p, "workdir not specified: an upperdir needs one, a directory on the "
			   "same file system");
	if (o->share == SHARE_PAGES && (o->io == IO_PASSTHROUGH || o->io == IO_DIRECT))
		return options_fail(p, "share=pages shares the pages of cached files: not with "
				       "io=passthrough or io=direct");
	if (o->share == SHARE_PAGES && o->timeout_s <= 0)
		return options_fail(p,
				    "share=pages shares what the kernel keeps: not with timeout=0");
	return 0;
}

/* Start with the defaults; the given options follow, and win. */
static int begin_kernel_words(struct options_parser *p, bool is_root)
{
	_cleanup_(buf_release) struct buf given = p->kernel;
	int r;

	p->kernel = (struct buf){ 0 };
	r = options_put_word(p, "fsname=fuse-overlayfs,subtype=fuse-overlayfs,default_permissions");
	if (r == 0 && is_root)
		r = options_put_word(p, p->allows_root ? "suid" : "allow_other,suid");
	if (r == 0 && given.len)
		r = buf_put(&p->kernel, ",", 1) ?: buf_put(&p->kernel, given.data, given.len);
	return r;
}

int options_parse(const struct options_argv *a, struct mount_opts *ret, char *err, size_t err_size)
{
	_cleanup_(parse_release) struct options_parser p = {
		.o = {
			.squash_uid = -1,
			.squash_gid = -1,
			.timeout_s = OPTIONS_DEFAULT_TIMEOUT_S,
			.promote = PROMOTE_POLICY_WRITTEN,
			.promote_max = PROMOTE_POLICY_WRITTEN_MAX,
			.window_s = DEFAULT_WINDOW_S,
			.cpu_latency = CPU_LATENCY_AUTO,
		},
		.is_saved = a->is_saved,
		.cwd = a->cwd,
		.err = err,
		.err_size = err_size,
	};
	int r;

	r = parse_argv(&p, a->argc, a->argv);
	if (r == 0)
		r = check_complete(&p, a->is_root);
	if (r == 0)
		r = begin_kernel_words(&p, a->is_root);
	if (r == 0)
		r = set_source(&p);
	if (r == 0 && !p.o.keeps_atime)
		r = options_put_word(&p, "noatime");
	if (r == 0)
		r = buf_put(&p.kernel, "", 1);
	if (r < 0)
		return r;
	if (p.o.is_private && !p.o.is_cow_given)
		p.o.cow = COW_COPY;
	if (p.o.share == SHARE_PAGES) {
		p.o.io = IO_CACHED;
		/* The kernel keeps locks by inode, and several mounts share the inodes. */
		p.o.locks = LOCKING_SERVER;
	}
	p.o.kernel_opts = (char *)steal_ptr(&p.kernel.data);
	*ret = p.o;
	p.o = (struct mount_opts){ 0 };
	return 0;
}

void options_release(struct mount_opts *o)
{
	options_strv_freep(&o->lower);
	options_strv_freep(&o->unknown);
	free(o->upper);
	free(o->work);
	free(o->mountpoint);
	free(o->uids.rows);
	free(o->gids.rows);
	free(o->kernel_opts);
	*o = (struct mount_opts){ 0 };
}
