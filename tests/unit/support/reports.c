// SPDX-License-Identifier: Apache-2.0
#include "reports.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
#include <stdlib.h>

struct report reports_make(const char *second_place)
{
	struct report r = { .version = strdup("1.2.3"),
			    .pid = 4242,
			    .uptime_s = 11520,
			    .rss_bytes = 12 << 20,
			    .descriptors = 57,
			    .mounts_served = 2,
			    .inodes_served = 1234,
			    .share = { 1, 2, 3, 1 << 20, 5, 6, 7, 8 },
			    .windows = { 5 << 20, 10, 1 << 30 },
			    .limiter = { .is_running = true,
					 .cpu_ns = 1250000,
					 .drop_ns = 750000,
					 .copies = { .limit = 32,
						     .mounts = 64,
						     .extents = 100,
						     .copies = 250,
						     .extra_bytes = 75 << 20,
						     .forgotten = 3 } } };
	struct stats_values *v;

	for (int i = 0; i < STATS_MEMORIES; i++)
		r.memory[i] = (uint64_t)(i + 1) << 20;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(report_make_room(&r), 0);
		r.mounts[i].mountpoint = strdup(i ? second_place : "/c1/merged");
		r.mounts[i].mode = strdup(i ? "cached" : "passthrough");
		r.mounts[i].upper = i ? NULL : strdup("/c1/upper");
		r.mounts[i].unknown = i ? NULL : strdup("sizze=5M, --foo");
		r.mounts[i].mode_reason = i ? NULL : strdup("the kernel reads");
		r.mounts[i].options = i ? NULL : strdup("cow=map,io=auto");
		if (i == 0) {
			r.mounts[i].lowers = calloc(3, sizeof(char *));
			for (int k = 0; k < 3; k++)
				r.mounts[i].lowers[k] = strdup(k ? "/l" : "/top");
		}
		r.mounts[i].nlower = 3;
		r.mounts[i].inodes = 617;
		r.nmounts++;
	}
	r.images[0] = (struct report_image){ .nlayers = 3, .nmounts = 2, .bytes = 1 << 20 };
	r.nimages = 1;
	r.mounts[0].map_files = 1;
	r.mounts[0].map_log_bytes = 4096;
	v = &r.mounts[0].values;
	for (unsigned i = 0; i < STATS_COUNTERS; i++)
		v->counters[i] = 1000 + i;
	v->counters[STATS_WHOLE_BYTES] = 64 << 20;
	v->ops[15] = (struct stats_op){
		.requests = 400, .errors = 5, .sum_ns = 7000000, .max_ns = 20000000000
	};
	v->ops[1] = (struct stats_op){
		.requests = 2, .sum_ns = 3000, .max_ns = 2000, .buckets = { 1, 1 }
	};
	v->ops[2] = (struct stats_op){ .requests = 1 }; /* not answered yet */
	for (unsigned k = 0; k < STATS_BUCKETS; k++)
		v->ops[15].buckets[k] = 1 + k;
	r.totals = *v;
	r.totals.ops[1].requests = 9;
	return r;
}
