/* SPDX-License-Identifier: Apache-2.0 */
/* The old state of a mount that was reopened. Freeing it takes time in proportion to its size, on a
 * processor that programs want at that moment. */
#pragma once

#include "veneer/layer/image.h"
#include "veneer/union/inode_rebuild.h"

/* Takes both over; each may be NULL. gently: free them on a thread of lower priority, perhaps after
 * this returns. Use it only if the mount still has all layers of the image, as they stay open until
 * then. */
void mount_left_over_free(struct inode_rebuild *rebuild, struct image *image, bool gently);
