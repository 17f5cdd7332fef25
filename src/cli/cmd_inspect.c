// SPDX-License-Identifier: Apache-2.0
#include "veneer/commands.h"

#include "veneer/cleanup.h"
#include "veneer/inspect.h"
#include "veneer/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int inspect_path(const char *path)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		r = -errno;
	else if (S_ISDIR(st.st_mode))
		r = inspect_layer(fd, path, stdout);
	else
		r = inspect_map(fd, path, stdout);
	if (r < 0 && r != -EUCLEAN)
		log_error("%s: %s", path, strerror(-r));
	return r < 0 ? 1 : 0;
}

int cmd_inspect(int argc, char **argv)
{
	int code = 0;

	if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		fprintf(argc < 2 ? stderr : stdout,
			"usage: veneer inspect PATH...\n\n"
			"Print the block map of a layer (a directory) or of a map file.\n"
			"Exit code: 0, or 1 when a map is damaged or cannot be read.\n");
		return argc < 2;
	}
	for (int i = 1; i < argc; i++)
		code |= inspect_path(argv[i]);
	return code;
}
