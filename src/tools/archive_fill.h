/* SPDX-License-Identifier: Apache-2.0 */
/* What an entry of an archive says of an object that a layer shows. */
#pragma once

#include "veneer/tools/diff.h"

#include <archive_entry.h>

/* Mode, owner, group, modification time and device of st. 0 or -errno, after a line in the log. */
int archive_fill_stat(struct archive_entry *to, const struct stat *st);
/* Extended attributes, but for those that belong to the host or to a union file system. fd: of the
 * object, may be O_PATH; override: its owner and mode are in an attribute (image_override). path:
 * to warn of names that no tar can have; NULL: the reader decodes them. */
int archive_fill_xattrs(struct archive_entry *to, int fd, const struct stat *st, bool override,
			const char *path);
/* The target of a symlink. */
int archive_fill_target(struct archive_entry *to, struct image *img, struct image_entry *e);
