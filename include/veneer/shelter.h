/* SPDX-License-Identifier: Apache-2.0 */
/* What makes a process fit to serve for longer than whoever started it lives. */
#pragma once

#include <stdbool.h>

/* Descriptors 0 to 2 must exist before anything else is opened. */
void shelter_hold_standard_fds(void);
/* Limits, signals that would kill, umask; before the first thread. */
void shelter_prepare(void);
/* As far as privileges allow nothing of what limits the starter limits, or kills, the server: it is for others too. Before
 * it is executed. */
void shelter_lift_limits(void);
/* A session of its own, / as its directory and, where privileges allow, a mount namespace that holds /proc, /sys, /dev
 * and the place of the system log and nothing else: no file system of the starter stays busy, and none of its
 * namespaces alive. Before the first thread. Paths of the starter lead nowhere afterwards. False: it stayed where
 * it was. */
bool shelter_enter(void);
