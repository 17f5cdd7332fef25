/* SPDX-License-Identifier: Apache-2.0 */
/* Have the program that this is take over the mounts of the server that is there. */
#pragma once

#include "veneer/server/rundir.h"

/* Descriptors that the new process starts with: to the old server, and to the process that waits
 * for the word. */
#define UPGRADE_FROM_FD 3
#define UPGRADE_WORD_FD 4

/* Start a server in the background, and wait until it goes on with all mounts; say so on standard
 * output, or what went wrong on standard error. 0 or -errno. */
int upgrade_run(const struct rundir *at, unsigned idle_s);
