// SPDX-License-Identifier: Apache-2.0
#include "veneer/commands.h"

#include <stdio.h>
#include <string.h>

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
	{ "check", cmd_check },
	{ "diff", cmd_diff },
	{ "du", cmd_du },
	{ "flatten", cmd_flatten },
	{ "inspect", cmd_inspect },
	{ "mount", cmd_mount },
	{ "profile", cmd_profile },
	{ "server", cmd_server },
	{ "stats", cmd_stats },
	{ "top", cmd_top },
	{ "umount", cmd_umount },
};

/* A bare call behaves as fuse-overlayfs, whatever name it goes by, but for the one that mount(8) looks for. */
int main(int argc, char **argv)
{
	const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;

	if (argc > 0 && !strcmp(slash ? slash + 1 : argv[0], "mount.veneer"))
		return cmd_helper(argc, argv);
	for (size_t i = 0; argc > 1 && i < sizeof(commands) / sizeof(*commands); i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 1, argv + 1);
	return cmd_mount(argc, argv);
}
