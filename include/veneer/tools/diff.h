/* SPDX-License-Identifier: Apache-2.0 */
/* The changes of a layer against the layers below it, read from the layer alone: the list, and the
 * tar of an OCI image. */
#pragma once

#include "veneer/base/step.h"
#include "veneer/layer/image.h"
#include "veneer/tools/layer_stack.h"

#include <stdio.h>

struct diff_entry {
	char kind; /* 'A' added, 'C' changed, 'D' deleted */
	uint8_t type; /* DT_*; of what was deleted that of the lower entry, DT_UNKNOWN without lower
			 layers */
	bool is_opaque; /* a directory: nothing below shows through it */
	bool is_implied; /* deleted by the opaque directory that it was in */
	bool is_partial;
	bool is_copy; /* partial, and a copy of another file */
	uint64_t size; /* of regular files, bytes */
	uint64_t own_blks, blks; /* of partial files, 4 KiB each */
	char *path; /* relative to the root of the layer */
	struct image_entry *image_entry; /* as the stack with the layer on top shows it; NULL
					    without lower layers */
};

struct diff {
	struct diff_entry *entries; /* by path, what is in a directory behind it */
	size_t n, cap;
	struct layer *upper;
	size_t n_upper; /* of the layers of full: it and the snapshots that it stands on */
	struct image *full,
		*below; /* with and without the layer; NULL: the lower layers are not known */
};

/* Read what is different in the layer at `upper`, which may be in use, and in its snapshots, to
 * lower[0..n_lower), top first, and theirs; none: what the layer alone tells, in which directories
 * and files of which it does not say that they are new count as changed. lists_all: what is in a
 * deleted directory is listed too. step may be NULL. release in both cases. 0 or -errno, after a
 * line in the log. */
int diff_read(const char *upper, char *const *lower, size_t n_lower, bool lists_all,
	      const struct step *step, struct diff *ret);
/* The same of layers that are open, top first: what the first n_upper of them change in those
 * below, if there are any. */
int diff_read_stack(const struct layer_stack *s, size_t n_upper, bool lists_all,
		    const struct step *step, struct diff *ret);
void diff_release(struct diff *d);
/* "C /path", as container engines print it. 0 or -errno. */
int diff_print(const struct diff *d, bool has_colours, FILE *out);
int diff_print_json(const struct diff *d, FILE *out);

struct diff_progress {
	size_t entries, nentries;
	uint64_t bytes, nbytes;
};

/* Write the layer as a tar in PAX format with whiteouts as OCI images have them; lower layers are
 * known. step may be NULL. 0 or -errno, after a line in the log. */
int diff_tar_write(const struct diff *d, int fd,
		   void (*step)(void *arg, const struct diff_progress *p), void *arg,
		   struct diff_progress *ret);
