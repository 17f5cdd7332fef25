/* SPDX-License-Identifier: Apache-2.0 */
/* A report in the text format of Prometheus, version 0.0.4. */
#pragma once

#include "veneer/tools/report.h"

#include <stdio.h>

/* Print metrics of the server and of each mount; all names begin with veneer_. I/O errors stay in
 * out (ferror). 0; -ENOMEM: nothing was written. */
int prometheus_print(const struct report *r, FILE *out);
