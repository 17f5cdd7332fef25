/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime directory, in which clients find servers. Each user has one; each pair of user and
 * process namespace has a socket and a lock in it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define RUNDIR_NAME_SIZE 64
#define RUNDIR_LOCK_MS	 10000

struct rundir {
	int fd; /* the directory, O_PATH; -1 */
	char name[RUNDIR_NAME_SIZE]; /* of the socket in it */
	char *path; /* of the socket, for messages and for the arguments of a new server; malloc'd
		     */
};

/* Open the directory that VENEER_RUNTIME_DIR names, or $XDG_RUNTIME_DIR/veneer, or /run/veneer
 * (root), or /tmp/veneer-UID; create it if needed. -EPERM where another user could write in it. 0,
 * or -errno and a sentence. The caller releases *ret in every case. */
int rundir_open(struct rundir *ret, char *err, size_t err_size);
/* Split path into the directory and the name of the socket; creates nothing. */
int rundir_open_path(struct rundir *ret, const char *path, char *err, size_t err_size);
void rundir_release(struct rundir *d);

/* Does the directory hold the socket of another pair of namespaces, in use or left behind? An error
 * counts as no. */
bool rundir_has_other(const struct rundir *d);

/* Lock the directory before making or removing the socket; closing *ret_fd releases the lock.
 * -EAGAIN: another process has held it for wait_ms (0: holds it). */
int rundir_lock(const struct rundir *d, int wait_ms, int *ret_fd);
/* rundir_lock with a limit of RUNDIR_LOCK_MS, and a sentence that names the lock and its holder.
 * -EBUSY: held for that long. */
int rundir_lock_or_say(const struct rundir *d, int *ret_fd, char *err, size_t err_size);
/* Under the lock: listen at the socket, replacing one without a listener. -EADDRINUSE: another
 * process listens, or the name is not a socket. */
int rundir_listen(const struct rundir *d, int *ret_fd);
/* Under the lock: remove the socket, so that no client finds it any more. */
void rundir_remove(const struct rundir *d);
