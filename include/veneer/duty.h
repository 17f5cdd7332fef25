/* SPDX-License-Identifier: Apache-2.0 */
/* What the threads of a process are at, noted where it outlives them: when the process crashes, whoever comes after it
 * sees what it crashed over. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* One thing that threads can be at, in shared memory; zeroes are a good one. */
struct duty {
	_Atomic uint32_t nthreads;	/* that are at it */
	_Atomic bool is_blamed;		/* a thread that was at it crashed */
};

/* What is known of a crash, in shared memory. */
enum duty_crash {
	DUTY_NOTHING_KNOWN,	/* the crash was not seen: of a stack that is full, or by SIGKILL, or there was none */
	DUTY_BLAMED,		/* one duty is */
	DUTY_NOBODY,		/* the thread was at nothing, or the signal came from outside */
};

/* Take the signals of crashes from now on, also in processes that are cloned later; once, before file_guard_init. They end the
 * process as before. */
void duty_watch(void);
/* Where this process notes how it crashes; NULL: nowhere. */
void duty_note_in(_Atomic uint32_t *crash);
/* This thread is at it (NULL: at nothing that matters) until duty_end with what this gave, which it was at before. */
struct duty *duty_begin(struct duty *d);
void duty_end(struct duty *before);
