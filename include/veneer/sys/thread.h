/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that nobody joins. */
#pragma once

#include <stddef.h>

/* Start a detached thread. stack: bytes; 0: as many as threads of this process get. arg is the
 * thread's once it runs, and stays the caller's on failure. 0 or -errno. */
int thread_start(void *(*run)(void *arg), void *arg, size_t stack);
/* Likewise; the thread blocks all signals. */
int thread_start_without_signals(void *(*run)(void *arg), void *arg, size_t stack);
