/* SPDX-License-Identifier: Apache-2.0 */
/* The mounts of a mount namespace: this process's or another's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* For each of n directories, open at fds: does a mount of the namespace of process pid (0: this
 * one) show it unchanged, including owners, and with no other mount inside? Two such directories
 * with the same device and inode number have the same content. In doubt false. 0 or -errno (all
 * false). */
int mountinfo_plain(pid_t pid, const int *fds, size_t n, bool *ret);

/* A mount of the mount namespace of this process. */
struct mountinfo_mount {
	uint64_t id;
	unsigned dev_major, dev_minor;
	/* root: in its file system; point: where it is mounted; "" for "/"; owned; NULL: not
	 * found */
	char *root, *point;
};
/* Fill in n mounts whose id is set. 0 or -errno; the caller owns the results in any case. */
int mountinfo_find(struct mountinfo_mount *mounts, size_t n);

/* The mount namespace of a process, or 0. */
ino_t mountinfo_namespace(pid_t pid);
/* Is some process in that mount namespace, and is the file system with this device mounted nowhere
 * in it? In doubt false. */
bool mountinfo_lacks(ino_t mount_ns, unsigned dev_major, unsigned dev_minor);
/* Call seen with the root of each mount of that file system, in the file system's own terms ("/",
 * "/a/b"). With mount_ns: in that namespace, by *pid, one of its processes, or 0: finds and stores
 * one. With mount_ns 0: in all namespaces that any process shows; then pid is NULL. -ESRCH: no
 * process shows it. 0; -errno. */
int mountinfo_roots(ino_t mount_ns, pid_t *pid, unsigned dev_major, unsigned dev_minor,
		    void (*seen)(const char *root, void *arg), void *arg);
/* The root, as above, of the mount with this id (fdinfo's mnt_id) of that file system, malloc'd.
 * Looks first in the mount namespace of a process (a thread), then in every namespace that a
 * process shows. -ENOENT: it is shown nowhere. */
int mountinfo_root_of(pid_t pid, uint64_t mount, unsigned dev_major, unsigned dev_minor,
		      char **ret);
