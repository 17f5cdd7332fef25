/* SPDX-License-Identifier: Apache-2.0 */
/* What panel.c and screen.c both print. */
#pragma once

#include "veneer/panel.h"

/* A mount of the later picture, and what it counted meanwhile. */
struct busy {
	const struct report_mount *m;
	struct stats_values gained;
	uint64_t requests;
};

uint64_t panel_sum_errors(const struct stats_values *v);
/* All kinds of request in one. */
struct stats_op panel_sum_ops(const struct stats_values *v);
/* One for each mount of ended, the busiest first; malloc'd, NULL on no memory. */
struct busy *panel_gained(const struct report *begun, const struct report *ended);
/* What all mounts counted between the two; malloc'd. */
struct stats_values *panel_gained_in_all(const struct report *begun, const struct report *ended);
size_t panel_count_ops(const struct stats_values *v);
void panel_print_server(const struct report *r, FILE *out);
/* The most frequent kinds of request per second, so many at most. */
int panel_print_op_rates(const struct stats_values *v, double seconds, size_t limit, FILE *out);
