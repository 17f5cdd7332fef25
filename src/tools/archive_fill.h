/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the header of an archive entry from an object of a layer. */
#pragma once

#include "veneer/tools/diff.h"

#include <archive_entry.h>

/* Set mode, owner, group, modification time and device from st. 0, or -errno after a line in the
 * log. */
int archive_fill_stat(struct archive_entry *to, const struct stat *st);
/* Add the extended attributes, without those that belong to the host or to a union file system. fd:
 * of the object; may be O_PATH. override: an attribute has its owner and mode (image_override).
 * path: for a warning about names that a tar cannot hold; NULL: the reader decodes them. */
int archive_fill_xattrs(struct archive_entry *to, int fd, const struct stat *st, bool override,
			const char *path);
/* Set the target of a symlink. */
int archive_fill_target(struct archive_entry *to, struct image *img, struct image_entry *e);
