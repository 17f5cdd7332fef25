/* SPDX-License-Identifier: Apache-2.0 */
/* Clean up after a server that was killed while it placed a hard-linked file under all of its
 * names. */
#pragma once

#include "veneer/union/inode.h"

/* Give every pending copy the names it still lacks, so that its links are one file again; a copy
 * that has no name yet is dropped, nothing was seen of it. Before the mount answers. 0 or
 * -errno. */
int publish_recover(struct union_fs *t);
