/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a layer against doc/SPEC.md and against the layers below it, and makes repairs that
 * provably lose nothing. */
#pragma once

#include "veneer/base/step.h"
#include "veneer/layer/image.h"

struct check_result {
	size_t files; /* partial files of the layer */
	size_t found, repaired;
};

enum check_mode {
	CHECK_LOOKS,
	CHECK_GUARDS, /* sets missing guards, which no mount of veneer shows; locks nothing */
	CHECK_REPAIRS, /* of a layer that is locked: repairs everything that loses nothing */
	CHECK_SALVAGES, /* also fills files without an entry from their lower files */
};

/* A fault that was found, or a repair. Valid only during the call. */
struct check_finding {
	bool is_repair;
	const char *code; /* a word for programs; veneer(1) lists all */
	const char *layer; /* the layer, or the work directory */
	const char *path; /* in layer */
	const char *text; /* a description for people */
};

struct check_hooks {
	void (*found)(void *arg, const struct check_finding *f);
	void *arg;
	const struct step *step; /* NULL: no progress is reported */
};

/* Call hooks->found for every fault of l, and for every repair. below: compare the files with it;
 * NULL: unknown, so they are not compared. 0, also with faults; -errno: the layer could not be
 * read. */
int check_layer(struct layer *l, struct image *below, enum check_mode mode,
		const struct check_hooks *hooks, struct check_result *ret);
/* Check the work directory at path, of an upper that is locked; adds to *ret. Results as
 * check_layer. */
int check_orphans_work(const char *path, bool repairs, const struct check_hooks *hooks,
		       struct check_result *ret);
