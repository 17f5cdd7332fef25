/* SPDX-License-Identifier: Apache-2.0 */
/* Finds remains of interrupted mounts and tools in a layer and in a work directory. Each one is
 * reported; a repair removes those that no mount can use. */
#pragma once

#include "check_report.h"

/* Check the layer at rootfd. 0 or -errno. */
int check_orphans_in_layer(int rootfd, bool repairs, const struct check_report_place *at);
