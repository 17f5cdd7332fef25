/* SPDX-License-Identifier: Apache-2.0 */
/* Counters: bumped by any thread without a lock, read by any thread. Each mount has
 * a struct stats; what happens in no mount's name is counted for the process, whose totals hold
 * what ended mounts counted too.
 *
 * The counting code need not know for which mount: a thread works for one mount at a time
 * (stats_enter), and deep modules just call stats_add. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Add one: here, a row in stats.c's table, a row in man/veneer.1.md. Names, JSON and Prometheus
 * come from the table. */
enum stats_counter {
	STATS_COPYUPS, /* lower entries that got an entry in the upper */
	STATS_COPYUP_BYTES, /* of file data copied for them */
	STATS_MAP_RECORDS, /* appended to the log of the upper's map */
	STATS_FD_HITS, /* a descriptor was wanted and was open */
	STATS_FD_MISSES, /* ... and had to be opened */
	STATS_WHOLE_BYTES, /* what copying the files whole would have copied */
	STATS_COW_WRITES, /* changes that made blocks own */
	STATS_COW_BYTES, /* of those blocks */
	STATS_FILL_BYTES, /* copied from below to complete them */
	STATS_READ_BYTES, /* answered to READ: reads that neither page cache nor passthrough took */
	STATS_WRITE_BYTES, /* taken by WRITE */
	STATS_WINDOW_HITS, /* blocks of lower files that were asked of the block cache and were
			      there */
	STATS_WINDOW_MISSES, /* ... and had to be brought in */
	STATS_WINDOW_EVICTIONS, /* windows unmapped for want of room */
	STATS_OPENS_PASSTHROUGH,
	STATS_OPENS_CACHED,
	STATS_OPENS_DIRECT,
	STATS_PREDICTED_BYTES, /* of extents that are expected to be read in a start */
	STATS_PREFETCH_BYTES, /* read ahead for them: what was not cached */
	STATS_PREFETCH_HITS, /* of those that were; known when the start is over */
	STATS_NODE_SWITCHES, /* a file got another node id, to leave passthrough */
	STATS_PROMOTED_CHUNKS, /* of partial files, completed from below while nobody waited for
				* it */
	STATS_PROMOTED_FILES, /* that became ordinary ones */
	STATS_PROMOTED_BYTES, /* brought in from below for that */
	STATS_PROMOTED_CLONED, /* ... and of them without copying */
	STATS_COPIES_EVICTED, /* extents that the kernel was told to drop from the mount's pages */
	STATS_COPIES_REFAULTS, /* ... and that were read again soon after */
	STATS_COUNTERS
};

/* Memory of the process by what it is for. Images and windows are not counted here:
 * layer_registry.h and report.c know them. */
enum stats_memory {
	STATS_MEM_IMAGES, /* merged trees of lower layers */
	STATS_MEM_INODES, /* inode tables, and mirrors of upper directories */
	STATS_MEM_MAPS, /* block maps */
	STATS_MEM_BUFFERS, /* of requests */
	STATS_MEM_COPIES, /* the account of what was sent to which mount */
	STATS_MEM_WINDOWS, /* mapped by the block cache: pages of the page cache, not ours alone */
	STATS_MEMORIES
};

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

/* A picture of the counters; counters that belong together may differ by what happens meanwhile. */
struct stats_values {
	uint64_t counters[STATS_COUNTERS];
	struct stats_op ops[STATS_OPCODES];
};

/* The name of a counter. Borrowed, constant. */
struct stats_name {
	const char *line; /* in the lines of SIGUSR1 */
	const char *group, *key; /* in JSON: { group: { key: N } } */
	const char *help; /* one sentence without its full stop */
};

struct stats;

/* New statistics of one mount. 0 or -ENOMEM. */
int stats_new(struct stats **ret);
/* No thread counts for it any more. What it counted stays in the totals of the process. NULL does
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

/* Memory was taken or given back. The second pair takes what malloc gave (NULL: nothing). */
void stats_memory_add(enum stats_memory which, int64_t bytes);
void stats_memory_took(enum stats_memory which, void *p);
void stats_memory_gives(enum stats_memory which, void *p);
uint64_t stats_memory(enum stats_memory which);
const char *stats_memory_name(enum stats_memory which);

/* Totals of the process, mounts that ended included. */
uint64_t stats_get(enum stats_counter which);
uint64_t stats_requests(void);
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
