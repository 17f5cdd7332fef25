// SPDX-License-Identifier: Apache-2.0
#include "offline.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/layer/branch_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static bool is_known(const char *known, const char *word)
{
	return strstr(known, word) != NULL;
}

static int take_list(struct offline_args *a, char *list)
{
	if (!list || a->nlists == OFFLINE_LISTS_MAX) {
		log_error(list ? "too many -o" : "missing argument after -o");
		return -EINVAL;
	}
	a->lists[a->nlists++] = list;
	return 0;
}

int offline_arguments(int argc, char **argv, const char *known, bool wants_path,
		      struct offline_args *ret)
{
	struct offline_args a = { .nlists = 0 };

	for (int i = 1; i < argc; i++) {
		char *arg = argv[i];
		int r = 0;

		if (!strncmp(arg, "-o", 2)) {
			r = take_list(&a, arg[2] ? arg + 2 : argv[++i]);
			if (r < 0)
				return r;
		} else if (!strcmp(arg, "--help") || !strcmp(arg, "-h")) {
			a.wants_help = true;
		} else if (is_known(known, "--quiet") &&
			   (!strcmp(arg, "--quiet") || !strcmp(arg, "-q"))) {
			a.is_quiet = true;
		} else if (is_known(known, "--repair") && !strcmp(arg, "--repair")) {
			a.repairs = true;
		} else if (is_known(known, "--salvage") && !strcmp(arg, "--salvage")) {
			a.salvages = true;
		} else if (is_known(known, "--json") && !strcmp(arg, "--json")) {
			a.is_json = true;
		} else if (is_known(known, "--in-place") && !strcmp(arg, "--in-place")) {
			a.is_in_place = true;
		} else if (is_known(known, "--rate") && !strcmp(arg, "--rate")) {
			a.rate = argv[++i];
			if (!a.rate) {
				log_error("missing argument after --rate");
				return -EINVAL;
			}
		} else if (arg[0] != '-' && wants_path && !a.path) {
			a.path = arg;
		} else if (arg[0] != '-' && is_known(known, "SECOND") && !a.second) {
			a.second = arg;
		} else {
			log_error("%s: %s",
				  arg[0] == '-' ? "unknown option" : "unexpected argument", arg);
			return -EINVAL;
		}
	}
	*ret = a;
	return 0;
}

int offline_options(const struct offline_args *a, struct mount_opts *ret)
{
	/* The grammar requires a mount point, and a work directory unless the mount is
	 * read-only. */
	char self[] = "veneer", flag[] = "-o", readonly[] = "ro", point[] = "/";
	char *argv[2 * OFFLINE_LISTS_MAX + 4] = { self };
	char cwd[PATH_MAX], err[PATH_MAX] = "out of memory";
	int n = 1;

	for (size_t i = 0; i < a->nlists; i++) {
		argv[n++] = flag;
		argv[n++] = a->lists[i];
	}
	argv[n++] = flag;
	argv[n++] = readonly;
	argv[n++] = point;
	if (!getcwd(cwd, sizeof(cwd)))
		strcpy(cwd, "/");
	if (options_parse(&(struct options_argv){ n, argv, cwd, geteuid() == 0, false }, ret, err,
			  sizeof(err)) < 0) {
		log_error("%s", err);
		return -EINVAL;
	}
	for (size_t i = 0; i < ret->n_unknown; i++)
		log_warn("unknown argument ignored: %s", ret->unknown[i]);
	if (!ret->upper) {
		log_error("upperdir not specified");
		options_release(ret);
		return -EINVAL;
	}
	/* Drop options that only change the view of files in a mount. */
	ret->is_readonly = ret->is_volatile = false;
	ret->xattr_permissions = 0;
	ret->is_offline = true;
	return 0;
}

int offline_has_snapshots(const char *layer)
{
	_cleanup_(closep) int fd = open(layer, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct branch_chain c = { 0 };
	uint64_t pending = 0;
	int r = fd < 0 ? -ENOENT : branch_dir_load(fd, &c);
	const size_t n = c.n;

	/* Without entries the chain may still have an interrupted first snapshot, or the removal of
	 * the last one. */
	if (fd >= 0 && (r == 0 || r == -ENOENT) && !n && branch_dir_pending(fd, &c, &pending) < 0)
		pending = 1;
	branch_chain_release(&c);
	if (r == 0 || r == -ENOENT)
		return n || pending;
	log_error("%s: %s", layer,
		  r == -EUCLEAN ? "the chain of its snapshots is damaged" : strerror(-r));
	return r;
}

int offline_refuse_snapshots(const char *layer, const char *command)
{
	int r = offline_has_snapshots(layer);

	if (r <= 0)
		return r;
	log_error("%s has snapshots (veneer snapshot), which veneer %s does not take over", layer,
		  command);
	return -EOPNOTSUPP;
}

int offline_refuse_no_snapshots(const char *layer)
{
	_cleanup_(closep) int fd = open(layer, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct branch_chain c = { 0 };
	int r = fd < 0 ? -errno : branch_dir_load(fd, &c);

	branch_chain_release(&c);
	if (r == 0)
		return 0;
	log_error("%s: %s", layer,
		  fd >= 0 && r == -ENOENT ? "it has no snapshots"
		  : r == -EUCLEAN	  ? "the chain of its snapshots is damaged"
					  : strerror(-r));
	return r;
}
