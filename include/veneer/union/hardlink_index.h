/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the visible names of a hard-linked lower file, so that copy-up can make all their upper
 * entries at once. The file then stays one file for every reader of the upper. */
#pragma once

#include "veneer/union/inode.h"

struct hardlink_index;

/* One visible name of a file, in a referenced directory. */
struct hardlink_place {
	struct inode *dir;
	const char *name; /* borrowed from the image */
};

struct hardlink_set {
	struct hardlink_place *v;
	size_t n, cap;
};

int hardlink_index_init(struct union_fs *t);
/* Call before the inode table is released. */
void hardlink_index_release(struct union_fs *t);

/* Find all names that show the lower file of e, including e's own if it does. Hidden and copied-up
 * names are left out. Looks in e's directory first. If the file has more names than are there, it
 * reads every directory of the image, once per mount. The result stays true while no name of the
 * file can vanish: under its inode's lock. 0 or -errno; release the set in both cases. */
int hardlink_index_find(struct union_fs *t, struct image_entry *e, struct hardlink_set *ret);
void hardlink_index_set_release(struct union_fs *t, struct hardlink_set *s);

/* Call before the rename of dir, which is merged with a lower directory: from now on dir is found
 * by that lower directory. 0 or -errno. */
int hardlink_index_note_moved(struct union_fs *t, struct inode *dir);
/* Call after the rename of any directory: a running scan for renames of earlier mounts may have
 * missed it. 0 or -ENOMEM. */
int hardlink_index_scan_again(struct union_fs *t, struct inode *dir);
