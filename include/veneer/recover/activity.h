/* SPDX-License-Identifier: Apache-2.0 */
/* The work of each thread of a process, noted in memory that outlives the process: after a crash
 * the next process sees the cause of it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* One thing that threads can work for, in shared memory; all zero is valid. */
struct activity {
	_Atomic uint32_t nthreads; /* that are at it */
	_Atomic uint32_t is_suspect; /* not 0: a thread that was at it crashed */
};

/* Knowledge of a crash, in shared memory. */
enum activity_crash {
	ACTIVITY_NOTHING_KNOWN, /* the crash was not seen: of a stack that is full, or by SIGKILL,
				   or there was none */
	ACTIVITY_SUSPECT, /* one activity is */
	ACTIVITY_NOBODY, /* the thread was at nothing, or the signal came from outside */
};

#define ACTIVITY_WAITERS \
	1024 /* as many containers of one file system may end at once (sb_registry.c) */

/* Zeroes are a good one. */
struct crash_board {
	_Atomic uint32_t crash; /* enum activity_crash */
	_Atomic int32_t crashed; /* the id of the thread; 0: not known */
	_Atomic int32_t supervisor; /* a process that is sent SIGCHLD when a thread begins to wait
				       and is_watched is not set; 0: none */
	_Atomic uint32_t is_watched; /* 0 or 1: the supervisor looks often for waiting threads */
	_Atomic uint32_t nwaits; /* how often a thread began to wait; it wraps */
	_Atomic int32_t waiting[ACTIVITY_WAITERS]; /* ids of threads; 0: nobody */
};

/* Take the signals of crashes from now on, also in processes that are cloned later; once, before
 * file_guard_init. They end the process as before. */
void activity_watch(void);
/* Set the board on which this process notes how it crashes, and which threads wait; NULL: none. */
void activity_note_in(struct crash_board *b);
/* This thread is at it (NULL: at nothing that matters) until activity_end with the result, its
 * former work. */
struct activity *activity_begin(struct activity *d);
void activity_end(struct activity *before);

/* Until activity_wait_end with the result, the thread may wait in the kernel, so that nothing ends
 * it, for answers that only this process or its successor gives. The successor must not wait for
 * its death. */
int activity_wait_begin(void);
void activity_wait_end(int waiter);
/* The supervisor calls it before each look at its server. True: it must look again soon. The first
 * wait of a thread sends SIGCHLD; the answer stays true until no thread has begun to wait between
 * two calls. *nwaits is the count at the last call. So threads that wait again and again send one
 * signal, and an idle server is looked at seldom. */
bool activity_keep_watch(struct crash_board *b, uint32_t *nwaits);
/* The process, a child, takes no signals any more: its first thread is dead, or its core is about
 * to be written. */
bool activity_is_dead(pid_t pid);
/* The process is dead, or has crashed and is waiting to write its core. Exempt are threads that
 * wait so, or in calls that change nothing (for a layer on a file system that does not answer). A
 * dying process may look so for a moment. */
bool activity_is_stuck(const struct crash_board *b, pid_t pid);
/* Wait until each change of a layer that a thread of this process is making now, in one call of the
 * kernel, has got on. -EBUSY: one has not for so long, as where its file system does not answer,
 * and a death of this process would last as long as it. */
int activity_await_changes(int limit_ms);
