/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a layer with doc/SPEC.md and with the layers below it, and repairs what provably loses
 * nothing. */
#pragma once

#include "veneer/base/step.h"
#include "veneer/layer/image.h"

struct check_result {
	size_t files; /* partial files of the layer */
	size_t found, repaired;
};

enum check_mode {
	CHECK_LOOKS,
	CHECK_REPAIRS, /* the layer is locked, and what can be put right without loss is */
	CHECK_SALVAGES, /* besides, files without an entry get what they lack from their lower
			 * files */
};

/* Something that is wrong, or was put right. All of it is valid during the call only. */
struct check_finding {
	bool is_repair;
	const char *code; /* a word for programs; veneer(1) has them all */
	const char *layer; /* the layer, or the work directory */
	const char *path; /* in there */
	const char *text; /* what, for people */
};

struct check_hooks {
	void (*found)(void *arg, const struct check_finding *f);
	void *arg;
	const struct step *step; /* NULL: nobody asks */
};

/* Call hooks->found for everything that is wrong with l. below is what its files are compared with;
 * NULL: not known, then they are not. What is put right has a call of its own. 0, also with damage;
 * -errno when the layer could not be looked at. */
int check_layer(struct layer *l, struct image *below, enum check_mode mode,
		const struct check_hooks *hooks, struct check_result *ret);
/* The same for the work directory at path, of an upper that is locked: adds to *ret. */
int check_orphans_work(const char *path, bool repairs, const struct check_hooks *hooks,
		       struct check_result *ret);
