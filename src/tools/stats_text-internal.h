/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by stats_text.c and top_screen.c. */
#pragma once

#include "veneer/tools/stats_text.h"

/* A mount of the later picture, and what it counted meanwhile. */
struct busy {
	const struct report_mount *m;
	struct stats_values gained;
	uint64_t requests;
};

uint64_t stats_text_sum_errors(const struct stats_values *v);
/* All kinds of request in one. */
struct stats_op stats_text_sum_ops(const struct stats_values *v);
/* Gains of each mount of ended, the busiest first; malloc'd, NULL on no memory. */
struct busy *stats_text_gained(const struct report *begun, const struct report *ended);
/* Gains of all mounts between the two; malloc'd. */
struct stats_values *stats_text_gained_in_all(const struct report *begun,
					      const struct report *ended);
void stats_text_print_server(const struct report *r, FILE *out);
/* The most frequent kinds of request per second, so many at most. */
int stats_text_print_op_rates(const struct stats_values *v, double seconds, size_t limit,
			      FILE *out);
