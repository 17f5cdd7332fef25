/* SPDX-License-Identifier: Apache-2.0 */
/* The process that outlives the server: it starts a server, and when that dies another, which
 * continues by the supervisor state (doc/DESIGN.md). Both share one table of descriptors, so that
 * none is closed by a death: not the kernel's requests, not a file that has no name any more. The
 * supervisor itself has one thread, opens nothing, and looks at nothing that a container could
 * change. */
#pragma once

#include "veneer/recover/supervisor_state.h"

/* Result of serve, or exit status of the first thread's process, where threads or memory were not
 * to be had: nothing is wrong with that server, and another one is tried until it gets them,
 * however long that takes. */
#define SUPERVISE_AGAIN 75

/* Run serve(arg) in a process of its own, as often as it dies, after begin (NULL: nothing) in that
 * process's first thread, which does nothing else; its exit code when it leaves
 * (supervisor_state_leave). SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 are handed on to it, and
 * blocked when serve begins, as is SIGCHLD. Where it dies having named a supervisor that is to go
 * on (supervisor_state_hand_over), hand_over is called (NULL: never); 0 from it: that one goes on,
 * and 0 is returned. The caller has one thread. These signals stay blocked, as the caller exits.
 * -errno where no process can be made: nothing ran, and the signals are as before. */
int supervisor_run(struct supervisor_state *l, void (*begin)(void), int (*serve)(void *arg),
		   int (*hand_over)(int fd, void *arg), void *arg);
