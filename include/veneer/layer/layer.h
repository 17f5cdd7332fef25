/* SPDX-License-Identifier: Apache-2.0 */
/* One directory tree of a stack: root descriptor, identity and, if it was ever an upper, its map.
 * Reference counted; shared by every image and mount that names it. */
#pragma once

#include "veneer/base/list.h"
#include "veneer/base/lock.h"
#include "veneer/map/mapfile.h"

#include <sys/types.h>
#include <time.h>

struct snapshot_links;

struct layer {
	_Atomic unsigned refs;
	int rootfd; /* O_RDONLY|O_DIRECTORY; -1 while no image in use has the layer
		       (layer_registry.h) */
	dev_t dev;
	ino_t ino;
	uint64_t mount_id; /* of the mount by which it was opened, never given to another; 0: not
			      known (before Linux 6.8) */
	uint64_t root_mount; /* of the mount by which rootfd was opened, while that is open; 0: not
				known (before Linux 5.8) */
	struct timespec btime; /* zero where the file system keeps none */
	bool is_private; /* of one image, against its numbers (layer_registry.h); constant by
			    then */
	bool is_mappable; /* its root's file system has windows (mmap_cache.h), and is local */
	bool is_static; /* layer_trust_remote; constant by then */
	bool is_frozen; /* in the hidden directory of an upper, and held: nobody changes its map */
	bool is_snapshot; /* of an upper, in its hidden directory (branch_dir.h); constant by then
			   */
	bool is_rest; /* the part of the layer right above it that has moved: a snapshot of that was
			 interrupted (branch_dir.h). Each name of a root, or its whiteout, is in one
			 of the two, with all that is in it; constant by then */
	struct timespec root_mtime; /* of a rest, and of an unfinished snapshot: as shown by the
				       layer above; else zero; constant by then */
	bool has_numbers; /* some of its files show another inode number than their own
			     (snapshot_number.h); constant by then */
	bool is_upper; /* opened for writing by the mount that owns it */
	const char *override; /* attribute that holds owners and modes, or NULL (mode_xattr.h) */
	bool is_doubted; /* a mark is not believed because a file's owner may write it
			    (xattr_trust.h); constant by then */
	_Atomic bool has_windows; /* parts of its files are mapped (mmap_cache.h) */
	char *path; /* as given; for messages only: layers are reached by other paths too */
	/* Names of its files that programs do not see; a reference, or NULL (snapshot_links.h). */
	_Atomic(struct snapshot_links *) links;
	/* layer_registry.c's, guarded by its lock */
	unsigned users; /* images in use that have it */
	struct list_link live; /* among the uppers that are written */
	bool is_counted;
	mutex_t map_lock;
	struct mapfile *map; /* made once, under map_lock, by the call that returns it */
	/* of the first attempt to open the map: not tried again */
	GUARDED_BY(map_lock) int map_error;
	mutex_t clone_lock;
	/* rootfd in a read-only clone of its mount; -1 none yet, or -errno - 1 */
	GUARDED_BY(clone_lock) int readonly_root;
};

/* Open the directory at path, following symlinks in the path itself. 0 or -errno (-ENOTDIR). */
int layer_open(const char *path, struct layer **ret);
/* The same of a directory that is open for reading; rootfd is taken over, also on failure. */
int layer_open_fd(int rootfd, const char *path, struct layer **ret);
/* Trust that the layer is not changed elsewhere: where such changes would not be seen it is shared
 * all the same, and its files are not opened anew for each open. Without effect on local file
 * systems. Before layer_registry_image. */
void layer_trust_remote(struct layer *l);
/* It is a snapshot of an upper. Before layer_registry_image. */
void layer_note_snapshot(struct layer *l);
/* It is the rest of the layer above it. Before layer_registry_image. */
void layer_note_rest(struct layer *l);
/* The index of the first of n layers that the k-th, and its rest, stand on; n: none. */
size_t layer_below(struct layer *const *layers, size_t n, size_t k);
struct layer *layer_ref(struct layer *l);

/* Tell a file of a mount inside the layer from a file of the layer itself. The mount by which fd
 * was opened decides; where the kernel does not name it, and in a subvolume of btrfs, the device.
 * 0: not such a file. ret_ino: its inode number. fd was opened beneath rootfd; no lock. 0 or
 * -errno. */
int layer_inner_mount(const struct layer *l, int fd, uint64_t *ret_mount, ino_t *ret_ino);
void layer_unref(struct layer *l);

/* The layer's map, opened at the first call: READONLY. 0, -ENOENT when the layer has none, -EUCLEAN
 * when it is damaged (logged once). Borrowed: lives as long as the layer. */
int layer_map(struct layer *l, struct mapfile **ret);
/* The layer's root in a clone of its mount that is always read-only: the kernel refuses to write
 * files that are opened beneath it. Made at the first call, goes with the layer. Mounts inside the
 * layer are not in it. Borrowed descriptor, or -errno. */
int layer_readonly_root(struct layer *l);
/* Take the descriptor of an unused layer, for the caller to close (-1: there is none). The next
 * call of the above makes one. */
int layer_steal_readonly_root(struct layer *l);
/* The clone that from brought along, where l has none: from is the same directory, and of this
 * thread alone. */
void layer_take_readonly_root(struct layer *l, struct layer *from);
/* Open the map of an upper for writing; work_fd as mapfile_open. Once, before anything else. */
int layer_open_upper_map(struct layer *l, int work_fd, unsigned flags, bool has_true_extents);
