/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles of images: one file an image in a directory of the user's, which any number of processes
 * use at once. Each file may be deleted at any time. An image is the stack of its lower layers, and
 * a layer is known by device, inode and birth time of its root: a profile is of this machine.
 *
 * A file is written whole under another name and renamed. Writers take turns by flock(2); readers
 * take no lock. profile_format.h has the bytes.
 *
 * Every call may take as long as the file system takes: for threads without waiters. dirfd stays
 * the caller's, and open. All return 0 or -errno, with a sentence in err when it is not 0: -EUCLEAN
 * (damaged), -EPROTO (of a newer version), -EFBIG, -EROFS, -EBUSY (locked for too long), -ENOSPC,
 * -ENOENT, -ENOMEM, -EIO. */
#pragma once

#include "veneer/prefetch/predictor.h"

#include <stdbool.h>
#include <sys/types.h>

#define PROFILE_PREFIX	      "profile-" /* and the key in hexadecimal */
#define PROFILE_LOCK	      "profile.lock"
#define PROFILE_VERSION	      1 /* of what veneer profile exports */
#define PROFILE_BYTES_MAX     (64u << 20) /* all files together */
#define PROFILE_BYTES_OF_FILE (16u << 20) /* a larger one is not ours */
#define PROFILE_IMAGES_MAX    256u /* least recently stored first out */
#define PROFILE_ITEMS_MAX     32768u /* of one image; least recently seen first out */
#define PROFILE_LAYERS_MAX    65535u

/* An image as a mount knows it. Layers top first. */
struct profile_stack {
	const uint64_t *layers; /* profile_layer_key */
	size_t n;
	const char *label; /* for people: path of the top layer */
};

struct profile_file {
	char *path; /* in the merged tree */
	uint64_t layer; /* the layer that has the file */
};

enum profile_kind { PROFILE_READ, PROFILE_WRITTEN, PROFILE_KINDS };

/* An extent that was read, or a file that was written (extent 0). */
struct profile_item {
	uint32_t file; /* index */
	uint32_t extent;
	enum profile_kind kind;
	int64_t last_seen; /* seconds since 1970 */
	struct predictor_item history;
};

/* How good predictions were. */
struct profile_score {
	uint64_t judged; /* starts with a verdict, or without prefetch before a check */
	double precision; /* of the last ones, the last counting most; 0..1 */
};

/* The whole profile of an image. */
struct profile_image {
	struct profile_file *files;
	size_t nfiles;
	struct profile_item *items;
	size_t nitems;
	unsigned starts;
	bool is_borrowed; /* it was never seen: of the image that shares most layers with it, the
			     files in these */
	struct profile_score score;
	int64_t last_seen;
	char *label;
	uint64_t key, *layers;
	size_t nlayers;
};

/* One start: items' histories need first_ms and order only. */
struct profile_start {
	const struct profile_file *files;
	size_t nfiles;
	const struct profile_item *items;
	size_t nitems;
	int64_t at; /* seconds since 1970 */
	bool is_judged;
	double precision; /* of its prediction */
};

uint64_t profile_layer_key(dev_t dev, ino_t ino, int64_t btime_s, int64_t btime_ns);
uint64_t profile_image_key(const struct profile_stack *s);

/* Load the profile of the image, or of one that shares layers with it; starts is 0 without one. */
int profile_load(int dirfd, const struct profile_stack *s, struct profile_image *ret, char *err,
		 size_t err_size);
/* Add one more start of the image. Afterwards the files are within their bounds. */
int profile_store(int dirfd, const struct profile_stack *s, const struct profile_start *start,
		  char *err, size_t err_size);
/* Call fn for all images, last started first; with their items or without. A result of fn but 0
 * ends it, and is returned. */
int profile_each(int dirfd, bool wants_items, int (*fn)(const struct profile_image *img, void *arg),
		 void *arg, char *err, size_t err_size);
/* In place of the profile of the image of that key, if any. */
int profile_put(int dirfd, const struct profile_image *img, char *err, size_t err_size);
/* Forget one, or all (key 0). -ENOENT without a sentence: it is not known. */
int profile_forget(int dirfd, uint64_t key, char *err, size_t err_size);
void profile_image_release(struct profile_image *img);
