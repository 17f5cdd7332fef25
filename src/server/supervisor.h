/* SPDX-License-Identifier: Apache-2.0 */
/* The process that outlives the server. It starts a server, and after a crash another one, which
 * continues from the supervisor state (doc/DESIGN.md). Both share one table of descriptors, so a
 * crash closes none: neither the kernel's requests nor a file without a name. The supervisor itself
 * has one thread, opens nothing, and reads nothing that a container could change. */
#pragma once

#include "veneer/recover/supervisor_state.h"

/* Result of serve, or exit status of the first thread's process, if threads or memory could not be
 * had. That is no fault of the server, so the supervisor starts another one, for as long as it
 * takes. */
#define SUPERVISE_AGAIN 75

/* Run begin (NULL: nothing) and then serve(arg) in a process of its own, again after each crash;
 * begin runs in the first thread, which does nothing else. Returns the server's exit code when it
 * leaves (supervisor_state_leave). SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 are forwarded to
 * it. They are blocked when serve begins, as is SIGCHLD. If the server dies after naming another
 * supervisor (supervisor_state_hand_over), hand_over is called (NULL: never). If that returns 0,
 * the other one goes on, and this returns 0. The caller has one thread. The signals stay blocked,
 * as the caller exits. -errno: no process can be made, nothing ran, and the signals are as
 * before. */
int supervisor_run(struct supervisor_state *l, void (*begin)(void), int (*serve)(void *arg),
		   int (*hand_over)(int fd, void *arg), void *arg);
