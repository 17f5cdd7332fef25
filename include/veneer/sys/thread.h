/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that nobody joins. */
#pragma once

#include <stddef.h>

/* Start a detached thread. stack: bytes; 0: the default of this process. The thread owns arg once
 * it runs; on failure the caller does. 0 or -errno. */
int thread_start(void *(*run)(void *arg), void *arg, size_t stack);
/* Likewise, with all signals blocked. */
int thread_start_without_signals(void *(*run)(void *arg), void *arg, size_t stack);
