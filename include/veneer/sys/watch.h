/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of directories and files that were read, and whether they are unchanged since: one inotify
 * instance for the process, never waited on. The kernel queues an event inside the system call that
 * makes the change. So after watch_drain a set is known to be stale if any of its objects changed
 * before. An object that cannot be watched makes the set stale at once. inotify misses two changes.
 * One is a write, by a name in another directory, to a file that had one link when it was read. The
 * other is a store to a mapping that still exists. All functions take NULL for an unwatched set.
 * Internal locks, taken under any other. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct watch;

/* An empty set, current. 0 or -errno (no inotify instance). */
int watch_new(struct watch **ret);
void watch_free(struct watch *w);
/* Call before reading: the directory open at fd; an entry of the directory open at dirfd, not
 * followed. Other threads wait meanwhile, so the kernel should know the entry's inode already (stat
 * it, watch it, stat it again). */
void watch_dir(struct watch *w, int fd);
void watch_subdir(struct watch *w, int dirfd, const char *name);
void watch_file(struct watch *w, int dirfd, const char *name);
/* Make the set stale for another reason. */
void watch_spoil(struct watch *w);
/* Valid for the events read so far: call watch_drain first. NULL is never current. */
bool watch_is_current(const struct watch *w);
/* Read the events, and drop the watches of stale sets. */
void watch_drain(void);
/* Watches held in the kernel. */
size_t watch_count(void);
/* Does the kernel see every change in file systems of this type (statfs's f_type), made on any
 * machine? */
bool watch_sees_type(long f_type);
