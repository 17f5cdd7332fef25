/* SPDX-License-Identifier: Apache-2.0 */
/* Sets the share of the processors that one server gets beside the programs it works for. Where
 * control groups do not say otherwise, the scheduler gives each session the same (sched(7), the
 * autogroup feature): a process for each mount has as many shares as there are mounts, one server
 * for all of them has one. */
#pragma once

#include <stddef.h>

/* The nice value of a session that weighs as much as n of them, as near as it comes: a step is a
 * quarter, and the lowest value that of 86 (sched(7)). Pure. */
int autogroup_weight_nice(size_t n);

/* From now on the caller's session has that value. Does nothing where it is another's (a shell's),
 * where sessions are not scheduled so, and where the caller may not: without CAP_SYS_NICE one can
 * only be made lighter. Any thread. */
void autogroup_weight_apply(int nice);
