// SPDX-License-Identifier: Apache-2.0
/* Every counter is added to in one place, that of the mount the thread works for; the totals are
 * added up by a reader. So threads of different mounts never write the same cache line. Invariant:
 * total = process + every struct in the list; stats_free moves its counts under the lock that
 * readers of totals hold, so none is ever missing or counted twice. */
#include "veneer/base/stats.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/list.h"
#include "veneer/base/lock.h"
#include "veneer/base/minmax.h"

#include <linux/fuse.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* The first opcode is 1: 0 counts the opcodes without a name here. */
static const char *const opcode_names[STATS_OPCODES] = {
	[0] = "OTHER",
	[FUSE_LOOKUP] = "LOOKUP",
	[FUSE_FORGET] = "FORGET",
	[FUSE_GETATTR] = "GETATTR",
	[FUSE_SETATTR] = "SETATTR",
	[FUSE_READLINK] = "READLINK",
	[FUSE_SYMLINK] = "SYMLINK",
	[FUSE_MKNOD] = "MKNOD",
	[FUSE_MKDIR] = "MKDIR",
	[FUSE_UNLINK] = "UNLINK",
	[FUSE_RMDIR] = "RMDIR",
	[FUSE_RENAME] = "RENAME",
	[FUSE_LINK] = "LINK",
	[FUSE_OPEN] = "OPEN",
	[FUSE_READ] = "READ",
	[FUSE_WRITE] = "WRITE",
	[FUSE_STATFS] = "STATFS",
	[FUSE_RELEASE] = "RELEASE",
	[FUSE_FSYNC] = "FSYNC",
	[FUSE_SETXATTR] = "SETXATTR",
	[FUSE_GETXATTR] = "GETXATTR",
	[FUSE_LISTXATTR] = "LISTXATTR",
	[FUSE_REMOVEXATTR] = "REMOVEXATTR",
	[FUSE_FLUSH] = "FLUSH",
	[FUSE_INIT] = "INIT",
	[FUSE_OPENDIR] = "OPENDIR",
	[FUSE_READDIR] = "READDIR",
	[FUSE_RELEASEDIR] = "RELEASEDIR",
	[FUSE_FSYNCDIR] = "FSYNCDIR",
	[FUSE_ACCESS] = "ACCESS",
	[FUSE_CREATE] = "CREATE",
	[FUSE_INTERRUPT] = "INTERRUPT",
	[FUSE_DESTROY] = "DESTROY",
	[FUSE_IOCTL] = "IOCTL",
	[FUSE_BATCH_FORGET] = "BATCH_FORGET",
	[FUSE_FALLOCATE] = "FALLOCATE",
	[FUSE_READDIRPLUS] = "READDIRPLUS",
	[FUSE_RENAME2] = "RENAME2",
	[FUSE_LSEEK] = "LSEEK",
	[FUSE_COPY_FILE_RANGE] = "COPY_FILE_RANGE",
	[FUSE_SYNCFS] = "SYNCFS",
	[51] = "TMPFILE", /* not in the headers of every distribution we build on */
};

#define COUNTER_NAME(counter, ...) [counter] = { __VA_ARGS__ },
static const struct stats_name counter_names[STATS_COUNTERS] = { STATS_COUNTER_LIST(COUNTER_NAME) };

#define MEMORY_NAME(memory, key) [memory] = key,
static const char *const memory_names[STATS_MEMORIES] = { STATS_MEMORY_LIST(MEMORY_NAME) };

struct op_counts {
	_Atomic uint64_t requests, errors, sum_ns, max_ns;
	_Atomic uint64_t buckets[STATS_BUCKETS];
};

struct stats {
	struct list_link all;
	_Atomic uint64_t counters[STATS_COUNTERS];
	struct op_counts ops[STATS_OPCODES];
};

static struct {
	mutex_t lock;
	GUARDED_BY(lock) struct list_link all;
} registry = { .lock = PTHREAD_MUTEX_INITIALIZER, .all = { &registry.all, &registry.all } };

static struct stats process;
static _Atomic int64_t memory[STATS_MEMORIES];

