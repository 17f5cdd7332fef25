/* SPDX-License-Identifier: Apache-2.0 */
/* The other end of the server's socket: find a server, or start one, and ask it. */
#pragma once

#include "veneer/jobs/promote_worker.h"
#include "veneer/mount/mount_dirs.h"
#include "veneer/server/rundir.h"

#include <stdint.h>
#include <sys/stat.h>

/* Connect to the server at the place, and greet it. may_start: where there is none, start one.
 * -ENOENT: there is none; other -errno: it cannot be used, or not be started. 0 and *ret_fd; a
 * sentence otherwise. */
int client_connect(const struct rundir *at, bool may_start, int *ret_fd, char *err,
		   size_t err_size);
/* Fetch the server's statistics, malloc'd. fd is that of client_connect. 0, or -errno and a
 * sentence. */
int client_stats(int fd, char **ret_json, char *err, size_t err_size);

/* A mount or its upper, as its server knows it. */
struct client_target {
	unsigned dev_major, dev_minor;
	uint64_t ino;
	uint32_t number; /* of a mount in a shared superblock, all of which have one device; 0 */
};

/* Of a directory. 0 or -errno. */
int client_target_of(const char *path, struct client_target *ret);

/* Have a snapshot taken of a mount. name: "" for one that the server chooses; on success the
 * snapshot's, malloc'd. Results as client_flatten. */
int client_snapshot(int fd, const struct client_target *at, const char *name, char **ret_name,
		    char *err, size_t err_size);

/* Have it go back to a snapshot. names: of that, a newline, and what the snapshot of what it shows
 * now is to be called, or nothing. Likewise. */
int client_rollback(int fd, const struct client_target *at, const char *names, char **ret_name,
		    char *err, size_t err_size);

/* Have a mount make its partial files ordinary ones. step is told how far it is, until the end. 0;
 * -ENOENT: the server has no such mount; other -errno and a sentence. */
int client_flatten(int fd, const struct client_target *at,
		   void (*step)(void *arg, const struct promote_worker_progress *s), void *arg,
		   char *err, size_t err_size);

struct client_squashed {
	size_t n; /* snapshots that became one; 0: it is not done yet, or there was nothing to do */
	uint64_t entries, bytes; /* so far */
};

struct client_squash_ask {
	const struct client_target *at;
	const char *names; /* the lower and the upper snapshot, or nothing, a newline between */
	void (*step)(void *arg, const struct client_squashed *s);
	void *arg;
};

/* Have snapshots of a mount made one; step is told how far that is, and last what it came to. As
 * client_flatten. */
int client_squash(int fd, const struct client_squash_ask *ask, char *err, size_t err_size);

/* The arguments of a mount program. */
struct client_mount {
	int argc;
	char *const *argv;
	const char *cwd;
	bool is_root;
	const struct mount_opts *opts; /* of argv */
	const struct mount_dirs *dirs; /* of opts; stay the caller's */
};

/* Have a server serve the mount, and mount. 0: it answers. CLIENT_NO_SERVER: no server is to be
 * had, nothing has happened, and err says why. -errno and a sentence: it was refused or failed;
 * nothing is mounted. */
#define CLIENT_NO_SERVER 1
int client_mount(const struct rundir *at, const struct client_mount *m, char *err, size_t err_size);
