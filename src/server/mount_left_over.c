// SPDX-License-Identifier: Apache-2.0
#include "mount_left_over.h"

#include "veneer/sys/thread.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define NICE  10
#define STACK (256u << 10)

struct left_over {
	struct inode_rebuild *rebuild;
	struct image *image;
};

static void *free_all(void *arg)
{
	struct left_over *l = arg;

	setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
	inode_rebuild_free(l->rebuild);
	image_unref(l->image);
	free(l);
	return NULL;
}

void mount_left_over_free(struct inode_rebuild *rebuild, struct image *image, bool gently)
{
	struct left_over *l = gently ? malloc(sizeof(*l)) : NULL;

	if (l)
		*l = (struct left_over){ rebuild, image };
	if (l && thread_start(free_all, l, STACK) == 0)
		return;
	free(l);
	inode_rebuild_free(rebuild);
	image_unref(image);
}
