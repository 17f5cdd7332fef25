// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/container_path.h"

#include <stdio.h>
#include <string.h>

bool container_path_is_id(const char *s)
{
	return strspn(s, "0123456789abcdef") == CONTAINER_ID_LEN && strlen(s) == CONTAINER_ID_LEN;
}

/* Takes the last component off. */
static bool take_last(char *path, char *ret, size_t size)
{
	char *slash = strrchr(path, '/');

	if (!slash || slash == path || strlen(slash + 1) >= size)
		return false;
	strcpy(ret, slash + 1);
	*slash = '\0';
	return true;
}

/* ROOT/overlay/ID/merged, ROOT/fuse-overlayfs/ID/merged,
 * .../io.containerd.runtime.v2.task/NAMESPACE/ID/rootfs */
bool container_path_parse(const char *mountpoint, struct container_path *ret)
{
	char end[NAME_MAX + 1], driver[NAME_MAX + 1], task[NAME_MAX + 1];

	if (snprintf(ret->root, sizeof(ret->root), "%s", mountpoint) >= (int)sizeof(ret->root) ||
	    !take_last(ret->root, end, sizeof(end)) ||
	    !take_last(ret->root, ret->id, sizeof(ret->id)) ||
	    !take_last(ret->root, driver, sizeof(driver)))
		return false;
	if (!strcmp(end, "rootfs") && take_last(ret->root, task, sizeof(task))) {
		ret->engine = CONTAINER_CONTAINERD;
		return !strcmp(task, "io.containerd.runtime.v2.task") && *ret->id;
	}
	ret->engine = !strcmp(driver, "overlay") ? CONTAINER_STORAGE : CONTAINER_DOCKER;
	return !strcmp(end, "merged") && container_path_is_id(ret->id) &&
	       (ret->engine == CONTAINER_STORAGE || !strcmp(driver, "fuse-overlayfs"));
}

bool container_path_short_id(const char *mountpoint, char ret[NAME_MAX + 1])
{
	struct container_path at;
	const bool is_one = container_path_parse(mountpoint, &at);

	strcpy(ret, is_one ? at.id : "");
	if (container_path_is_id(ret))
		ret[CONTAINER_SHORT_ID_LEN] = '\0';
	return is_one;
}
