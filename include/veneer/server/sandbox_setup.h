/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a process fit to serve for longer than the process that started it. */
#pragma once

#include <stdbool.h>

/* Descriptors 0 to 2 must exist before anything else is opened. */
void sandbox_setup_hold_standard_fds(void);
/* Set limits, ignore signals that would kill, set the umask. Before the first thread. */
void sandbox_setup_prepare(void);
/* Before exec of a server: undo, as far as privileges allow, the starter's resource limits and its
 * preference for the OOM killer. The server works for other processes, too. */
void sandbox_setup_lift_limits(void);
/* The environment for a server that is to outlive its starter: only the variables that a server
 * reads. Static; the strings are borrowed from the environment. */
const char *const *sandbox_setup_environment(void);
/* Move to a control group of our own where that is allowed (cgroup.h), so that neither the end nor
 * the limits of the starter's group reach the server. VENEER_CGROUP names another group, or, empty,
 * keeps the starter's. Root's groups belong to systemd where it runs, so the server stays there,
 * too. */
void sandbox_setup_leave_groups(void);
/* Start a session, change to /, and, where privileges allow, enter a mount namespace that holds
 * only /proc, /sys, /dev and the socket of the system log. No file system of the starter stays
 * busy, and none of its namespaces alive. Before the first thread. The starter's paths do not
 * resolve afterwards. False: the mount namespace is still the starter's. */
bool sandbox_setup_enter(void);
