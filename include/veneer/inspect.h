/* SPDX-License-Identifier: Apache-2.0 */
/* Prints map files and layers for people, byte for byte as they are. Changes nothing. */
#pragma once

#include <stdio.h>

/* The map file at fd: its header, each record of snapshot and log, and why the log ends. A damaged
 * file is described up to the damage. 0, -EUCLEAN, or another -errno. */
int inspect_map(int fd, const char *name, FILE *out);
/* The layer's map, then each of its files that carries a partial mark. 0, also without a map and
 * without marks; -EUCLEAN when anything is damaged; another -errno. */
int inspect_layer(int rootfd, const char *name, FILE *out);
