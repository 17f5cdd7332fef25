/* SPDX-License-Identifier: Apache-2.0 */
/* Prints map files and layers for people, byte for byte as they are. Changes nothing. */
#pragma once

#include "veneer/layer/layer.h"

#include <stdio.h>

struct inspect_out {
	FILE *out;
	/* NULL, or told after each line what that was: a word for programs (veneer(1) has them
	 * all), the layer, NULL where that is not known, and what in there. All of it is valid
	 * during the call only. */
	void (*line)(void *arg, const char *code, const char *layer, const char *path);
	void *arg;
};

/* The map file at fd, which lies at path in layer (NULL: that is not known): its header, each
 * record of snapshot and log, and why the log ends. A damaged file is described up to the damage.
 * 0, -EUCLEAN, or another -errno. */
int inspect_map(int fd, const char *layer, const char *path, const struct inspect_out *to);
/* The layer's map, then each of its files that carries a partial mark: size, number, lower file,
 * own blocks. 0, also without a map and without marks; -EUCLEAN when anything is damaged; another
 * -errno. */
int inspect_layer(struct layer *l, const struct inspect_out *to);
/* The line of one file of the layer. As inspect_layer; a file that is not partial is said to be
 * none. */
int inspect_file(struct layer *l, const char *path, const struct inspect_out *to);
/* A line of the caller's own, about what is at path. */
__attribute__((format(printf, 5, 6))) void inspect_say(const struct inspect_out *to,
						       const char *code, const char *layer,
						       const char *path, const char *fmt, ...);
