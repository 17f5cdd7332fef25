// SPDX-License-Identifier: Apache-2.0
/* Shared by a test and the preloaded library: one page of a file, named by VENEER_FAULT. The test
 * writes what should fail and arms it last; the library counts and tells what it did. control.py
 * has the same order. */
#pragma once

#include <stdint.h>

#define FAULT_MAGIC	0x544c4146u
#define FAULT_TRACE_MAX 24

enum fault_class {
	FAULT_ALLOC,
	FAULT_OPEN,
	FAULT_READ,
	FAULT_WRITE,
	FAULT_STAT,
	FAULT_XATTR_READ,
	FAULT_XATTR_WRITE,
	FAULT_NAME,
	FAULT_SIZE,
	FAULT_ATTR,
	FAULT_SYNC,
	FAULT_MAP,
	FAULT_FD,
	FAULT_LIST,
	FAULT_IOCTL,
	FAULT_RING,
	FAULT_THREAD,
	FAULT_SOCKET,
	FAULT_CLASSES,
};

struct fault_control {
	uint32_t magic;
	uint32_t is_armed; /* else nothing is counted, and nothing fails */
	uint32_t which; /* class that fails */
	uint32_t nth; /* first call that fails, from 1; 0: none */
	uint32_t times; /* how many in a row */
	int32_t error; /* -1: short, where that is possible */
	uint32_t injected;
	uint32_t ntrace;
	uint64_t base; /* of the program in which the last one failed */
	uint64_t trace[FAULT_TRACE_MAX];
	uint32_t counts[FAULT_CLASSES];
};
