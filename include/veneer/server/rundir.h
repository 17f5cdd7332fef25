/* SPDX-License-Identifier: Apache-2.0 */
/* The directory in which servers are found: the user's own, and in it for each pair of user and
 * process namespace a socket and a lock. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define RUNDIR_NAME_SIZE 64
#define RUNDIR_LOCK_MS	 10000

struct rundir {
	int fd; /* the directory, O_PATH; -1 */
	char name[RUNDIR_NAME_SIZE]; /* of the socket in it */
	char *path; /* of both, for messages and for a server that is started; malloc'd */
};

/* The directory that VENEER_RUNTIME_DIR names, or $XDG_RUNTIME_DIR/veneer, or /run/veneer (root),
 * or /tmp/veneer-UID; made if it is not there. -EPERM where another user could write in it. 0, or
 * -errno and a sentence. The caller releases *ret in every case. */
int rundir_open(struct rundir *ret, char *err, size_t err_size);
/* The directory and the name in path, which the caller was given; nothing is made. */
int rundir_open_path(struct rundir *ret, const char *path, char *err, size_t err_size);
void rundir_release(struct rundir *d);

/* The directory holds the socket of another pair of namespaces, in use or left behind. An error
 * counts as no. */
bool rundir_has_other(const struct rundir *d);

/* A process that makes or removes the socket holds this lock, which is released by closing *ret_fd.
 * -EAGAIN: another one has held it for wait_ms (0: has it). */
int rundir_lock(const struct rundir *d, int wait_ms, int *ret_fd);
/* The same, for RUNDIR_LOCK_MS, with a sentence that names the lock and its holder. -EBUSY: held
 * for so long. */
int rundir_lock_or_say(const struct rundir *d, int *ret_fd, char *err, size_t err_size);
/* Under the lock: listen at the socket, in place of one that nobody listens at. -EADDRINUSE:
 * another process does, or what is there is not a socket. */
int rundir_listen(const struct rundir *d, int *ret_fd);
/* Under the lock: nobody finds the socket any more. */
void rundir_remove(const struct rundir *d);
