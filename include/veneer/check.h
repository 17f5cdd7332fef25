/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a layer with doc/SPEC.md and with the layers below it, and repairs what provably loses nothing. */
#pragma once

#include "veneer/image.h"

#include <stdio.h>

struct check_result {
	size_t files;		/* partial files of the layer */
	size_t found, repaired;
};

/* Write one line to out for everything that is wrong with l: layer, file, reason. below is what its files are compared
 * with; NULL: not known, then they are not. repairs: the layer is locked, and what can be put right is.
 * 0, also with damage; -errno when the layer could not be looked at. */
int check_layer(struct layer *l, struct image *below, bool repairs, FILE *out, struct check_result *ret);
/* The same for the work directory at path, of an upper that is locked: adds to *ret. */
int check_work(const char *path, bool repairs, FILE *out, struct check_result *ret);