/* The current work of this thread. */
static _Thread_local struct {
	struct stats *stats; /* NULL: the process */
	struct stats *before; /* the request */
	uint64_t start_ns;
	uint32_t opcode;
} now;

static void bump(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static uint64_t look(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static struct stats *current(void)
{
	return now.stats ? now.stats : &process;
}

/* ---- reading ---- */

static void add_up(const struct stats *s, struct stats_values *v)
{
	for (size_t i = 0; i < STATS_COUNTERS; i++)
		v->counters[i] += look(&s->counters[i]);
	for (size_t i = 0; i < STATS_OPCODES; i++) {
		const struct op_counts *from = &s->ops[i];
		struct stats_op *to = &v->ops[i];
		uint64_t max_ns = look(&from->max_ns);

		to->requests += look(&from->requests);
		to->errors += look(&from->errors);
		to->sum_ns += look(&from->sum_ns);
		to->max_ns = MAX(max_ns, to->max_ns);
		for (size_t k = 0; k < STATS_BUCKETS; k++)
			to->buckets[k] += look(&from->buckets[k]);
	}
}

static const struct stats *stats_of_link(const struct list_link *l)
{
	return container_of(l, const struct stats, all);
}

void stats_read(const struct stats *s, struct stats_values *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (s) {
		add_up(s, ret);
		return;
	}
	LOCK_SCOPE(&registry.lock);
	add_up(&process, ret);
	for (const struct list_link *l = registry.all.next; l != &registry.all; l = l->next)
		add_up(stats_of_link(l), ret);
}

uint64_t stats_sum_requests(const struct stats_values *v)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < STATS_OPCODES; i++)
		sum += v->ops[i].requests;
	return sum;
}

uint64_t stats_requests(void)
{
	struct stats_values v;

	stats_read(NULL, &v);
	return stats_sum_requests(&v);
}

uint64_t stats_not_copied(const struct stats_values *v)
{
	uint64_t copied = v->counters[STATS_COPYUP_BYTES] + v->counters[STATS_FILL_BYTES];

	return v->counters[STATS_WHOLE_BYTES] > copied ? v->counters[STATS_WHOLE_BYTES] - copied
						       : 0;
}

const struct stats_name *stats_name(enum stats_counter which)
{
	return &counter_names[which];
}

const char *stats_op_name(uint32_t opcode)
{
	return opcode < STATS_OPCODES ? opcode_names[opcode] : NULL;
}

void stats_each(void (*line)(void *arg, const char *name, uint64_t value), void *arg)
{
	struct stats_values v;
	char name[32];

	stats_read(NULL, &v);
	for (size_t i = 0; i < STATS_COUNTERS; i++)
		line(arg, counter_names[i].line, v.counters[i]);
	line(arg, "REQUESTS", stats_sum_requests(&v));
	for (size_t i = 0; i < STATS_OPCODES; i++) {
		if (!v.ops[i].requests)
			continue;
		snprintf(name, sizeof(name), "REQUESTS %s", opcode_names[i]);
		line(arg, name, v.ops[i].requests);
	}
}

/* ---- whose ---- */

int stats_new(struct stats **ret)
{
	struct stats *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	LOCK_SCOPE(&registry.lock);
	list_add_tail(&registry.all, &s->all);
	*ret = s;
	return 0;
}

static void raise_to(_Atomic uint64_t *max, uint64_t n)
{
	uint64_t seen = look(max);

	while (n > seen && !atomic_compare_exchange_weak_explicit(
				   max, &seen, n, memory_order_relaxed, memory_order_relaxed))
		;
}

/* Under the registry's lock. */
static void keep_counts(const struct stats *s)
{
	for (size_t i = 0; i < STATS_COUNTERS; i++)
		bump(&process.counters[i], look(&s->counters[i]));
	for (size_t i = 0; i < STATS_OPCODES; i++) {
		struct op_counts *to = &process.ops[i];

		bump(&to->requests, look(&s->ops[i].requests));
		bump(&to->errors, look(&s->ops[i].errors));
		bump(&to->sum_ns, look(&s->ops[i].sum_ns));
		raise_to(&to->max_ns, look(&s->ops[i].max_ns));
		for (size_t k = 0; k < STATS_BUCKETS; k++)
			bump(&to->buckets[k], look(&s->ops[i].buckets[k]));
	}
}

