/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by stats_text.c and top_screen.c. */
#pragma once

#include "veneer/tools/stats_text.h"

/* A mount of the later report, and its gains since the earlier one. */
struct busy {
	const struct report_mount *m;
	struct stats_values gained;
	uint64_t requests;
};

uint64_t stats_text_sum_errors(const struct stats_values *v);
/* Sum up all kinds of request. */
struct stats_op stats_text_sum_ops(const struct stats_values *v);
/* The gains of each mount of ended, the busiest first; malloc'd, NULL: no memory. */
struct busy *stats_text_gained(const struct report *begun, const struct report *ended);
/* The gains of all mounts between the two reports; malloc'd, NULL: no memory. */
struct stats_values *stats_text_gained_in_all(const struct report *begun,
					      const struct report *ended);
void stats_text_print_server(const struct report *r, FILE *out);
/* Print the rates of the most frequent kinds of request, at most limit of them. */
int stats_text_print_op_rates(const struct stats_values *v, double seconds, size_t limit,
			      FILE *out);
