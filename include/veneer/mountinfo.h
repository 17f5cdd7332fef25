/* SPDX-License-Identifier: Apache-2.0 */
/* What is mounted where, in the mount namespace of this process or of another. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* For each of n directories, open at fds: is it reached by a mount of the mount namespace of process pid (0: this one)
 * that shows files as they are, owners too, and with no other mount inside the directory? Two such directories with
 * the same device and inode number have the same content. Where that cannot be told it is false. 0 or -errno (all
 * false). */
int mountinfo_plain(pid_t pid, const int *fds, size_t n, bool *ret);

/* The mount namespace that a process is in, or 0. */
ino_t mountinfo_namespace(pid_t pid);
/* Some process is in that mount namespace, and the file system with this device is mounted nowhere in it. In doubt
 * no. */
bool mountinfo_lacks(ino_t mount_ns, unsigned dev_major, unsigned dev_minor);
