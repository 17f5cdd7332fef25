// SPDX-License-Identifier: Apache-2.0
#include "mount_call.h"

#include "commands.h"

#include <getopt.h>
#include <stddef.h>

int mount_call_mount(char *options, char *dest)
{
	char name[] = "veneer", o[] = "-o";
	char *argv[] = { name, o, options, dest, NULL };

	optind = 1;
	return cmd_mount(4, argv);
}

int mount_call_umount(char *dest)
{
	char name[] = "umount";
	char *argv[] = { name, dest, NULL };

	optind = 1;
	return cmd_umount(2, argv);
}
