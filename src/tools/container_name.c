// SPDX-License-Identifier: Apache-2.0
#include "veneer/tools/container_name.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/container_path.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_MAX_BYTES (16 << 20)

static void decrefp(json_t **j)
{
	json_decref(*j);
}

static FILE *open_small(const char *path)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	FILE *f = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
				  st.st_size <= FILE_MAX_BYTES
			  ? fdopen(fd, "r")
			  : NULL;

	if (!f && fd >= 0)
		close(fd);
	return f;
}

static json_t *load(const char *path)
{
	FILE *f = open_small(path);
	json_t *j = f ? json_loadf(f, 0, NULL) : NULL;

	if (f)
		fclose(f);
	return j;
}

static int take_name(const json_t *name, char **ret)
{
	const char *s = json_string_value(name);

	if (!s || !*s)
		return 0;
	*ret = strdup(s[0] == '/' ? s + 1 : s);
	return *ret ? 0 : -ENOMEM;
}

/* ---- containers/storage ---- */

static int name_in_storage(const struct container_path *at, const char *file, char **ret)
{
	_cleanup_(decrefp) json_t *all = NULL;
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/overlay-containers/%s", at->root, file);
	all = load(path);
	for (size_t i = 0; i < json_array_size(all); i++) {
		const json_t *c = json_array_get(all, i);
		const char *layer = json_string_value(json_object_get(c, "layer"));

		if (layer && !strcmp(layer, at->id))
			return take_name(json_array_get(json_object_get(c, "names"), 0), ret);
	}
	return 0;
}

/* ---- Docker ---- */

static bool has_mount(const char *mounts, const char *container, const char *id)
{
	char path[2 * PATH_MAX], text[CONTAINER_ID_LEN + 1] = "";
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s/mount-id", mounts, container);
	f = open_small(path);
	if (f && !fgets(text, sizeof(text), f))
		*text = '\0';
	if (f)
		fclose(f);
	return !strcmp(text, id);
}

static int name_in_docker(const struct container_path *at, char **ret)
{
	_cleanup_(decrefp) json_t *config = NULL;
	char mounts[PATH_MAX + 64], path[2 * PATH_MAX] = "";
	DIR *d;

	snprintf(mounts, sizeof(mounts), "%s/image/fuse-overlayfs/layerdb/mounts", at->root);
	d = opendir(mounts);
	for (struct dirent *e = d ? readdir(d) : NULL; e && !*path; e = readdir(d))
		if (container_path_is_id(e->d_name) && has_mount(mounts, e->d_name, at->id))
			snprintf(path, sizeof(path), "%s/containers/%s/config.v2.json", at->root,
				 e->d_name);
	if (d)
		closedir(d);
	config = *path ? load(path) : NULL;
	return take_name(json_object_get(config, "Name"), ret);
}

int container_name(const char *mountpoint, char **ret)
{
	struct container_path at;
	int r;

	*ret = NULL;
	if (!container_path_parse(mountpoint, &at))
		return 0;
	if (at.engine == CONTAINER_CONTAINERD)
		return (*ret = strdup(at.id)) ? 0 : -ENOMEM;
	if (at.engine == CONTAINER_DOCKER)
		return name_in_docker(&at, ret);
	r = name_in_storage(&at, "containers.json", ret);
	if (r == 0 && !*ret)
		r = name_in_storage(&at, "volatile-containers.json", ret);
	return r;
}
