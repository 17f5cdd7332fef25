/* SPDX-License-Identifier: Apache-2.0 */
/* Prints map files and layers for people, exactly as they are. Changes nothing. */
#pragma once

#include "veneer/layer/layer.h"

#include <stdio.h>

struct inspect_out {
	FILE *out;
	/* Called after each line with its code, which is a word for programs (veneer(1) lists all),
	 * its layer (NULL: unknown), and the path there. NULL: not called. Valid only during the
	 * call. */
	void (*line)(void *arg, const char *code, const char *layer, const char *path);
	void *arg;
};

/* Print the map file at fd, at path in layer (NULL: unknown): its header, each record of snapshot
 * and log, and the reason why the log ends. A damaged file is printed up to the damage. 0,
 * -EUCLEAN, or another -errno. */
int inspect_map(int fd, const char *layer, const char *path, const struct inspect_out *to);
/* Print the layer's map, then each file with a partial mark: size, number, lower file, own blocks.
 * 0, also without a map and without marks; -EUCLEAN: something is damaged; another -errno. */
int inspect_layer(struct layer *l, const struct inspect_out *to);
/* Print one file of the layer, or that it is not partial. Results as inspect_layer. */
int inspect_file(struct layer *l, const char *path, const struct inspect_out *to);
/* Print a line of the caller about the object at path. */
__attribute__((format(printf, 5, 6))) void inspect_say(const struct inspect_out *to,
						       const char *code, const char *layer,
						       const char *path, const char *fmt, ...);
