// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

#include "veneer/base/log.h"
#include "veneer/base/nearest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *does; /* NULL: listed with another command */
};

static const struct command commands[] = {
	{ "apply", cmd_apply, NULL },
	{ "branch", cmd_branch, NULL },
	{ "check", cmd_check, "find and repair damage of a layer" },
	{ "clone", cmd_clone, "mount a writable view of a directory; also clones, apply, discard" },
	{ "clones", cmd_clones, NULL },
	{ "diff", cmd_diff, "list the changes of a layer, or write them as an image layer" },
	{ "discard", cmd_discard, NULL },
	{ "du", cmd_du, "print the disk space of a layer" },
	{ "flatten", cmd_flatten, "turn a layer into plain files that overlayfs reads" },
	{ "info", cmd_info, "print the features that work here, or the properties of a mount" },
	{ "inspect", cmd_inspect, "print the block map and the partial files of a layer" },
	{ "mount", cmd_mount, "mount; so does a call without a command" },
	{ "profile", cmd_profile, "manage the prefetch profiles of images" },
	{ "receive", cmd_receive, NULL },
	{ "rollback", cmd_rollback, NULL },
	{ "send", cmd_send, "send the changes of a snapshot to another host; also receive" },
	{ "server", cmd_server, "serve mounts, in the foreground" },
	{ "snapshot", cmd_snapshot,
	  "take a snapshot of a mount; also snapshots, rollback, branch, squash" },
	{ "snapshots", cmd_snapshots, NULL },
	{ "squash", cmd_squash, NULL },
	{ "stats", cmd_stats, "print the counters of the server" },
	{ "top", cmd_top, "show the requests to mounts, live" },
	{ "umount", cmd_umount, "unmount, or print the users of a busy mount" },
};

#define COMMANDS (sizeof(commands) / sizeof(*commands))

static int print_help(void)
{
	printf("usage: veneer [mount] -o lowerdir=A[:B...][,upperdir=U,workdir=W] MOUNTPOINT\n"
	       "       veneer COMMAND [OPTION...] [ARGUMENT...]\n\n"
	       "A union of directories with copy-on-write by block.\n\n");
	for (size_t i = 0; i < COMMANDS; i++)
		if (commands[i].does)
			printf("  %-9s %s\n", commands[i].name, commands[i].does);
	printf("\n"
	       "  -h, --help     this text, as is \"help\"; COMMAND --help: its options\n"
	       "  -V, --version  version, in fuse-overlayfs's form; more is in veneer(1)\n");
	return 0;
}

/* A caller of the name fuse-overlayfs expects the help of the mount program. */
static bool asks_for_commands(const char *name, int argc, char **argv)
{
	return argc == 2 && strcmp(name, "fuse-overlayfs") != 0 &&
	       (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
}

/* Occupy closed standard descriptors. A file that a tool opens in their place, perhaps one of a
 * layer, would get the printed output. Writing to them still fails. (Servers and mounts open theirs
 * in sandbox_setup.h.) */
static void hold_standard_fds(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0)
			return;
}

/* Exit code. A failed print makes a successful command fail. */
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

static const struct command *find_command(const char *word)
{
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strcmp(word, commands[i].name))
			return &commands[i];
	return NULL;
}

/* ---- a first word that is not a command ---- */

static const struct command *nearest_command(const char *word)
{
	const struct command *nearest = NULL;

	for (size_t i = 0; i < COMMANDS; i++)
		if (nearest_is_meant(word, commands[i].name) &&
		    (!nearest || nearest_distance(word, commands[i].name) <
					 nearest_distance(word, nearest->name)))
			nearest = &commands[i];
	return nearest;
}

static bool has_word(int argc, char **argv, const char *part)
{
	for (int i = 1; i < argc; i++)
		if (strstr(argv[i], part))
			return true;
	return false;
}

/* Is the first word the mount point, which is the last argument that is not an option? */
static bool is_mount_point(int argc, char **argv)
{
	for (int i = 2; i < argc; i++) {
		if (!strcmp(argv[i], "-o"))
			i++;
		else if (argv[i][0] != '-')
			return false;
	}
	return true;
}

/* A mount needs lowerdir= and an existing mount point. mount(8) may put any word before the mount
 * point. */
static bool is_no_mount(int argc, char **argv)
{
	if (argv[1][0] == '-' || strchr(argv[1], '/'))
		return false;
	return !has_word(argc, argv, "lowerdir=") ||
	       (is_mount_point(argc, argv) && access(argv[1], F_OK) < 0);
}

static int run_help(const char *of)
{
	const struct command *c = find_command(of);
	char name[16], help[] = "--help";
	char *argv[] = { name, help, NULL };

	if (!c) {
		log_error("%s is not a command: `veneer --help` lists them", of);
		return 2;
	}
	snprintf(name, sizeof(name), "%s", c->name);
	return run(c, 2, argv);
}

/* True and an exit code: the arguments are neither a command nor a mount. */
static bool is_answered(int argc, char **argv, int *ret_code)
{
	const struct command *nearest;
	char version[] = "--version";
	char *argv_version[] = { argv[0], version, NULL };

	*ret_code = 2;
	if (argc < 2) {
		log_error("nothing to do: `veneer --help` shows how to mount, and lists the "
			  "commands");
		return true;
	}
	if (!is_no_mount(argc, argv))
		return false;
	if (!strcmp(argv[1], "help") && argc <= 3) {
		*ret_code = argc == 2 ? print_help() : run_help(argv[2]);
		return true;
	}
	if (!strcmp(argv[1], "version") && argc == 2) {
		*ret_code = cmd_mount(2, argv_version);
		return true;
	}
	nearest = nearest_command(argv[1]);
	if (nearest)
		log_error("%s is not a command: did you mean %s?", argv[1], nearest->name);
	else if (!has_word(argc, argv, "-o") && access(argv[1], F_OK) < 0)
		log_error("%s is not a command: `veneer --help` lists them, and shows how to mount",
			  argv[1]);
	else
		return false;
	return true;
}

/* A call without a command behaves as fuse-overlayfs under any name, except the names that mount(8)
 * and umount(8) run. */
int main(int argc, char **argv)
{
	const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
	const char *name = slash ? slash + 1 : argc > 0 ? argv[0] : "";
	const struct command *command = argc > 1 ? find_command(argv[1]) : NULL;
	int code;

	/* Callers show these lines to users who know this name. */
	if (*name)
		log_set_name(name);
	if (!strcmp(name, "mount.veneer"))
		return cmd_helper(argc, argv);
	if (!strncmp(name, "umount.", strlen("umount."))) {
		hold_standard_fds();
		return cmd_umount_helper(argc, argv);
	}
	if (asks_for_commands(name, argc, argv))
		return print_help();
	if (command)
		return run(command, argc - 1, argv + 1);
	if (strcmp(name, "fuse-overlayfs") != 0 && is_answered(argc, argv, &code))
		return code;
	return cmd_mount(argc, argv);
}
