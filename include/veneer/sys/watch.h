/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of directories and files that were read, and whether they still are what they were: one
 * inotify instance for the process, never waited on. A change is queued by the kernel inside the
 * system call that makes it, so that after watch_drain a set is known to be stale if anything in it
 * changed before. Whatever cannot be watched makes the set stale at once. What inotify does not
 * see: writes through a name in another directory of a file that had one link when it was looked
 * at, and stores into a mapping that is still there. All functions take NULL for a set that nobody
 * wants watched. Locks of its own, taken under any other. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct watch;

/* An empty set, current. 0 or -errno (no instance of inotify is to be had). */
int watch_new(struct watch **ret);
void watch_free(struct watch *w);
/* Before it is read: the directory open at fd; an entry of the directory open at dirfd, which is
 * not followed. Others wait meanwhile: the kernel should know the entry's inode already (look at
 * it, watch it, look again). */
void watch_dir(struct watch *w, int fd);
void watch_subdir(struct watch *w, int dirfd, const char *name);
void watch_file(struct watch *w, int dirfd, const char *name);
/* Stale for another reason. */
void watch_spoil(struct watch *w);
/* As far as events were read: watch_drain first. NULL is never current. */
bool watch_is_current(const struct watch *w);
/* Read what happened, and let go of what stale sets watch. */
void watch_drain(void);
/* Watches held in the kernel. */
size_t watch_count(void);
/* Does the kernel see every change in file systems of this type, wherever it is made? statfs's
 * f_type. */
bool watch_sees_type(long f_type);
