/* SPDX-License-Identifier: Apache-2.0 */
/* A report in the text format of Prometheus, version 0.0.4. */
#pragma once

#include "veneer/tools/report.h"

#include <stdio.h>

/* Metrics of the server and of each mount; every name begins with veneer_. Errors stay in out
 * (ferror). 0 or -ENOMEM, and then nothing is written. */
int prometheus_print(const struct report *r, FILE *out);
