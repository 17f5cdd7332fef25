/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a layer over an image, entry by entry, in an empty directory that nobody else knows
 * (doc/SPEC.md, section 6). Paths are plain. What a name stands over is read, and not changed.
 * Where a parent directory is missing it is made, and gets its attributes when its own entry
 * comes. */
#pragma once

#include "veneer/base/hash.h"
#include "veneer/layer/image.h"
#include "veneer/layer/whiteout.h"

struct delta_layer {
	int rootfd; /* of the layer */
	int work_fd; /* a directory of the same file system for temporary files */
	struct whiteout_style style;
	struct image *below;
	struct mapfile *map; /* delta_layer_open's */
	char *buf;
	struct delta_own *owns; /* owned: what the map is to get of the file that is being made */
	size_t n_owns, cap_owns;
	file_id_t owner; /* of the owns */
};

struct delta_xattr {
	const char *name;
	const void *value;
	size_t size;
};

/* What an object is to be. */
struct delta_object {
	const char *path;
	struct stat st; /* mode, owner, group, modification time, size and device */
	const char *target; /* of a symlink */
	const struct delta_xattr *xattrs;
	size_t nxattrs;
};

/* A regular file while it is made. */
struct delta_file {
	struct delta_layer *l;
	int fd;
	file_id_t id; /* 0: it has no base */
	uint64_t size;
	uint64_t clip;
	struct source *base; /* borrowed from the image */
};

/* rootfd, work_fd, style and below are set. 0 or -errno; close in both cases. */
int delta_layer_open(struct delta_layer *l);
/* All of it is on the disk, and the layer can be used as any other, or be opened again. 0 or
 * -errno. */
int delta_layer_sync(struct delta_layer *l);
void delta_layer_close(struct delta_layer *l);

/* Each: 0; -EEXIST: there is something already; -errno. */
int delta_layer_whiteout(struct delta_layer *l, const char *path);
/* -EUCLEAN: first is no file that may have two names. */
int delta_layer_link(struct delta_layer *l, const char *path, const char *first);
int delta_layer_special(struct delta_layer *l, const struct delta_object *o);
/* A directory, with all that is to be in it. "." is the root. is_opaque: nothing below shows
 * through it. */
int delta_layer_directory(struct delta_layer *l, const struct delta_object *o, bool is_opaque);
/* A directory that is as the one below. -ESTALE: there is none. */
int delta_layer_same_directory(struct delta_layer *l, const char *path);

/* Where the bytes of a new file are that are not written. */
struct delta_base {
	const char *path; /* in the image; NULL: of no other file, they are zeros */
	uint64_t size; /* that it must have */
	bool is_own_place; /* it is what the file stands over by its name, which is the only one */
	bool is_copy; /* it is another file, of which this one is a copy: not at its own place */
};

/* A new file of o's size, which has no name in the layer yet: there is one at a time, and one that
 * was not placed goes. -ESTALE: the base is not there, or is another one. close if 0. */
int delta_layer_file_new(struct delta_layer *l, const struct delta_object *o,
			 const struct delta_base *base, struct delta_file *ret);
/* The one that was not placed, as it was before anything was written from `at` on. -EUCLEAN: it is
 * no such file, or has another base; -ESTALE: as delta_layer_file_new. */
int delta_layer_file_again(struct delta_layer *l, const struct delta_object *o,
			   const struct delta_base *base, uint64_t at, struct delta_file *ret);
/* Bytes of its own. Of a file with a base they are whole blocks, but for the end of the file: else
 * -EUCLEAN. */
int delta_layer_file_write(struct delta_file *f, const void *data, size_t len, uint64_t off);
/* Zeros of its own. Where the base could be seen they are whole blocks: else -EUCLEAN. */
int delta_layer_file_zeros(struct delta_file *f, uint64_t off, uint64_t len);
/* Add the bytes of the base in that range to a sum. -ESTALE: it has none there. */
int delta_layer_file_sum_base(struct delta_file *f, uint64_t off, uint64_t len,
			      struct hash_stream *sum);
void delta_layer_file_close(struct delta_file *f);
/* What was written to the file since it was made, or gone on with, counts. 0 or -errno. */
int delta_layer_file_settle(struct delta_layer *l);
/* The file gets its attributes and its name. 0; -EEXIST; -errno. */
int delta_layer_file_place(struct delta_layer *l, const struct delta_object *o);
