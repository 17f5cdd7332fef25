/* SPDX-License-Identifier: Apache-2.0 */
/* What is mounted where, in mount namespaces that are not our own. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* The mount namespace that a process is in, or 0. */
ino_t mountinfo_namespace(pid_t pid);
/* Some process is in that mount namespace, and the file system with this device is mounted nowhere in it. In doubt
 * no. */
bool mountinfo_lacks(ino_t mount_ns, unsigned dev_major, unsigned dev_minor);
