/* SPDX-License-Identifier: Apache-2.0 */
/* An upper and the layers below it, for a command that takes a mount point, or an upper with -o
 * lowerdir=. */
#pragma once

#include "veneer/mount/options.h"
#include "veneer/tools/report.h"

struct upper_layers {
	char *upper; /* owned */
	char **lower; /* borrowed from report or opts; top first */
	size_t n_lower;
	bool is_mounted; /* a mount point was given */
	struct report report;
	struct mount_opts opts;
};

/* list: value of -o, or NULL. command: for messages. 0, or -errno after a sentence; release in both
 * cases. */
int upper_layers_find(const char *given, char *list, const char *command, struct upper_layers *ret);
void upper_layers_release(struct upper_layers *l);
/* Parse lowerdir=A[:B...] as a mount does. 0, or -EINVAL after a sentence. */
int upper_layers_parse(char *list, struct mount_opts *ret);
