/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what mounts and tools that were stopped in the middle left behind, in a layer and in a work
 * directory. Each thing is reported; a repair removes what is of no use to any mount. */
#pragma once

#include "check_report.h"

/* In the layer itself, at rootfd. 0 or -errno. */
int check_orphans_in_layer(int rootfd, bool repairs, const struct check_report_place *at);
