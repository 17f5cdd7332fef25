// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

#include "clone_state.h"
#include "mount_find.h"
#include "usage.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int print_usage(void)
{
	printf("usage: veneer clone [--size SIZE] [-o OPTIONS] DIR DEST\n"
	       "       veneer clone --resume [DEST]\n\n"
	       "Mount a writable view of a directory at DEST; DIR itself does not change. DEST\n"
	       "is created if it does not exist. The changes are kept below the state directory,\n"
	       "$XDG_STATE_HOME/veneer/clones (root: /var/lib/veneer/clones). `veneer diff DEST`\n"
	       "lists them, `veneer apply DEST` applies them to DIR, `veneer discard DEST`\n"
	       "removes them, and `veneer clones` lists all clones.\n\n"
	       "  --size SIZE  limit of the changes, as size= of a mount\n"
	       "  -o OPTIONS   of the mount\n"
	       "  --resume     mount a clone again, or without DEST all unmounted clones\n\n"
	       "Exit code: 0; 1 when it could not be mounted; 2 for wrong usage.\n");
	return 0;
}

/* ---- a new clone ---- */

static bool is_within(const char *path, const char *dir)
{
	const size_t n = strcmp(dir, "/") ? strlen(dir) : 0;

	return !strncmp(path, dir, n) && (path[n] == '/' || !path[n]);
}

static char *join_options(const char *size, const char *more)
{
	char *ret;
	int r = size ? asprintf(&ret, "size=%s%s%s", size, *more ? "," : "", more)
		     : asprintf(&ret, "%s", more);

	return r < 0 ? NULL : ret;
}

/* Exit code. */
static int mount_new(const char *dir, const char *dest, const char *options, bool is_made)
{
	_cleanup_(clone_state_release) struct clone_state c = { .lock_fd = -1 };
	int r = clone_state_find(dest, &c);

	if (r == 1)
		log_error("%s is a clone of %s already: --resume mounts it, `veneer discard` "
			  "removes it",
			  dest, c.dir);
	if (r)
		return 1;
	c.has_made_dest = is_made;
	if (clone_state_make(dir, dest, options, &c) < 0)
		return 1;
	if (clone_state_mount(&c) == 0)
		return 0;
	clone_state_remove(&c);
	return 1;
}

/* Exit code. */
static int make_clone(const char *dir, const char *dest, const char *options)
{
	_cleanup_(freep) char *from = realpath(dir, NULL), *to = NULL;
	struct stat st;
	bool is_made;
	int code = 1;

	if (!from || stat(from, &st) < 0 || !S_ISDIR(st.st_mode)) {
		log_error("%s: %s", dir, from ? "not a directory" : strerror(errno));
		return 1;
	}
	is_made = mkdir(dest, 0755) == 0;
	if (!is_made && errno != EEXIST)
		log_error("%s: %s", dest, strerror(errno));
	else if (!(to = realpath(dest, NULL)))
		log_error("%s: %s", dest, strerror(errno));
	else if (mount_find_is_ours(to))
		log_error("%s: something is mounted there already", to);
	else if (is_within(to, from) || is_within(from, to))
		log_error("%s: a clone must not be in the directory, nor the directory in it", to);
	else
		code = mount_new(from, to, options, is_made);
	if (code && is_made)
		rmdir(dest);
	return code;
}

/* ---- mounting again ---- */

static int mount_again(struct clone_state *c)
{
	if (clone_state_lock(c) < 0)
		return 1;
	if (clone_state_is_applying(c)) {
		log_error("%s: applying its changes was interrupted: `veneer apply` finishes it",
			  c->dest);
		return 1;
	}
	if (c->has_made_dest)
		mkdir(c->dest, 0755);
	return clone_state_mount(c);
}

/* Exit code in *arg; on a failure the others are still mounted. */
static int resume_one(void *arg, struct clone_state *c)
{
	int *code = arg;

	if (!mount_find_is_ours(c->dest))
		*code |= mount_again(c);
	return 0;
}

/* Exit code. */
static int resume(const char *given)
{
	_cleanup_(clone_state_release) struct clone_state c = { .lock_fd = -1 };
	_cleanup_(freep) char *dest = mount_find_path(given);
	int r = dest ? clone_state_find(dest, &c) : 0;

	if (r == 1 && mount_find_is_ours(dest))
		return 0;
	if (r == 0)
		log_error("%s is no clone of this user", given);
	return r == 1 ? mount_again(&c) : 1;
}

static int resume_all(void)
{
	int code = 0;

	return clone_state_each(resume_one, &code) < 0 ? 1 : code;
}

/* ---- the command ---- */

int cmd_clone(int argc, char **argv)
{
	static const struct option options[] = { { "size", required_argument, NULL, 's' },
						 { "resume", no_argument, NULL, 'r' },
						 { "help", no_argument, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	_cleanup_(freep) char *joined = NULL;
	const char *more = "", *size = NULL;
	bool resumes = false;
	int c, n;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":ho:", options, NULL)) != -1) {
		if (c == 'h')
			return print_usage();
		if (c == '?' || c == ':') {
			usage_wrong_option(argv, c);
			return usage_hint("clone");
		}
		size = c == 's' ? optarg : size;
		more = c == 'o' ? optarg : more;
		resumes |= c == 'r';
	}
	n = argc - optind;
	joined = join_options(size, more);
	if (n > (resumes ? 1 : 2))
		usage_unexpected(argv[optind + (resumes ? 1 : 2)]);
	else if (resumes && *joined)
		log_error("--resume mounts a clone with the options that it has");
	else if (resumes)
		return n ? resume(argv[optind]) : resume_all();
	else if (n < 2)
		usage_missing(n ? "DEST" : "DIR");
	else
		return make_clone(argv[optind], argv[optind + 1], joined);
	return usage_hint("clone");
}
