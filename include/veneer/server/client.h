/* SPDX-License-Identifier: Apache-2.0 */
/* The other end of the server's socket: find a server, or start one, and ask it. */
#pragma once

#include "veneer/jobs/promote_worker.h"
#include "veneer/mount/mount_dirs.h"
#include "veneer/server/rundir.h"

#include <stdint.h>
#include <sys/stat.h>

/* Connect to the server at the place, and greet it. may_start: start a server if there is none. 0
 * and *ret_fd; -ENOENT: there is no server; other -errno: the server cannot be used or started. A
 * sentence on failure. */
int client_connect(const struct rundir *at, bool may_start, int *ret_fd, char *err,
		   size_t err_size);
/* Fetch the server's statistics, malloc'd. fd comes from client_connect. 0, or -errno and a
 * sentence. */
int client_stats(int fd, char **ret_json, char *err, size_t err_size);

/* A mount or its upper, as its server knows it. */
struct client_target {
	unsigned dev_major, dev_minor;
	uint64_t ino;
	uint32_t number; /* of a mount in a shared superblock, whose mounts have one device; else 0
			  */
};

/* Fill in ret for the directory at path. 0 or -errno. */
int client_target_of(const char *path, struct client_target *ret);

/* Take a snapshot of a mount. name: of the snapshot; "": the server chooses it. *ret_name is the
 * name, malloc'd. Results as client_flatten. */
int client_snapshot(int fd, const struct client_target *at, const char *name, char **ret_name,
		    char *err, size_t err_size);

/* Roll a mount back to a snapshot. names: the snapshot, a newline, and a name for the snapshot that
 * the server takes of the present contents; an empty name leaves the choice to the server. Results
 * as client_snapshot. */
int client_rollback(int fd, const struct client_target *at, const char *names, char **ret_name,
		    char *err, size_t err_size);

/* Make the partial files of a mount ordinary files. step gets the progress until the end. 0;
 * -ENOENT: the server has no such mount; other -errno and a sentence. */
int client_flatten(int fd, const struct client_target *at,
		   void (*step)(void *arg, const struct promote_worker_progress *s), void *arg,
		   char *err, size_t err_size);

struct client_squashed {
	size_t n; /* snapshots that became one; 0: not done yet, or nothing to do */
	uint64_t entries, bytes; /* so far */
};

struct client_squash_ask {
	const struct client_target *at;
	const char *names; /* the lower and the upper snapshot with a newline between, or an empty
			      string */
	void (*step)(void *arg, const struct client_squashed *s);
	void *arg;
};

/* Squash snapshots of a mount into one. step gets the progress, and at last the result. Results as
 * client_flatten. */
int client_squash(int fd, const struct client_squash_ask *ask, char *err, size_t err_size);

/* The arguments of a mount program. */
struct client_mount {
	int argc;
	char *const *argv;
	const char *cwd;
	bool is_root;
	const struct mount_opts *opts; /* of argv */
	const struct mount_dirs *dirs; /* of opts; borrowed */
};

/* Have a server serve the mount, and mount it. 0: the mount answers. CLIENT_NO_SERVER: no server
 * can be had, nothing has happened, and err says why. -errno and a sentence: the server refused or
 * failed, and nothing is mounted. */
#define CLIENT_NO_SERVER 1
int client_mount(const struct rundir *at, const struct client_mount *m, char *err, size_t err_size);
