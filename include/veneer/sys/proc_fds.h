/* SPDX-License-Identifier: Apache-2.0 */
/* The open descriptors of a process and their mounts, read from its /proc. Touches no file of
 * it. */
#pragma once

#include <sys/types.h>

/* Call seen with the root (as mountinfo.h has it) of each mount by which a file of that file system
 * with this inode number, not a path alone, is open in a process or thread; one root may come more
 * than once. Of a thread that waits in flock or in fcntl it is the file that it called that for, if
 * it has that number. 0, also if there is none; -ENOENT: one is open by a mount that is shown
 * nowhere, or of which we are not told; -EACCES, -errno: it may not be asked, or is gone. */
int proc_fds_roots(pid_t tid, unsigned dev_major, unsigned dev_minor, ino_t ino,
		   void (*seen)(const char *root, void *arg), void *arg);
