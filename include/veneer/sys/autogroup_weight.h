/* SPDX-License-Identifier: Apache-2.0 */
/* Sets the processor share of one server beside the programs that it serves. Unless control groups
 * decide otherwise, the scheduler gives each session the same share (sched(7), the autogroup
 * feature). One process per mount would get as many shares as there are mounts; one server for all
 * mounts gets one. */
#pragma once

#include <stddef.h>

/* The nice value of a session with the weight of n sessions, as near as possible: a step is a
 * quarter, and the lowest value has the weight of 86 (sched(7)). Pure. */
int autogroup_weight_nice(size_t n);

/* Set the nice value of the caller's session. Does nothing if the session belongs to another
 * process (a shell), if sessions are not scheduled so, and without permission: without CAP_SYS_NICE
 * the weight can only be lowered. Any thread. */
void autogroup_weight_apply(int nice);
