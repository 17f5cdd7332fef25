// SPDX-License-Identifier: Apache-2.0
/* A branch is an ordinary mount, whose lower layers are a snapshot and the layers below that. Its
 * upper and work directory are beside its mount point, with the options that mount it again. */
#include "commands.h"

#include "mount_call.h"
#include "mount_find.h"
#include "snapshot_call.h"
#include "upper_root.h"
#include "usage.h"

#include "veneer/base/array.h"
#include "veneer/base/buf.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/sys/file.h"
#include "veneer/sys/rmtree.h"

#include <fcntl.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define OPTIONS_MAX (4u << 20)

static int print_usage(void)
{
	printf("usage: veneer branch [-o OPTIONS] MOUNTPOINT[@SNAPSHOT] DEST\n"
	       "       veneer branch --resume DEST\n\n"
	       "Mount a snapshot of a mount at DEST, to be changed independently; without\n"
	       "@SNAPSHOT one is taken now. DEST is created if it does not exist. The changes of\n"
	       "the branch are kept beside it, in .DEST.branch; remove that after unmounting the\n"
	       "branch, when it is no longer needed.\n\n"
	       "  -o OPTIONS   in addition to those of the mount\n"
	       "  --resume     mount a branch again\n\n"
	       "Exit code: 0; 1 when it could not be mounted; 2 for wrong usage.\n");
	return 0;
}

/* ---- its own directories ---- */

/* DIR/.NAME.branch for DIR/NAME, malloc'd. */
static char *state_path(const char *dest)
{
	_cleanup_(freep) char *a = strdup(dest), *b = strdup(dest);
	char *ret = NULL;

	if (a && b && asprintf(&ret, "%s/.%s.branch", dirname(a), basename(b)) < 0)
		ret = NULL;
	return ret;
}

static char *path_in(const char *dir, const char *name)
{
	char *ret;

	return asprintf(&ret, "%s/%s", dir, name) < 0 ? NULL : ret;
}

/* The path as the mount has it, from wherever it will be mounted again. */
static char *absolute(const char *path)
{
	char *ret = realpath(path, NULL);

	if (!ret)
		log_error("%s: %s", path, strerror(errno));
	return ret;
}

static int make_state(const char *state, const char *top)
{
	_cleanup_(freep) char *upper = path_in(state, "upper"), *work = path_in(state, "work");
	int r;

	if (mkdir(state, 0700) < 0) {
		log_error("%s: %s", state,
			  errno == EEXIST ? "there is a branch already; --resume mounts it"
					  : strerror(errno));
		return -1;
	}
	r = upper && work ? upper_root_make(upper, top) : -ENOMEM;
	if (r == 0 && mkdir(work, 0700) < 0)
		r = -errno;
	if (r < 0)
		log_error("%s: cannot make its directories: %s", state, strerror(-r));
	return r;
}

static void remove_state(const char *state)
{
	rmtree(AT_FDCWD, state);
}

/* ---- layers ---- */

struct origin {
	struct report report;
	bool has_report;
	char **lowers; /* the first nsnapshots are paths of snapshots, and owned */
	size_t n, nsnapshots;
};

static void origin_release(struct origin *o)
{
	for (size_t k = 0; k < o->nsnapshots; k++)
		free(o->lowers[k]);
	free(o->lowers);
	if (o->has_report)
		report_release(&o->report);
}

static int add_lower(struct origin *o, char *path)
{
	if (!path || array_grow(&o->lowers, o->n) < 0) {
		log_error("out of memory");
		return -1;
	}
	o->lowers[o->n++] = path;
	return 0;
}

/* Find the layers: the snapshot of this name, the snapshots below it, then the layers of the
 * mount. */
