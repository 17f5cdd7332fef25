/* SPDX-License-Identifier: Apache-2.0 */
/* The images and layers that this process has, for mounts to share: mounts of one stack of layers
 * have one image, images that have a layer in common have one struct layer for it. A new mount gets
 * an image that others use only if nothing that the image has read has changed since. The mounts
 * that have it go on with it in any case. An image that nobody uses is kept for a while without any
 * descriptor, so that it keeps no file system busy. Nothing is shared before layer_registry_keep: a
 * process of one mount has nobody to share with. */
#pragma once

#include "veneer/layer/image.h"

/* Share from now on, and keep unused images for so long, in so much memory in all; none with 0. */
void layer_registry_keep(unsigned seconds, size_t bytes);
/* Free the kept images, and share nothing any more; mounts may be there still. */
void layer_registry_stop(void);

/* The image of layers that were just opened, top first; both belong to the caller
 * (layer_registry_release). The image may hold other struct layers of the same directories, and may
 * take the descriptors of these (rootfd -1): the caller only calls layer_unref. opener: the process
 * that opened them and that gives the mount namespace for looking at them. 0: this process, or the
 * findings of an earlier server. May wait a moment for another mount that lets go of the same
 * image. 0 or -errno. */
int layer_registry_image(struct layer *const *fresh, size_t n, pid_t opener, struct image **ret);
#define LAYER_REGISTRY_SEEN_PLAIN -1 /* no layer was private then */
#define LAYER_REGISTRY_NOT_SEEN	  -2
/* Is one of the layers for its mount alone, by what was seen when they were opened? */
bool layer_registry_has_private(struct layer *const *layers, size_t n);
/* The image that a mount has, for another one, also if its layers have changed since: as
 * layer_registry_image otherwise. */
struct image *layer_registry_again(struct image *img);
/* The mount has gone, and no thread looks at the image for it. */
void layer_registry_release(struct image *img);

/* Some mount writes into the layer that is the same directory. */
bool layer_registry_is_written(const struct layer *l);
/* A mount writes into this layer until layer_registry_upper_close: before its first change, and
 * after the last. Images that have the same directory among their layers are outdated by both, and
 * none is shared meanwhile. */
/* True: the directory is a lower layer of an image in use. */
bool layer_registry_upper_open(struct layer *upper);
void layer_registry_upper_close(struct layer *upper);

/* Free the kept images that are too old or have changed. Seconds until there is more to free, -1:
 * nothing is kept. */
int layer_registry_trim(void);

struct layer_registry_stats {
	size_t images, kept; /* used by mounts, and those kept beside */
	size_t layers; /* directories opened for them, each counted once for each struct layer */
	size_t bytes; /* memory of all images */
	size_t watches; /* of inotify */
	uint64_t made, shared, resumed; /* mounts that got a new image, one in use, a kept one */
};
void layer_registry_stats(struct layer_registry_stats *ret);
