// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

#include "mount_find.h"
#include "snapshot_call.h"
#include "usage.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/layer/branch_dir.h"

#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int print_usage(void)
{
	printf("usage: veneer snapshot MOUNTPOINT [NAME]\n"
	       "       veneer snapshot --delete UPPER|MOUNTPOINT NAME\n\n"
	       "Take a snapshot of the upper of a mount in use; the mount goes on above it. The\n"
	       "snapshot has all writes from before this command, and no later ones. Programs do\n"
	       "not notice. Prints the name of the snapshot.\n\n"
	       "  --delete  remove a snapshot on which neither the upper nor another one stands\n\n"
	       "Exit code: 0; 1 when it could not be done; 2 for wrong usage.\n");
	return 0;
}

static int snapshot(const char *path, const char *name)
{
	_cleanup_(freep) char *taken = NULL;
	char err[PATH_MAX * 2];

	if (snapshot_call(path, NULL, name, &taken, err, sizeof(err)) < 0) {
		log_error("%s: %s", path, err);
		return 1;
	}
	printf("%s\n", taken);
	return 0;
}

static const char *why_kept(int r)
{
	switch (r) {
	case -ENOENT:
		return "there is no snapshot of this name";
	case -EBUSY:
		return "the upper or another snapshot stands on it (veneer squash makes neighbours "
		       "one)";
	case -EUSERS:
		return "a mount uses it: a branch, or one that has the upper as a lower layer";
	case -EUCLEAN:
		return "the chain of its snapshots is damaged";
	case -EPROTO:
		return "a newer version wrote the chain of its snapshots";
	default:
		return strerror(-r);
	}
}

/* Exit code. */
static int delete_one(const char *given, const char *name)
{
	_cleanup_(freep) char *upper = NULL;
	int r = mount_find_upper(given, "veneer snapshot --delete", &upper);
	_cleanup_(closep) int fd = -1, lock = -1;

	if (r < 0)
		return 1;
	fd = open(upper ? upper : given, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	lock = fd < 0 ? -errno : branch_dir_lock(fd);
	r = lock < 0 ? lock : branch_dir_delete(fd, name);
	if (r == 0)
		return 0;
	log_error("%s: %s: %s", given, name,
		  lock == -EBUSY ? "another snapshot is being taken or removed" : why_kept(r));
	return 1;
}

int cmd_snapshot(int argc, char **argv)
{
	static const struct option options[] = { { "delete", no_argument, NULL, 'd' },
						 { "help", no_argument, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	bool deletes = false;
	int c, n;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		if (c == 'h')
			return print_usage();
		if (c != 'd') {
			usage_wrong_option(argv, c);
			return usage_hint("snapshot");
		}
		deletes = true;
	}
	n = argc - optind;
	if (!n || (n == 1 && deletes))
		usage_missing(n ? "NAME" : "MOUNTPOINT");
	else if (n > 2)
		usage_unexpected(argv[optind + 2]);
	else if (deletes)
		return delete_one(argv[optind], argv[optind + 1]);
	else
		return snapshot(argv[optind], n == 2 ? argv[optind + 1] : "");
	return usage_hint("snapshot");
}
