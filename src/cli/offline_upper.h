/* SPDX-License-Identifier: Apache-2.0 */
/* An upper that no mount uses, for a subcommand that opens it as a mount nobody sees (is_offline).
 * Programs find its root as it was. */
#pragma once

#include "veneer/layer/saved_attrs.h"
#include "veneer/mount/options.h"

struct offline_upper {
	int rootfd;
	int dirfd; /* where its own work directory is, if it has one */
	struct saved_attrs times;
	bool has_times, has_own_work;
};

/* Get it, alone, and if the options have no work directory one in the upper: in its root, or in
 * that directory of it (not ""). 0, or -errno after a sentence on standard error; close in both
 * cases. */
int offline_upper_open(struct offline_upper *u, struct mount_opts *opts, const char *place);
void offline_upper_close(struct offline_upper *u);
/* The sentence for what had to stop. */
void offline_upper_say_why(const char *upper, int r);
