/* SPDX-License-Identifier: Apache-2.0 */
/* A report as people read it: the tables of `veneer stats`, and the frames of `veneer top`. */
#pragma once

#include "veneer/tools/report.h"

#include <stdio.h>

/* Is this mount urgent: has its upper nine tenths of what it may take? */
bool stats_text_is_urgent(const struct report_mount *m);
/* The server, all mounts, and what was asked of them by kind of request; has_colours: what is
 * urgent in red. Errors stay in out (ferror). 0 or -ENOMEM. */
int stats_text_print(const struct report *r, bool has_colours, FILE *out);
/* One mount in full. */
int stats_text_print_mount(const struct report_mount *m, FILE *out);
/* Print the rates between two pictures of one server, per second; the busiest first. */
int stats_text_print_rates(const struct report *begun, const struct report *ended, double seconds,
			   FILE *out);
/* The same as one line of JSON: a report of what was counted meanwhile, and how long that was. */
int stats_text_print_json(const struct report *begun, const struct report *ended, double seconds,
			  FILE *out);
