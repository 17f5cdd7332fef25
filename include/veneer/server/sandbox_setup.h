/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a process fit to serve for longer than the process that started it. */
#pragma once

#include <stdbool.h>

/* Descriptors 0 to 2 must exist before anything else is opened. */
void sandbox_setup_hold_standard_fds(void);
/* Limits, signals that would kill, umask; before the first thread. */
void sandbox_setup_prepare(void);
/* As far as privileges allow nothing of what limits the starter limits, or kills, the server: it is
 * for others too. Before it is executed. */
void sandbox_setup_lift_limits(void);
/* The environment of a server that is to outlive its starter: nothing of the starter's but what is
 * said to servers. Static, and the strings are borrowed of the environment. */
const char *const *sandbox_setup_environment(void);
/* Neither the end nor the limits of the control group of the starter are to be the server's: a
 * process goes to one of its own where it may (cgroup.h). VENEER_CGROUP names another, or, empty,
 * has it stay; where systemd runs the groups of root are systemd's, and it stays as well. */
void sandbox_setup_leave_groups(void);
/* A session of its own, / as its directory and, where privileges allow, a mount namespace that
 * holds /proc, /sys, /dev and the place of the system log and nothing else: no file system of the
 * starter stays busy, and none of its namespaces alive. Before the first thread. Paths of the
 * starter lead nowhere afterwards. False: it stayed where it was. */
bool sandbox_setup_enter(void);
