/* SPDX-License-Identifier: Apache-2.0 */
/* The first name of each file with several names, for an archive in which the others are links. */
#pragma once

#include "veneer/base/htab.h"
#include "veneer/tools/diff.h"

/* Zero-initialised: empty. */
struct first_names {
	struct htab names;
};

/* The first name of the file with this stat that was passed here. NULL: it is this one, whose path
 * is borrowed. Without memory a file counts as a new one. */
const char *first_names_of(struct first_names *f, const struct diff_entry *e,
			   const struct stat *st);
void first_names_release(struct first_names *f);
