/* SPDX-License-Identifier: Apache-2.0 */
/* The mounts of the mount namespace of this process or of another. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* For each of n directories, open at fds: is it reached by a mount of the mount namespace of
 * process pid (0: this one) that shows files as they are, owners too, and with no other mount
 * inside the directory? Two such directories with the same device and inode number have the same
 * content. Where that cannot be told it is false. 0 or -errno (all false). */
int mountinfo_plain(pid_t pid, const int *fds, size_t n, bool *ret);

/* A mount of the mount namespace of this process. */
struct mountinfo_mount {
	uint64_t id;
	unsigned dev_major, dev_minor;
	char *root, *point; /* in its file system, and where it is mounted; "" for "/"; owned; NULL:
			       not found */
};
/* Fill in the others of n mounts, of which the id is set. 0 or -errno; what was found is the
 * caller's in any case. */
int mountinfo_find(struct mountinfo_mount *mounts, size_t n);

/* The mount namespace that a process is in, or 0. */
ino_t mountinfo_namespace(pid_t pid);
/* Some process is in that mount namespace, and the file system with this device is mounted nowhere
 * in it. In doubt no. */
bool mountinfo_lacks(ino_t mount_ns, unsigned dev_major, unsigned dev_minor);
/* Call seen with the root of each mount of that file system, as the file system names it ("/",
 * "/a/b"), in a mount namespace (of which *pid is a process, or 0: one is looked for, and noted),
 * or, for 0, in all that any process shows; then pid is NULL. -ESRCH: no process shows it. 0;
 * -errno. */
int mountinfo_roots(ino_t mount_ns, pid_t *pid, unsigned dev_major, unsigned dev_minor,
		    void (*seen)(const char *root, void *arg), void *arg);
/* The root, as above, of the mount of that file system with this number (fdinfo's mnt_id),
 * malloc'd; looked for in the mount namespace of a process (a thread) first, and then in all that
 * any process shows. -ENOENT: it is shown nowhere. */
int mountinfo_root_of(pid_t pid, uint64_t mount, unsigned dev_major, unsigned dev_minor,
		      char **ret);
