// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

#include "clone_state.h"
#include "mount_find.h"
#include "usage.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/mount/upper_lock.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int print_usage(void)
{
	printf("usage: veneer rollback [--keep NAME] UPPER|CLONE SNAPSHOT\n\n"
	       "Go back to a snapshot: the next mount of UPPER shows what that has. No mount may\n"
	       "use UPPER meanwhile; a clone (veneer clone) is unmounted and mounted again. What\n"
	       "it shows now is kept as a snapshot, whose name is printed, so that nothing is\n"
	       "lost.\n\n"
	       "  --keep NAME  the name of that snapshot; without it the time\n\n"
	       "Exit code: 0; 1 when nothing was changed; 2 for wrong usage.\n");
	return 0;
}

static const char *why(int r)
{
	switch (r) {
	case -EBUSY:
		return "it is in use by a mount: unmount that first";
	case -EAGAIN:
		return "another snapshot of it is being taken or removed";
	case -ENOENT:
		return "there is no snapshot of this name";
	case -EEXIST:
		return "there is a snapshot of the name that is to be kept";
	case -E2BIG:
		return "it has as many snapshots as it can have";
	case -EUCLEAN:
		return "the chain of its snapshots is damaged";
	default:
		return strerror(-r);
	}
}

/* The upper is locked. kept: as name of branch_dir_plan. */
static int go_back(int fd, const char *name, char kept[BRANCH_CHAIN_NAME_MAX + 1])
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	_cleanup_(closep) int lock = branch_dir_lock(fd);
	const struct branch_chain_entry *to;
	uint64_t id, target;
	int r = lock == -EBUSY ? -EAGAIN : lock < 0 ? lock : branch_dir_recover(fd);

	r = r ?: branch_dir_load(fd, &c);
	if (r < 0)
		return r;
	to = branch_chain_by_name(&c, name);
	if (!to)
		return -ENOENT;
	target = to->id;
	r = branch_dir_plan(&c, kept, &id);
	if (r < 0)
		return r;
	c.head = target;
	/* What becomes a layer is synced by nobody any more. */
	if (syncfs(fd) < 0)
		return -errno;
	return branch_dir_take(fd, id, &c, false);
}

/* Exit code. */
static int rollback_upper(const char *given, const char *upper, const char *name, const char *keep)
{
	_cleanup_(closep) int fd = open(upper, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char kept[BRANCH_CHAIN_NAME_MAX + 1] = "";
	int r = fd < 0 ? -errno : upper_lock_alone(upper, fd);

	strcpy(kept, keep);
	if (r == 0)
		r = go_back(fd, name, kept);
	if (r < 0) {
		log_error("%s: %s: %s", given, name, why(r));
		return 1;
	}
	printf("%s\n", kept);
	return 0;
}

/* Exit code. A clone is mounted again, whatever came of it. */
static int rollback_clone(const struct clone_state *c, bool was_mounted, const char *name,
			  const char *keep)
{
	_cleanup_(freep) char *upper = clone_state_file(c, "upper");
	int code = upper ? rollback_upper(c->dest, upper, name, keep) : 1;

	return was_mounted && clone_state_mount(c) ? 1 : code;
}

/* Exit code. */
static int rollback(const char *given, const char *name, const char *keep)
{
	_cleanup_(clone_state_release) struct clone_state c = { .lock_fd = -1 };
	_cleanup_(freep) char *upper = NULL;
	bool was_mounted = false;
	int r;

	if (*keep && !branch_chain_is_name(keep)) {
		log_error("%s: a snapshot cannot have this name", keep);
		return 1;
	}
	r = clone_state_take(given, &c, &was_mounted);
	if (r)
		return r < 0 ? 1 : rollback_clone(&c, was_mounted, name, keep);
	r = mount_find_upper(given, "veneer rollback", &upper);
	if (r > 0 || upper) {
		log_error("%s: %s: %s", given, name, why(-EBUSY));
		return 1;
	}
	return r < 0 ? 1 : rollback_upper(given, given, name, keep);
}

int cmd_rollback(int argc, char **argv)
{
	static const struct option options[] = { { "keep", required_argument, NULL, 'k' },
						 { "help", no_argument, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	const char *keep = "";
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		if (c == 'h')
			return print_usage();
		if (c != 'k') {
			usage_wrong_option(argv, c);
			return usage_hint("rollback");
		}
		keep = optarg;
	}
	if (argc - optind < 2)
		usage_missing(optind == argc ? "UPPER" : "SNAPSHOT");
	else if (argc - optind > 2)
		usage_unexpected(argv[optind + 2]);
	else
		return rollback(argv[optind], argv[optind + 1], keep);
	return usage_hint("rollback");
}
