/* SPDX-License-Identifier: Apache-2.0 */
/* The inode number that a file or directory of a snapshot shows instead of its own, which it got
 * when snapshots were merged (branch_merge.h). Nothing but the number comes from it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The number, little-endian, 64 bits (doc/SPEC.md, section 5). */
#define SNAPSHOT_NUMBER_ATTR	  "trusted.veneer.number"
#define SNAPSHOT_NUMBER_USER_ATTR "user.veneer.number" /* where the first is not permitted */

/* Note it at fd. 0, also where the file system has no attributes, and the number will be another;
 * or -errno. */
int snapshot_number_write(int fd, uint64_t number);
/* Has (dirfd, name), or dirfd itself, a number? is_doubted: the first attribute alone counts. */
bool snapshot_number_read(int dirfd, const char *name, bool is_doubted, uint64_t *ret);
