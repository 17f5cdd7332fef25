/* SPDX-License-Identifier: Apache-2.0 */
/* Counters: bumped by any thread without a lock, read by any thread. Each mount has a struct stats.
 * Events that belong to no mount count for the process, whose totals include the mounts that have
 * ended.
 *
 * The counting code need not know for which mount: a thread works for one mount at a time
 * (stats_enter), and deep modules just call stats_add. */
#pragma once

#include "veneer/base/stats_counters.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STATS_ENUMERATOR(name, ...) name,
enum stats_counter { STATS_COUNTER_LIST(STATS_ENUMERATOR) STATS_COUNTERS };
enum stats_memory { STATS_MEMORY_LIST(STATS_ENUMERATOR) STATS_MEMORIES };

#define STATS_OPCODES 64 /* the first is 1; 0 takes those without a name */
#define STATS_BUCKETS                                                                             \
	26 /* bucket k: at most 2^k microseconds, but more than 2^(k-1); the last: more than 2^24 \
	    */

/* One kind of request. */
struct stats_op {
	uint64_t requests; /* that came */
	uint64_t errors; /* answered with an error, negative look-ups and absent attributes aside */
	uint64_t sum_ns, max_ns;
	uint64_t buckets[STATS_BUCKETS]; /* answered, by how long it took */
};

/* A picture of the counters; counters that belong together may differ by the events of the
 * moment. */
struct stats_values {
	uint64_t counters[STATS_COUNTERS];
	struct stats_op ops[STATS_OPCODES];
};

/* The names of a counter, as in stats_counters.h. Borrowed, constant. */
struct stats_name {
	const char *line, *group, *key, *help;
};

struct stats;

/* New statistics of one mount. 0 or -ENOMEM. */
int stats_new(struct stats **ret);
/* No thread counts for it any more. Its counts stay in the totals of the process. NULL does
 * nothing. */
void stats_free(struct stats *s);

/* From now on this thread counts for s (NULL: for the process). Gives whom it counted for
 * before. */
struct stats *stats_enter(struct stats *s);

void stats_add(enum stats_counter which, uint64_t n);
/* A request is served by this thread between these two, for s; stats_count_request says which one
 * it is. It is counted when it comes, and timed when it has been answered. */
void stats_request_begin(struct stats *s);
void stats_request_end(void);
/* A request of the kernel, by its FUSE opcode; unknown ones are counted together. */
void stats_count_request(uint32_t opcode);
/* The request is about to be answered with an error; once. */
void stats_request_failed(void);

/* Memory was taken or given back. The second pair takes a pointer of malloc (NULL: nothing). */
void stats_memory_add(enum stats_memory which, int64_t bytes);
void stats_memory_took(enum stats_memory which, void *p);
void stats_memory_gives(enum stats_memory which, void *p);
uint64_t stats_memory(enum stats_memory which);
const char *stats_memory_name(enum stats_memory which);

/* Totals of the process, mounts that ended included. */
uint64_t stats_requests(void);
/* Requests of every kind in this picture. */
uint64_t stats_sum_requests(const struct stats_values *v);
/* All of one mount's; NULL: totals of the process. */
void stats_read(const struct stats *s, struct stats_values *ret);
/* Bytes that copying files whole would have copied and were not, over the life of the counters; 0
 * where blocks of files that were changed before outweigh it. */
uint64_t stats_not_copied(const struct stats_values *v);
const struct stats_name *stats_name(enum stats_counter which);
/* "LOOKUP"; NULL for numbers without a name. */
const char *stats_op_name(uint32_t opcode);

/* The bucket of a time, and the longest time of a bucket in microseconds (of the last: 0, it has
 * none). */
unsigned stats_bucket(uint64_t ns);
uint64_t stats_bound_us(unsigned bucket);
/* How many were answered. */
uint64_t stats_answered(const struct stats_op *op);
/* The time in microseconds within which so many of a hundred were answered, estimated inside its
 * bucket; 0 of none. */
uint64_t stats_percentile_us(const struct stats_op *op, unsigned percent);

/* Call line for each counter of the process: all of the above, then the kinds of request that came
 * at all. */
void stats_each(void (*line)(void *arg, const char *name, uint64_t value), void *arg);
