/* SPDX-License-Identifier: Apache-2.0 */
/* Have the program that this is take over the mounts of the server that is there. */
#pragma once

#include "veneer/server/rundir.h"

/* What the process that takes over is started with: the way to the old server, and that to whoever
 * waits. */
#define UPGRADE_FROM_FD 3
#define UPGRADE_WORD_FD 4

/* Start a server in the background, and wait until it goes on with all mounts; say so on standard
 * output, or what went wrong on standard error. 0 or -errno. */
int upgrade_run(const struct rundir *at, unsigned idle_s);
