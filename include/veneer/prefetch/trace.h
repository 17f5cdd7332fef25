/* SPDX-License-Identifier: Apache-2.0 */
/* The first requests of a mount: the extents of files that were read, and the files that were
 * written, each with the time of its first touch. Threads that answer requests note them without a
 * lock and without waiting; memory is bounded from the beginning, and touches that do not fit are
 * not noted. Knows nothing of files: they are pointers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TRACE_EXTENT_SHIFT 15 /* extents of 32 KiB */
#define TRACE_EXTENT_SIZE  (1u << TRACE_EXTENT_SHIFT)
#define TRACE_EXTENTS	   0xffff0u /* of a file; extents behind them are not noted */
#define TRACE_SLOTS	   16384u /* a power of two */
#define TRACE_TOUCHES_MAX  (TRACE_SLOTS / 4 * 3)

enum trace_kind {
	TRACE_READ,
	TRACE_WRITTEN, /* for the first time; its extent is 0 */
	TRACE_OPENED, /* by a program whose reads are not seen; its extent is 0 */
};

struct trace_touch {
	const void *file;
	uint32_t extent;
	uint32_t ms; /* since trace_new */
	enum trace_kind kind;
};

struct trace;

/* Time begins, and ends after window_ms, with or without a call of trace_end: nothing new is noted
 * then. 0 or -ENOMEM. */
int trace_new(unsigned window_ms, struct trace **ret);
/* No thread notes anything any more. */
void trace_free(struct trace *t);
/* From any thread. len 0 is nothing. */
void trace_read(struct trace *t, const void *file, off_t off, size_t len);
void trace_write(struct trace *t, const void *file);
void trace_open(struct trace *t, const void *file);
/* Nothing is noted from now on, but by threads that are at it. */
void trace_end(struct trace *t);
/* After the end: the notes, by file, kind and extent. *ret is malloc'd. Gives the memory back to
 * the system. How many, or -ENOMEM. */
ssize_t trace_take(struct trace *t, struct trace_touch **ret);
/* Order of touches by file, kind and extent, then time; for qsort(3). */
int trace_by_place(const void *a, const void *b);
