/* SPDX-License-Identifier: Apache-2.0 */
/* The open descriptors of a process and their mounts, read from its /proc. Opens none of its
 * files. */
#pragma once

#include <sys/types.h>

/* Call seen with the root (as in mountinfo.h) of each mount by which a process or thread has a file
 * of that file system and inode number open; O_PATH does not count. One root may come more than
 * once. For a thread that waits in flock or fcntl, only the file of that call counts, if it has the
 * number. 0, also if there is none. -ENOENT: a file is open by a mount that is shown nowhere, or
 * invisible to this process. -EACCES, -errno: the process may not be read, or has ended. */
int proc_fds_roots(pid_t tid, unsigned dev_major, unsigned dev_minor, ino_t ino,
		   void (*seen)(const char *root, void *arg), void *arg);
