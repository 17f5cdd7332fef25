/* SPDX-License-Identifier: Apache-2.0 */
/* Cleans up after a server that was killed while it placed a hard-linked file under all its
 * names. */
#pragma once

#include "veneer/union/inode.h"

/* Give every pending copy its missing names, so that its links are one file again. A copy without
 * any name is removed: no caller has seen it. Called before the mount answers. 0 or -errno. */
int publish_recover(struct union_fs *t);
