/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the subcommands that work on the layers of a mount without mounting them. */
#pragma once

#include "veneer/mount/options.h"

#include <stdio.h>

#define OFFLINE_LISTS_MAX 16

/* The arguments of such a subcommand. */
struct offline_args {
	char *lists[OFFLINE_LISTS_MAX]; /* -o */
	size_t nlists;
	const char *path, *second; /* what is no option */
	const char *rate; /* of --rate; NULL: none */
	bool is_quiet, repairs, salvages, is_in_place, is_json, wants_help;
};

/* Accepts -o LIST, --help and of --quiet, --repair, --in-place, --json and --rate what `known`
 * names, and one path if wants_path; another argument if `known` has SECOND. 0, or -EINVAL after a
 * sentence on standard error. */
int offline_arguments(int argc, char **argv, const char *known, bool wants_path,
		      struct offline_args *ret);
/* The layers that the lists name, as for mounting: lowerdir and upperdir are needed, workdir is
 * not. 0, or -EINVAL after a sentence on standard error. */
int offline_options(const struct offline_args *a, struct mount_opts *ret);
/* Has the layer any snapshot, or one that was being taken? 1, 0, or -errno after a sentence. */
int offline_has_snapshots(const char *layer);
/* The tool is for snapshots alone: likewise where the layer has none. */
int offline_refuse_no_snapshots(const char *layer);
/* The tool does not know snapshots yet, and would take the live part of the layer for all of it: 0,
 * or -EOPNOTSUPP after a sentence on standard error where the layer has any. */
int offline_refuse_snapshots(const char *layer, const char *command);
