/* SPDX-License-Identifier: Apache-2.0 */
/* A table of mounts as a server has it, and mounts in it whose kernel is a socket (fuse_kernel.h).
 * Everything asserts. */
#pragma once

#include "support/fuse_kernel.h"
#include "support/tree.h"
#include "veneer/server/mount_table.h"

#include <pthread.h>

struct served {
	struct tree_dirs *d; /* the directories, of which nothing is mounted by tree_mount */
	struct supervisor_state *supervisor_state; /* NULL: no mount outlives the server */
	struct mount_table *table;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned n_changed; /* under lock: calls of the table */
};

/* cmocka fixtures; *state is a struct served. served_setup_saved: with a supervisor state. Each
 * mount has ended before the teardown. */
int served_setup(void **state);
int served_setup_saved(void **state);
int served_teardown(void **state);

/* A request for a mount of lower and DIR/upper, DIR/work ("": those of d), with more options. */
void served_request(struct served *s, const char *dir, const char *extra, struct mount_record *d,
		    struct mount_dirs *dirs);
/* Open such a mount. 0, or -errno and the sentence in err (256 bytes). */
int served_open(struct served *s, const char *dir, const char *extra, struct served_mount **ret,
		char *err);
/* Open and start it: k is its kernel, at the place dev_minor. */
struct served_mount *served_start(struct served *s, const char *dir, const char *extra,
				  unsigned dev_minor, struct fuse_kernel *k);
/* Unmount it, and wait until the table has fewer than n mounts. */
void served_unmount(struct served *s, struct fuse_kernel *k, size_t n);
/* Wait until the table has fewer than n mounts. */
void served_await_fewer(struct served *s, size_t n);
