// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

#include "clone_state.h"
#include "mount_call.h"
#include "mount_find.h"
#include "usage.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

static int print_usage(void)
{
	printf("usage: veneer discard [--force] DEST...\n\n"
	       "Unmount a clone (veneer clone), and remove its changes for good.\n\n"
	       "  -f, --force  also a clone that `veneer apply` has applied in part\n\n"
	       "Exit code: 0; 1 when it is in use, or not a clone; 2 for wrong usage.\n");
	return 0;
}

/* Exit code. */
static int discard(const char *given, bool is_forced)
{
	_cleanup_(clone_state_release) struct clone_state c = { .lock_fd = -1 };
	_cleanup_(freep) char *dest = mount_find_path(given);
	bool was_mounted;
	int r = dest ? clone_state_find(dest, &c) : 0;

	if (r == 0)
		log_error("%s is no clone of this user", given);
	if (r != 1 || clone_state_lock(&c) < 0)
		return 1;
	if (clone_state_is_applying(&c) && !is_forced) {
		log_error("%s: applying its changes was interrupted: `veneer apply` finishes it",
			  dest);
		return 1;
	}
	was_mounted = mount_find_is_ours(dest);
	if (was_mounted && mount_call_umount(dest))
		return 1;
	if (clone_state_check_branches(&c) < 0) {
		if (was_mounted)
			clone_state_mount(&c);
		return 1;
	}
	if (clone_state_remove(&c) < 0)
		return 1;
	if (c.has_made_dest)
		rmdir(dest);
	return 0;
}

int cmd_discard(int argc, char **argv)
{
	static const struct option options[] = { { "force", no_argument, NULL, 'f' },
						 { "help", no_argument, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	bool is_forced = false;
	int c, first, code = 0;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":fh", options, NULL)) != -1) {
		if (c == 'h')
			return print_usage();
		if (c != 'f') {
			usage_wrong_option(argv, c);
			return usage_hint("discard");
		}
		is_forced = true;
	}
	if (optind == argc) {
		usage_missing("DEST");
		return usage_hint("discard");
	}
	/* Unmounting parses arguments of its own, and changes optind. */
	first = optind;
	for (int k = first; k < argc; k++)
		code |= discard(argv[k], is_forced);
	return code;
}
