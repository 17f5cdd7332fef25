/* SPDX-License-Identifier: Apache-2.0 */
/* A report as text for people: the tables of `veneer stats`, and the frames of `veneer top`. */
#pragma once

#include "veneer/tools/report.h"

#include <stdio.h>

/* Is this mount urgent: has its upper reached nine tenths of a limit? */
bool stats_text_is_urgent(const struct report_mount *m);
/* Print the server, all mounts, and requests by kind. has_colours: urgent mounts are red. I/O
 * errors stay in out (ferror). 0 or -ENOMEM. */
int stats_text_print(const struct report *r, bool has_colours, FILE *out);
/* Print one mount in full. */
int stats_text_print_mount(const struct report_mount *m, FILE *out);
/* Print the rates per second between two reports of one server, the busiest mount first. */
int stats_text_print_rates(const struct report *begun, const struct report *ended, double seconds,
			   FILE *out);
/* Print the rates as one line of JSON: a report of the gains, and the time between. */
int stats_text_print_json(const struct report *begun, const struct report *ended, double seconds,
			  FILE *out);
