/* SPDX-License-Identifier: Apache-2.0 */
/* Open files that an image does not show, since a layer further up has another file of their name
 * or a whiteout. A snapshot hides the same names as its upper before. */
#pragma once

#include "veneer/layer/image.h"

/* The directory that is shown for a path's. 0; -ENOENT; -errno. */
int image_hidden_dir(struct image *img, const char *path, struct image_entry **ret);
/* The entry, of this type and presented number, of that path in one of the layers below the one
 * that hides it. Its directory is shown. It lives as long as the image, is in no listing, and is
 * no directory. 0; -ENOENT; -errno. */
int image_hidden_find(struct image *img, const char *path, uint8_t type, uint64_t ino,
		      struct image_entry **ret);
