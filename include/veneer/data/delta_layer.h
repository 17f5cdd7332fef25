/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a layer over an image, entry by entry, in an empty directory that no other process uses
 * (doc/SPEC.md, section 6). Paths are plain. The image below is read and never changed. A missing
 * parent directory is made, and gets its attributes with its own entry. */
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
	struct delta_own *owns; /* owned: blocks of the file being made that the map will record */
	size_t n_owns, cap_owns;
	file_id_t owner; /* the file that owns belongs to */
};

struct delta_xattr {
	const char *name;
	const void *value;
	size_t size;
};

/* The attributes of an object to make. */
struct delta_object {
	const char *path;
	struct stat st; /* mode, owner, group, modification time, size and device */
	const char *target; /* of a symlink */
	const struct delta_xattr *xattrs;
	size_t nxattrs;
};

/* A regular file that is being made. */
struct delta_file {
	struct delta_layer *l;
	int fd;
	file_id_t id; /* 0: the file has no base */
	uint64_t size;
	uint64_t clip;
	struct source *base; /* borrowed from the image */
};

/* The caller sets rootfd, work_fd, style and below. 0 or -errno; close in both cases. */
int delta_layer_open(struct delta_layer *l);
/* Sync the whole layer to the disk; it can then be used, or be opened again. 0 or -errno. */
int delta_layer_sync(struct delta_layer *l);
void delta_layer_close(struct delta_layer *l);

/* Each: 0; -EEXIST: the name exists; -errno. */
int delta_layer_whiteout(struct delta_layer *l, const char *path);
/* -EUCLEAN: first is no file that may have two names. */
int delta_layer_link(struct delta_layer *l, const char *path, const char *first);
int delta_layer_special(struct delta_layer *l, const struct delta_object *o);
/* Make a directory with all its attributes. "." is the root. is_opaque: it hides the entries of the
 * directory below. */
int delta_layer_directory(struct delta_layer *l, const struct delta_object *o, bool is_opaque);
/* Make a directory with the attributes of the one below. -ESTALE: there is none. */
int delta_layer_same_directory(struct delta_layer *l, const char *path);

/* The source of the bytes of a new file that are not written. */
struct delta_base {
	const char *path; /* in the image; NULL: no base, those bytes are zeros */
	uint64_t size; /* the size that the base must have */
	bool is_own_place; /* the file has one name, and the base is the file below that name */
	bool is_copy; /* the file is a copy of the base, which is at another path */
};

/* Make a new file of o's size, without a name in the layer yet. There is one such file at a time: a
 * previous one that was not placed is removed. -ESTALE: the base is missing or differs. close if
 * 0. */
int delta_layer_file_new(struct delta_layer *l, const struct delta_object *o,
			 const struct delta_base *base, struct delta_file *ret);
/* Reopen the file that was not placed, with its content before `at`. -EUCLEAN: the file does not
 * match o or has another base; -ESTALE: as of delta_layer_file_new. */
int delta_layer_file_again(struct delta_layer *l, const struct delta_object *o,
			   const struct delta_base *base, uint64_t at, struct delta_file *ret);
/* Write own bytes. In a file with a base they must be whole blocks, except at the end of the file:
 * otherwise -EUCLEAN. */
int delta_layer_file_write(struct delta_file *f, const void *data, size_t len, uint64_t off);
/* Make a range own zeros. Where the base shows, the range must be whole blocks: otherwise
 * -EUCLEAN. */
int delta_layer_file_zeros(struct delta_file *f, uint64_t off, uint64_t len);
/* Add a range of the base's bytes to a checksum. -ESTALE: the base does not reach there. */
int delta_layer_file_sum_base(struct delta_file *f, uint64_t off, uint64_t len,
			      struct hash_stream *sum);
void delta_layer_file_close(struct delta_file *f);
/* Record in the map the blocks written since the last delta_layer_file_new, _again or _settle. 0 or
 * -errno. */
int delta_layer_file_settle(struct delta_layer *l);
/* Give the file its attributes and its name. 0; -EEXIST; -errno. */
int delta_layer_file_place(struct delta_layer *l, const struct delta_object *o);
