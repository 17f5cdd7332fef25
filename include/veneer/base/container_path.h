/* SPDX-License-Identifier: Apache-2.0 */
/* Paths at which container engines mount: containers/storage (Podman, Buildah, CRI-O), Docker's
 * driver fuse-overlayfs, containerd. Pure. */
#pragma once

#include <limits.h>
#include <stdbool.h>

enum container_engine { CONTAINER_STORAGE, CONTAINER_DOCKER, CONTAINER_CONTAINERD };

struct container_path {
	enum container_engine engine;
	char root[PATH_MAX]; /* the engine's directory, above that of the driver */
	char id[NAME_MAX + 1]; /* of the layer that is mounted; containerd: of the container */
};

#define CONTAINER_ID_LEN       64
#define CONTAINER_SHORT_ID_LEN 12

/* False: it is the path of no engine. */
bool container_path_parse(const char *mountpoint, struct container_path *ret);
/* The id as engines print it, at most 12 characters of a number. False: there is none; ret is empty
 * then. */
bool container_path_short_id(const char *mountpoint, char ret[NAME_MAX + 1]);
/* A number of an engine: 64 hexadecimal digits. */
bool container_path_is_id(const char *s);
