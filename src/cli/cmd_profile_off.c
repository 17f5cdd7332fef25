// SPDX-License-Identifier: Apache-2.0
/* cmd_profile.c of -Dprefetch=disabled. */
#include "commands.h"

#include "veneer/base/log.h"

#include <stdio.h>
#include <string.h>

int cmd_profile(int argc, char **argv)
{
	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		printf("usage: veneer profile\n\n"
		       "This program was built without prefetch: it learns nothing of images.\n");
		return 0;
	}
	log_error("this program was built without prefetch: it learns nothing of images");
	return 1;
}
