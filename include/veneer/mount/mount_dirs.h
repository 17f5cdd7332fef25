/* SPDX-License-Identifier: Apache-2.0 */
/* The directories of a mount as descriptors: opened where the caller's paths and namespaces are,
 * used by the process that serves the mount. */
#pragma once

#include "veneer/mount/options.h"

struct mount_dirs {
	int *lower; /* n_lower, top first */
	size_t n_lower;
	int upper, work; /* -1: none */
	int lock; /* upper_lock.h, of a server that is dead; -1: none */
	int *clones; /* n_clones: each lower once more, in a read-only clone of its mount; none, or
			all */
	size_t n_clones;
	int state; /* state_dir_ask; -1: nothing is learned */
	/* Called once when the mount has to wait for its upper, which is open in fd; NULL: log
	 * it. */
	void (*waits)(void *arg, const char *path, int fd);
	void *waits_arg;
	pid_t opener; /* the process that opened them; 0: this one; or as layer_registry.h says */
};

/* Open what o names. A work directory is left out where it is not used. The caller releases *ret,
 * which is written in every case. 0, or -errno and one sentence in err. */
int mount_dirs_open(const struct mount_opts *o, struct mount_dirs *ret, char *err, size_t err_size);
/* Are they as many and of the kinds that o needs? For descriptors that another process opened. */
bool mount_dirs_fit(const struct mount_opts *o, const struct mount_dirs *d);
/* Make the clones, where this process may: for passthrough by a server that cannot, in another
 * namespace. */
void mount_dirs_clone(struct mount_dirs *d);
/* Empty, to be filled by mount_dirs_add_lower and mount_dirs_add_clone. */
void mount_dirs_init(struct mount_dirs *d);
/* fd is taken over, also on failure. 0 or -ENOMEM. */
int mount_dirs_add_lower(struct mount_dirs *d, int fd);
int mount_dirs_add_clone(struct mount_dirs *d, int fd);
/* Close what was not taken. */
void mount_dirs_release(struct mount_dirs *d);
