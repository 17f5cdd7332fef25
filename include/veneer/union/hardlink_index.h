/* SPDX-License-Identifier: Apache-2.0 */
/* The names of a hard-linked lower file: which of them a mount shows, so that copy-up can give them
 * all their entry at once and the file stays one file, in every position the upper is ever read
 * from. */
#pragma once

#include "veneer/union/inode.h"

struct hardlink_index;

/* One name of a file, as it is seen: in a directory, referenced. */
struct hardlink_place {
	struct inode *dir;
	const char *name; /* borrowed from the image */
};

struct hardlink_set {
	struct hardlink_place *v;
	size_t n, cap;
};

int hardlink_index_init(struct union_fs *t);
/* While the inode table is still there. */
void hardlink_index_release(struct union_fs *t);

/* All names that show the lower file of e, e's own among them if it does; hidden and copied-up ones
 * are left out. Looks in e's directory first; only when the file has more names than are there it
 * reads every directory of the image, once a mount. The answer stays true while no name of the file
 * can go: under its inode's lock. 0 or -errno; release in both cases. */
int hardlink_index_find(struct union_fs *t, struct image_entry *e, struct hardlink_set *ret);
void hardlink_index_set_release(struct union_fs *t, struct hardlink_set *s);

/* dir, which something is merged into from below, is about to be renamed: it is found by what it
 * holds from now on. */
int hardlink_index_note_moved(struct union_fs *t, struct inode *dir);
/* Any directory has been renamed: a search for those renamed in earlier mounts may have missed
 * it. */
int hardlink_index_scan_again(struct union_fs *t, struct inode *dir);
