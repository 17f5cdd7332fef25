/* SPDX-License-Identifier: Apache-2.0 */
/* The merged, read-only tree of one stack of lower layers, in memory, filled directory by directory
 * as it is first asked for, shared by every mount of that stack. Entries are never freed before the
 * image; everything is published once by compare-and-swap, so readers take no lock. */
#pragma once

#include "veneer/layer/layer.h"
#include "veneer/layer/source.h"

#include <stdatomic.h>
#include <sys/stat.h>

struct xino;
struct image;
struct image_dir;

/* An entry of the tree. Read-only to everybody but image.c. */
struct image_entry {
	struct image_entry *parent; /* NULL: the root */
	const char *name;
	const uint16_t *
		layers; /* directories and files: every layer that has it, top first; see image.c */
	uint16_t nlayers;
	uint16_t layer; /* the layer whose entry is seen */
	uint8_t type; /* DT_* */
	uint64_t d_ino; /* inode number in that layer */
	_Atomic(struct stat *) st;
	_Atomic(struct image_dir *) dir;
	_Atomic(struct source *) src;
	_Atomic(char *) target; /* of a symlink */
	_Atomic uint64_t ino; /* as presented; 0: not asked yet */
	_Atomic bool is_damaged; /* its other part is missing: found and logged once */
	_Atomic bool is_watched; /* directories, in `layer`: image.c, invariant 5 */
	_Atomic uint8_t plainness; /* enum in image.c; of regular files until src is known */
	_Atomic uint8_t protection; /* of directories, IMAGE_*; 0: not asked yet */
	_Atomic bool is_listed, is_queued; /* readdir_ahead.c's notes on directories */
	_Atomic bool is_expected_written; /* prefetch_io.c's: starts of the image write it */
};

/* Layers top first, n >= 1, at most 65,535; takes references. */
int image_new(struct layer *const *layers, size_t n, struct image **ret);
/* ... that notices when a file or directory it has read changes. */
int image_new_watched(struct layer *const *layers, size_t n, struct image **ret);
/* Nothing that it has read has changed so far, as watch_drain knows (watch.h). False unless it is
 * watched, and once it holds an object that cannot be watched. These are maps but of snapshots,
 * redirects, bytes from another place further down, mounts inside a layer. */
bool image_is_current(const struct image *img);
/* From now on it is not. */
void image_spoil(struct image *img);
/* Close all descriptors but those of the layers; nobody uses the image. Later calls open them
 * again. */
void image_close(struct image *img);
/* Memory that it takes. */
size_t image_bytes(const struct image *img);
struct image *image_ref(struct image *img);
void image_unref(struct image *img);
struct image_entry *image_root(struct image *img);
size_t image_layers(const struct image *img, struct layer *const **ret);

/* Child of a directory. 0, -ENOENT, -EUCLEAN (the other part of the directory is missing; logged),
 * -errno. A hit costs no system call once the directory is known. */
int image_lookup(struct image *img, struct image_entry *dir, const char *name,
		 struct image_entry **ret);
/* By path ("a/b/c", plain). */
int image_lookup_path(struct image *img, const char *path, struct image_entry **ret);
/* stat of the entry as its layer has it (directories of several layers: st_nlink counted over all).
 * Kept; a second call costs no system call. */
int image_stat(struct image *img, struct image_entry *e, struct stat *ret);
/* Children in a fixed order, 0..n-1. Negative: -errno. */
ssize_t image_count(struct image *img, struct image_entry *dir);
struct image_entry *image_child(struct image_entry *dir, size_t i);
/* Places in listings, which stay when an upper becomes a snapshot: those of the names that lower
 * layers have come first, below the result; places of names of snapshots alone are by their hash
 * (listing_place.h). The directory is loaded. */
uint64_t image_lower_places(const struct image_entry *dir);
uint64_t image_place(const struct image_entry *dir, size_t i);
/* The first child that has this place or a later one; the number of children: none. */
size_t image_at_place(const struct image_entry *dir, uint64_t place);
/* The entry's place among its parent's children. Not for the root. */
size_t image_index(const struct image_entry *e);
/* Subdirectories among the children; the directory is loaded. */
size_t image_subdirs(struct image_entry *dir);

/* The bytes of a regular file; borrowed, lives as long as the image. */
int image_source(struct image *img, struct image_entry *e, struct source **ret);
/* The entry has no extended attribute at all; in doubt false. Kept; the first call of an entry
 * costs one system call, and none of a file whose source is known. */
bool image_is_plain(struct image *img, struct image_entry *e);
/* The attribute that owner and mode of the entry are in (mode_xattr.h), or NULL. */
const char *image_override(const struct image *img, const struct image_entry *e);
/* The flags of chattr(1) that programs are shown, of which two refuse changes, as the entry's layer
 * has them: 0, IMAGE_IMMUTABLE, IMAGE_APPEND_ONLY and IMAGE_NODUMP, or -errno. A system call, but
 * for directories, of which it is kept. */
#define IMAGE_IMMUTABLE	  1
#define IMAGE_APPEND_ONLY 2
#define IMAGE_NODUMP	  4
/* Of (dirfd, name), or of dirfd itself if the name is empty. */
int image_protection_at(int dirfd, const char *name);
int image_protection(struct image *img, struct image_entry *e);
/* Read the target of a symlink, not terminated, at most size bytes of it: the length, or -errno.
 * Kept. */
ssize_t image_readlink(struct image *img, struct image_entry *e, char *buf, size_t size);
/* A new O_PATH|O_NOFOLLOW descriptor of any entry. */
int image_open_path(struct image *img, struct image_entry *e);
/* The entry's path in the merged tree, malloc'd ("" for the root); NULL on no memory. */
char *image_path(const struct image_entry *e);
/* The first component of that path, "" for the root itself; borrowed. */
const char *image_top_name(const struct image_entry *e);
/* The path in e->layer: differs where a directory was renamed further up. */
char *image_layer_path(const struct image_entry *e);
/* The path of e in a layer that has it, malloc'd. */
char *image_path_in_layer(const struct image_entry *e, uint16_t layer);
/* st_ino as presented: the layer's number, with the layer's device folded in when there are
 * several, and with the mount inside the layer when the file is in one. A partial file of a layer
 * has the number of the file at the bottom, as before it was copied up. */
uint64_t image_ino(struct image *img, struct image_entry *e);
/* The same for any number found in a layer; mount as layer_inner_mount has it. */
uint64_t image_fold_ino(struct image *img, const struct layer *l, uint64_t mount, ino_t ino);
/* Mounts that were met inside layers, in the order of their numbers. */
struct xino *image_inner_mounts(struct image *img);
/* Names of one file: the same number on the same device, in the same mount and layer. 1, 0 or
 * -errno. */
int image_is_same_file(struct image *img, struct image_entry *a, struct image_entry *b);
