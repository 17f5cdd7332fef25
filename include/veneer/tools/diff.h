/* SPDX-License-Identifier: Apache-2.0 */
/* The changes of a layer against the layers below it, read from the layer alone, as a list or as
 * the tar of an OCI image. */
#pragma once

#include "veneer/base/step.h"
#include "veneer/layer/image.h"
#include "veneer/tools/layer_stack.h"

#include <stdio.h>

struct diff_entry {
	char kind; /* 'A' added, 'C' changed, 'D' deleted */
	uint8_t type; /* DT_*; for a deletion, of the lower entry, or DT_UNKNOWN without lower
			 layers */
	bool is_opaque; /* a directory through which nothing below shows */
	bool is_implied; /* deleted by the opaque directory that contained it */
	bool is_partial;
	bool is_copy; /* a partial file that is a copy of another file */
	uint64_t size; /* of a regular file, in bytes */
	uint64_t own_blks, blks; /* of a partial file, in blocks of 4 KiB */
	char *path; /* relative to the root of the layer */
	struct image_entry *image_entry; /* with the layer on top; NULL: no lower layers */
};

struct diff {
	struct diff_entry *entries; /* sorted by path; a directory comes before its contents */
	size_t n, cap;
	struct layer *upper;
	size_t n_upper; /* number of layers of full: the layer and its snapshots */
	struct image *full,
		*below; /* with and without the layer; NULL: the lower layers are unknown */
};

/* Read the differences of the layer at `upper` and its snapshots to lower[0..n_lower), top first,
 * and their snapshots. The layer may be in use. Without lower layers only the layer is read, and an
 * entry not marked as new counts as changed. lists_all: also list the contents of deleted
 * directories. step may be NULL. Release ret in both cases. 0, or -errno after a line in the
 * log. */
int diff_read(const char *upper, char *const *lower, size_t n_lower, bool lists_all,
	      const struct step *step, struct diff *ret);
/* diff_read with open layers, top first: the changes of the first n_upper of them against the
 * others, if there are any. */
int diff_read_stack(const struct layer_stack *s, size_t n_upper, bool lists_all,
		    const struct step *step, struct diff *ret);
void diff_release(struct diff *d);
/* Print lines like "C /path", as container engines do. 0 or -errno. */
int diff_print(const struct diff *d, bool has_colours, FILE *out);
int diff_print_json(const struct diff *d, FILE *out);

struct diff_progress {
	size_t entries, nentries;
	uint64_t bytes, nbytes;
};

/* Write the layer as a tar in PAX format, with the whiteouts of OCI images. The lower layers must
 * be known. step may be NULL. 0, or -errno after a line in the log. */
int diff_tar_write(const struct diff *d, int fd,
		   void (*step)(void *arg, const struct diff_progress *p), void *arg,
		   struct diff_progress *ret);