static int find_layers(struct origin *o, const char *name)
{
	const struct report_mount *m = &o->report.mounts[0];
	_cleanup_(closep) int fd = open(m->upper, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	_cleanup_(freep) uint64_t *ids = NULL;
	const struct branch_chain_entry *e;
	size_t n;
	int r = fd < 0 ? -errno : branch_dir_load(fd, &c);

	e = r == 0 ? branch_chain_by_name(&c, name) : NULL;
	if (!e) {
		log_error("%s: %s: %s", m->mountpoint, name,
			  r == 0 || r == -ENOENT ? "there is no snapshot of this name"
						 : strerror(-r));
		return -1;
	}
	n = branch_chain_below(&c, e->id, NULL);
	ids = calloc(n, sizeof(*ids));
	if (!ids)
		return add_lower(o, NULL);
	branch_chain_below(&c, e->id, ids);
	for (size_t k = 0; k < n; k++, o->nsnapshots = o->n)
		if (add_lower(o, branch_dir_path(m->upper, ids[k])) < 0)
			return -1;
	for (size_t k = 0; k < m->nlower; k++)
		if (add_lower(o, m->lowers[k]) < 0)
			return -1;
	return 0;
}

static int look_at_origin(struct origin *o, const char *given)
{
	int r = mount_find_look(given, "veneer branch", &o->report);
	const struct report_mount *m;

	o->has_report = r > 0;
	if (r < 0)
		return -1;
	m = r > 0 ? &o->report.mounts[0] : NULL;
	if (m && m->upper && m->lowers)
		return 0;
	log_error("%s %s", given,
		  m ? "has no upper directory, and so no snapshots" : "is no mount of veneer");
	return -1;
}

/* ---- mounting ---- */

/* Put the options of the report, without those of the kernel's mount, which must not be
 * repeated. */
static int put_inherited(struct buf *b, const char *options)
{
	static const char *const said[] = { "fsname=", "subtype=" };
	int r = 0;

	while (options && *options && r == 0) {
		const size_t n = strcspn(options, ",");
		bool is_said = false;

		for (size_t k = 0; k < sizeof(said) / sizeof(*said); k++)
			is_said |= !strncmp(options, said[k], strlen(said[k]));
		if (!is_said)
			r = buf_put(b, options, n) ?: buf_put(b, ",", 1);
		options += n + (options[n] == ',');
	}
	return r;
}

static char *format_options(const struct origin *o, const char *state, const char *more)
{
	_cleanup_(freep) char *upper = path_in(state, "upper"), *work = path_in(state, "work"),
			      *layers = NULL, *escaped = NULL;
	const struct report_mount *m = &o->report.mounts[0];
	const struct report_mount branch = { .lowers = o->lowers, .nlower = o->n, .upper = upper };
	_cleanup_(buf_release) struct buf b = { 0 };
	int r;

	if (!upper || !work || !(layers = mount_find_options(&branch, true)) ||
	    !(escaped = mount_find_path_option("workdir=", work)))
		return NULL;
	r = put_inherited(&b, m->options) ?: buf_put(&b, layers, strlen(layers));
	r = r ?: buf_put(&b, ",", 1) ?: buf_put(&b, escaped, strlen(escaped));
	if (r == 0 && *more)
		r = buf_put(&b, ",", 1) ?: buf_put(&b, more, strlen(more));
	r = r ?: buf_put(&b, "", 1);
	return r < 0 ? NULL : (char *)steal_ptr(&b.data);
}

static int keep_options(const char *state, const char *options)
{
	_cleanup_(freep) char *path = path_in(state, "options");
	_cleanup_(closep) int fd = path ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)
					: -1;
	int r = fd < 0 ? -errno : file_pwrite(fd, options, strlen(options), 0);

	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r < 0)
		log_error("%s: cannot keep the options: %s", state, strerror(-r));
	return r;
}

/* Exit code. */
static int mount_new(const struct origin *o, const char *state, const char *more, char *dest)
{
	_cleanup_(freep) char *options = NULL;
	int code = 1;

	if (make_state(state, o->lowers[0]) < 0)
		return 1;
	options = format_options(o, state, more);
	if (!options)
		log_error("out of memory");
	else if (keep_options(state, options) == 0)
		code = mount_call_mount(options, dest);
	if (code)
		remove_state(state);
	return code;
}

