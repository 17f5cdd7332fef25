/* SPDX-License-Identifier: Apache-2.0 */
/* The directories of a mount as descriptors. A process with the caller's paths and namespaces opens
 * them, and the process that serves the mount uses them. */
#pragma once

#include "veneer/mount/options.h"

struct mount_dirs {
	int *lower; /* n_lower, top first */
	size_t n_lower;
	int upper, work; /* -1: none */
	int lock; /* of a dead server (upper_lock.h); -1: none */
	int *clones; /* n_clones of them: each lower again, in a read-only clone of its mount; none
			or all */
	size_t n_clones;
	int state; /* from state_dir_ask; -1: no profile is learned */
	/* Called once if the mount has to wait for its upper, which is open in fd; NULL: log it. */
	void (*waits)(void *arg, const char *path, int fd);
	void *waits_arg;
	pid_t opener; /* opened them; 0: this process; or a value of layer_registry.h */
};

/* Open the directories of o; an unused work directory is left out. The caller releases *ret, which
 * is written in every case. 0, or -errno and a sentence in err. */
int mount_dirs_open(const struct mount_opts *o, struct mount_dirs *ret, char *err, size_t err_size);
/* Do number and kinds fit o? For descriptors that another process opened. */
bool mount_dirs_fit(const struct mount_opts *o, const struct mount_dirs *d);
/* Make the clones, if this process may. Passthrough needs them in a server that cannot make them,
 * because it is in another namespace. */
void mount_dirs_clone(struct mount_dirs *d);
/* Start empty, for mount_dirs_add_lower and mount_dirs_add_clone. */
void mount_dirs_init(struct mount_dirs *d);
/* fd is taken over, also on failure. 0 or -ENOMEM. */
int mount_dirs_add_lower(struct mount_dirs *d, int fd);
int mount_dirs_add_clone(struct mount_dirs *d, int fd);
/* Close the descriptors that were not taken out. */
void mount_dirs_release(struct mount_dirs *d);
