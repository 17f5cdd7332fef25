// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

#include "clone_state.h"
#include "mount_call.h"
#include "mount_find.h"
#include "snapshot_call.h"
#include "usage.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/mount/upper_lock.h"

#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int print_usage(void)
{
	printf("usage: veneer rollback [--keep NAME] MOUNTPOINT|UPPER|CLONE SNAPSHOT\n\n"
	       "Roll back to a snapshot, whose contents every name then shows. In a mount in\n"
	       "use, open files that differ from the snapshot stay as they are, without a name;\n"
	       "this needs Linux 6.18. For an UPPER without a mount, the next mount shows the\n"
	       "snapshot. The present contents are kept as a new snapshot, whose name is\n"
	       "printed, so that nothing is lost.\n\n"
	       "  --keep NAME  name of that snapshot (default: the time)\n\n"
	       "Exit code: 0; 1 when nothing was changed; 2 for wrong usage.\n");
	return 0;
}

static const char *why(int r)
{
	switch (r) {
	case -EBUSY:
		return "it is in use by a mount: give its mount point, or unmount it";
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

/* The upper must be locked. kept: as name of branch_dir_plan. */
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
	/* Sync now: once the upper is a layer, nothing else syncs it. */
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

/* Exit code. The clone is mounted again in every case. */
static int rollback_clone(const struct clone_state *c, const char *name, const char *keep)
{
	_cleanup_(freep) char *upper = clone_state_file(c, "upper");
	const bool was_mounted = mount_find_is_ours(c->dest);
	int code;

	if (!upper || (was_mounted && mount_call_umount(c->dest)))
		return 1;
	code = rollback_upper(c->dest, upper, name, keep);
	return was_mounted && clone_state_mount(c) ? 1 : code;
}

/* 0, or -errno and a sentence. */
static int rollback_mount(const char *given, const char *name, const char *keep, char *err,
			  size_t err_size)
{
	_cleanup_(freep) char *kept = NULL;
	int r = snapshot_call(given, name, keep, &kept, err, err_size);

	if (r == 0)
		printf("%s\n", kept);
	return r;
}

/* Exit code. */
static int rollback(const char *given, const char *name, const char *keep)
{
	_cleanup_(clone_state_release) struct clone_state c = { .lock_fd = -1 };
	_cleanup_(freep) char *path = mount_find_path(given);
	char err[PATH_MAX * 2];
	int r;

	if (*keep && !branch_chain_is_name(keep)) {
		log_error("%s: a snapshot cannot have this name", keep);
		return 1;
	}
	r = clone_state_take(given, &c);
	if (r < 0)
		return 1;
	if (path && mount_find_is_ours(path)) {
		if (rollback_mount(path, name, keep, err, sizeof(err)) == 0)
			return 0;
		/* A clone can still be rolled back unmounted, if the kernel or the server cannot do
		 * it in place. */
		if (r == 0) {
			log_error("%s: %s: %s", given, name, err);
			return 1;
		}
	}
	return r ? rollback_clone(&c, name, keep) : rollback_upper(given, given, name, keep);
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
		usage_missing(optind == argc ? "MOUNTPOINT" : "SNAPSHOT");
	else if (argc - optind > 2)
		usage_unexpected(argv[optind + 2]);
	else
		return rollback(argv[optind], argv[optind + 1], keep);
	return usage_hint("rollback");
}