/* ---- the command ---- */

/* Split the name of the snapshot off, if there is one: a mount point may have an @ itself. */
static char *split_name(char *given)
{
	_cleanup_(freep) char *path = mount_find_path(given);
	char *at = strrchr(given, '@');

	if (!at || (path && mount_find_is_ours(path)))
		return NULL;
	*at = '\0';
	return at + 1;
}

/* Exit code. */
static int mount_there(const struct origin *o, const char *more, const char *dest)
{
	const bool is_new = mkdir(dest, 0755) == 0;
	_cleanup_(freep) char *there = NULL, *state = NULL;
	int code = 1;

	if (!is_new && errno != EEXIST)
		log_error("%s: %s", dest, strerror(errno));
	else if ((there = absolute(dest)) && (state = state_path(there)))
		code = mount_new(o, state, more, there);
	if (code && is_new)
		rmdir(dest);
	return code;
}

/* 0, or -errno after a sentence. */
static int take_snapshot(const char *path, char **ret_name)
{
	char err[PATH_MAX * 2];
	int r = snapshot_call(path, NULL, "", ret_name, err, sizeof(err));

	if (r < 0)
		log_error("%s: %s", path, err);
	return r;
}

static int branch(char *given, const char *more, const char *dest)
{
	_cleanup_(origin_release) struct origin o = { 0 };
	_cleanup_(freep) char *taken = NULL;
	char *name = split_name(given);

	if (look_at_origin(&o, given) < 0 || (!name && take_snapshot(given, &taken) < 0) ||
	    find_layers(&o, name ? name : taken) < 0)
		return 1;
	return mount_there(&o, more, dest);
}

/* Files that decide a mount must belong to this user alone. */
static bool is_own(int fd, mode_t type, struct stat *ret)
{
	return fstat(fd, ret) == 0 && (ret->st_mode & S_IFMT) == type && ret->st_uid == geteuid() &&
	       !(ret->st_mode & 022);
}

/* The options with which the branch was mounted, malloc'd. */
static char *read_options(const char *state)
{
	_cleanup_(closep) int dir = open(state, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_(closep) int fd =
		openat(dir, "options", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	_cleanup_(freep) char *text = NULL;
	struct stat st;

	if (dir < 0 || fd < 0 || !is_own(dir, S_IFDIR, &st) || !is_own(fd, S_IFREG, &st) ||
	    st.st_size > OPTIONS_MAX)
		return NULL;
	text = calloc(1, (size_t)st.st_size + 1);
	return text && file_pread(fd, text, (size_t)st.st_size, 0) == st.st_size ? steal_ptr(&text)
										 : NULL;
}

static int resume(const char *dest)
{
	_cleanup_(freep) char *there = absolute(dest);
	_cleanup_(freep) char *state = there ? state_path(there) : NULL;
	_cleanup_(freep) char *options = state ? read_options(state) : NULL;

	if (options)
		return mount_call_mount(options, there);
	if (there)
		log_error("%s is no branch of this user: %s/options cannot be read", dest,
			  state ? state : "?");
	return 1;
}

int cmd_branch(int argc, char **argv)
{
	static const struct option options[] = { { "resume", no_argument, NULL, 'r' },
						 { "help", no_argument, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	const char *more = "";
	bool resumes = false;
	int c, n;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":ho:", options, NULL)) != -1) {
		if (c == 'h')
			return print_usage();
		if (c != 'o' && c != 'r') {
			usage_wrong_option(argv, c);
			return usage_hint("branch");
		}
		if (c == 'o')
			more = optarg;
		resumes |= c == 'r';
	}
	n = argc - optind;
	if (n < (resumes ? 1 : 2))
		usage_missing(n || resumes ? "DEST" : "MOUNTPOINT");
	else if (n > (resumes ? 1 : 2))
		usage_unexpected(argv[optind + (resumes ? 1 : 2)]);
	else
		return resumes ? resume(argv[optind])
			       : branch(argv[optind], more, argv[optind + 1]);
	return usage_hint("branch");
}
