/* SPDX-License-Identifier: Apache-2.0 */
/* What mounts and tools that were stopped in the middle left behind, in a layer and in a work directory. Each thing is
 * one line and one in ret->found; with repairs what is of no use to anybody is removed, and counted. */
#pragma once

#include "veneer/check.h"

#include <stdio.h>

/* In the layer itself, rootfd at path. 0 or -errno. */
int leftover_in_layer(int rootfd, const char *path, bool repairs, FILE *out, struct check_result *ret);
