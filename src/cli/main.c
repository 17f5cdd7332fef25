// SPDX-License-Identifier: Apache-2.0
#include "veneer/commands.h"

#include "veneer/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *does;
};

static const struct command commands[] = {
	{ "check", cmd_check, "find damage in a layer, and repair it" },
	{ "diff", cmd_diff, "list what a layer changes, or write it as the layer of an image" },
	{ "du", cmd_du, "say what a layer takes" },
	{ "flatten", cmd_flatten, "make a layer one of plain files, which overlayfs reads" },
	{ "inspect", cmd_inspect, "print the block map and the partial files of a layer" },
	{ "mount", cmd_mount, "mount; so does a call without a command" },
	{ "profile", cmd_profile, "what starts of images read first" },
	{ "server", cmd_server, "serve mounts, in the foreground" },
	{ "stats", cmd_stats, "what the server has counted" },
	{ "top", cmd_top, "what mounts are asked for now" },
	{ "umount", cmd_umount, "unmount, and say who holds a mount that is busy" },
};

#define COMMANDS (sizeof(commands) / sizeof(*commands))

static int print_help(void)
{
	printf("usage: veneer [mount] -o lowerdir=A[:B...][,upperdir=U,workdir=W] MOUNTPOINT\n"
	       "       veneer COMMAND [OPTION...] [ARGUMENT...]\n\n"
	       "A union of directories that copies what is written block by block.\n\n");
	for (size_t i = 0; i < COMMANDS; i++)
		printf("  %-8s %s\n", commands[i].name, commands[i].does);
	printf("\n"
	       "  -h, --help     this text; COMMAND --help: its options\n"
	       "  -V, --version  version, in fuse-overlayfs's form\n\n"
	       "All of it is in veneer(1).\n");
	return 0;
}

/* Who calls it fuse-overlayfs wants to know how to mount. */
static bool asks_for_commands(const char *name, int argc, char **argv)
{
	return argc == 2 && strcmp(name, "fuse-overlayfs") != 0 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
}

/* What a tool opens in the place of an output that is closed would get what is printed: a file of a layer, in the worst case. Writing
 * there goes on failing. (Servers and mounts have an open one, shelter.h.) */
static void hold_standard_fds(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0)
			return;
}

/* Exit code. What could not be printed has not been done, unless more is wrong, and said. */
static int run(const struct command *c, int argc, char **argv)
{
	const bool is_tool = c->run != cmd_mount && c->run != cmd_server;
	int code, e;

	if (is_tool)
		hold_standard_fds();
	code = c->run(argc, argv);
	if (!is_tool || code)
		return code;
	e = fflush(stdout) != 0 ? errno : ferror(stdout) ? EIO : 0;
	if (e)
		log_error("cannot print: %s", strerror(e));
	return e ? 1 : 0;
}

/* A bare call behaves as fuse-overlayfs, whatever name it goes by, but for the one that mount(8) looks for. */
int main(int argc, char **argv)
{
	const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
	const char *name = slash ? slash + 1 : argc > 0 ? argv[0] : "";

	if (!strcmp(name, "mount.veneer"))
		return cmd_helper(argc, argv);
	if (asks_for_commands(name, argc, argv))
		return print_help();
	for (size_t i = 0; argc > 1 && i < COMMANDS; i++)
		if (!strcmp(argv[1], commands[i].name))
			return run(&commands[i], argc - 1, argv + 1);
	return cmd_mount(argc, argv);
}
