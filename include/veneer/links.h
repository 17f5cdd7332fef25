/* SPDX-License-Identifier: Apache-2.0 */
/* The names of a hard-linked lower file: which of them a mount shows, so that copy-up can give them all their
 * entry at once and the file stays one file, in every position the upper is ever read from. */
#pragma once

#include "veneer/inode.h"

struct links;

/* One name of a file, as it is seen: in a directory, referenced. */
struct link_place {
	struct inode *dir;
	const char *name;	/* borrowed from the image */
};

struct link_set {
	struct link_place *v;
	size_t n, cap;
};

int links_init(struct tree *t);
/* While the inode table is still there. */
void links_release(struct tree *t);

/* All names that show the lower file of e, e's own among them if it does; hidden and copied-up ones are left out.
 * Looks in e's directory first; only when the file has more names than are there it reads every directory of the
 * image, once a mount. The answer stays true while no name of the file can go: under its inode's lock.
 * 0 or -errno; release in both cases. */
int links_find(struct tree *t, struct ient *e, struct link_set *ret);
void link_set_release(struct tree *t, struct link_set *s);

/* dir, which something is merged into from below, is about to be renamed: it is found by what it holds from now on. */
int links_note_moved(struct tree *t, struct inode *dir);
/* Any directory has been renamed: a search for those renamed in earlier mounts may have missed it. */
int links_scan_again(struct tree *t, struct inode *dir);
