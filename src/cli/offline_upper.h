/* SPDX-License-Identifier: Apache-2.0 */
/* An upper without a mount, which a subcommand opens as a private mount (is_offline). The times of
 * its root are restored. */
#pragma once

#include "veneer/layer/saved_attrs.h"
#include "veneer/mount/options.h"

struct offline_upper {
	int rootfd;
	int dirfd; /* directory of its own work directory, if it has one */
	struct saved_attrs times;
	bool has_times, has_own_work;
};

/* Lock the upper. If the options have no work directory, make one in the upper: in its root, or in
 * the directory `place` of it (if not ""). 0, or -errno after a sentence on standard error; close
 * in both cases. */
int offline_upper_open(struct offline_upper *u, struct mount_opts *opts, const char *place);
void offline_upper_close(struct offline_upper *u);
/* Print the reason of a stop. */
void offline_upper_say_why(const char *upper, int r);
