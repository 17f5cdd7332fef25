/* SPDX-License-Identifier: Apache-2.0 */
/* Prints map files and layers for people, byte for byte as they are. Changes nothing. */
#pragma once

#include "veneer/layer.h"

#include <stdio.h>

/* The map file at fd: its header, each record of snapshot and log, and why the log ends. A damaged
 * file is described up to the damage. 0, -EUCLEAN, or another -errno. */
int inspect_map(int fd, const char *name, FILE *out);
/* The layer's map, then each of its files that carries a partial mark: size, number, lower file, own blocks. 0, also
 * without a map and without marks; -EUCLEAN when anything is damaged; another -errno. */
int inspect_layer(struct layer *l, FILE *out);
/* The line of one file of the layer. As inspect_layer; a file that is not partial is said to be none. */
int inspect_file(struct layer *l, const char *path, FILE *out);
