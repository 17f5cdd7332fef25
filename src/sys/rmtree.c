// SPDX-License-Identifier: Apache-2.0
#include "veneer/rmtree.h"

#include "veneer/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>

#define RMTREE_DEPTH_MAX 64	/* descriptors held at once */

static void remove_at(int parent_fd, const char *name, unsigned depth)
{
	int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct dirent *de;
	DIR *d;

	if (fd < 0)
		return;
	d = depth < RMTREE_DEPTH_MAX ? fdopendir(fd) : NULL;
	if (!d) {
		close(fd);
		return;
	}
	while ((de = readdir(d))) {
		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		if (unlinkat(fd, de->d_name, 0) < 0 && errno == EISDIR)
			remove_at(fd, de->d_name, depth + 1);
	}
	closedir(d);
	unlinkat(parent_fd, name, AT_REMOVEDIR);
}

void rmtree(int parent_fd, const char *name)
{
	remove_at(parent_fd, name, 0);
}
