/* SPDX-License-Identifier: Apache-2.0 */
/* What a mount was before it was opened anew: it takes as long to free as it was large, and a
 * processor that programs want just then. */
#pragma once

#include "veneer/layer/image.h"
#include "veneer/union/inode_rebuild.h"

/* Both are given up, and may be NULL. gently: by a thread of lower priority, perhaps after this
 * returns; only if the mount has all layers of the image still, as they stay open until then. */
void mount_left_over_free(struct inode_rebuild *rebuild, struct image *image, bool gently);
