// SPDX-License-Identifier: Apache-2.0
#include "veneer/stats.h"

#include <linux/fuse.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>

#define OPCODES 64

/* The first opcode is 1: 0 takes those that have no name here. */
static const char *const opcode_names[OPCODES] = {
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

static const char *const counter_names[STATS_COUNTERS] = {
	[STATS_COPYUPS] = "COPY-UPS",
	[STATS_COPYUP_BYTES] = "COPY-UP BYTES",
	[STATS_MAP_RECORDS] = "MAP RECORDS",
	[STATS_FD_HITS] = "DESCRIPTOR HITS",
	[STATS_FD_MISSES] = "DESCRIPTOR MISSES",
	[STATS_WINDOW_HITS] = "WINDOW HITS",
	[STATS_WINDOW_MISSES] = "WINDOW MISSES",
	[STATS_WINDOW_EVICTIONS] = "WINDOW EVICTIONS",
};

static _Atomic uint64_t counters[STATS_COUNTERS];
static _Atomic uint64_t requests[OPCODES];

void stats_add(enum stats_counter which, uint64_t n)
{
	atomic_fetch_add_explicit(&counters[which], n, memory_order_relaxed);
}

uint64_t stats_get(enum stats_counter which)
{
	return atomic_load_explicit(&counters[which], memory_order_relaxed);
}

void stats_count_request(uint32_t opcode)
{
	if (opcode >= OPCODES || !opcode_names[opcode])
		opcode = 0;
	atomic_fetch_add_explicit(&requests[opcode], 1, memory_order_relaxed);
}

uint64_t stats_requests(void)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < OPCODES; i++)
		sum += atomic_load_explicit(&requests[i], memory_order_relaxed);
	return sum;
}

void stats_each(void (*line)(void *arg, const char *name, uint64_t value), void *arg)
{
	char name[32];

	for (size_t i = 0; i < STATS_COUNTERS; i++)
		line(arg, counter_names[i], stats_get(i));
	line(arg, "REQUESTS", stats_requests());
	for (size_t i = 0; i < OPCODES; i++) {
		uint64_t n = atomic_load_explicit(&requests[i], memory_order_relaxed);

		if (!n)
			continue;
		snprintf(name, sizeof(name), "REQUESTS %s", opcode_names[i]);
		line(arg, name, n);
	}
}