void stats_free(struct stats *s)
{
	if (!s)
		return;
	if (now.stats == s)
		now.stats = NULL;
	mutex_lock(&registry.lock);
	keep_counts(s);
	list_del(&s->all);
	mutex_unlock(&registry.lock);
	free(s);
}

struct stats *stats_enter(struct stats *s)
{
	struct stats *before = now.stats;

	now.stats = s;
	return before;
}

/* ---- counting ---- */

void stats_add(enum stats_counter which, uint64_t n)
{
	bump(&current()->counters[which], n);
}

void stats_request_begin(struct stats *s)
{
	now.before = stats_enter(s);
	now.opcode = 0;
	now.start_ns = (uint64_t)clock_ns();
}

void stats_count_request(uint32_t opcode)
{
	now.opcode = stats_op_name(opcode) ? opcode : 0;
	bump(&current()->ops[now.opcode].requests, 1);
}

void stats_request_failed(void)
{
	bump(&current()->ops[now.opcode].errors, 1);
}

void stats_request_end(void)
{
	struct op_counts *op = &current()->ops[now.opcode];
	uint64_t ns = (uint64_t)clock_ns() - now.start_ns;

	bump(&op->buckets[stats_bucket(ns)], 1);
	bump(&op->sum_ns, ns);
	raise_to(&op->max_ns, ns);
	stats_enter(now.before);
}

/* ---- times ---- */

unsigned stats_bucket(uint64_t ns)
{
	uint64_t us = ns / 1000 + (ns % 1000 != 0);
	unsigned k = us <= 1 ? 0 : 64 - (unsigned)__builtin_clzll(us - 1);

	return k < STATS_BUCKETS - 1 ? k : STATS_BUCKETS - 1;
}

uint64_t stats_bound_us(unsigned bucket)
{
	return bucket < STATS_BUCKETS - 1 ? 1ull << bucket : 0;
}

uint64_t stats_answered(const struct stats_op *op)
{
	uint64_t sum = 0;

	for (size_t k = 0; k < STATS_BUCKETS; k++)
		sum += op->buckets[k];
	return sum;
}

uint64_t stats_percentile_us(const struct stats_op *op, unsigned percent)
{
	uint64_t all = stats_answered(op), max_us = op->max_ns / 1000 + (op->max_ns % 1000 != 0),
		 below = 0, us;
	/* The rank of the one that is meant, from 1. In parts, so that no count overflows. */
	uint64_t rank = all / 100 * percent + (all % 100 * percent + 99) / 100;

	if (!rank)
		return 0;
	for (unsigned k = 0; k < STATS_BUCKETS - 1; k++) {
		if (below + op->buckets[k] >= rank) {
			uint64_t low = k ? stats_bound_us(k - 1) : 0,
				 width = stats_bound_us(k) - low;

			us = low + (uint64_t)((double)width * (double)(rank - below) /
						      (double)op->buckets[k] +
					      0.5);
			us = us ? us : 1;
			return MIN(us, max_us);
		}
		below += op->buckets[k];
	}
	return max_us;
}

/* ---- memory ---- */

void stats_memory_add(enum stats_memory which, int64_t bytes)
{
	atomic_fetch_add_explicit(&memory[which], bytes, memory_order_relaxed);
}

void stats_memory_took(enum stats_memory which, void *p)
{
	if (p)
		stats_memory_add(which, (int64_t)malloc_usable_size(p));
}

void stats_memory_gives(enum stats_memory which, void *p)
{
	if (p)
		stats_memory_add(which, -(int64_t)malloc_usable_size(p));
}

uint64_t stats_memory(enum stats_memory which)
{
	int64_t n = atomic_load_explicit(&memory[which], memory_order_relaxed);

	return n > 0 ? (uint64_t)n : 0;
}

const char *stats_memory_name(enum stats_memory which)
{
	return memory_names[which];
}
