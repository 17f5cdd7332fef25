/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the subcommands that work on layers without mounting them. */
#pragma once

#include "veneer/mount/options.h"

#include <stdio.h>

#define OFFLINE_LISTS_MAX 16

/* The arguments of such a subcommand. */
struct offline_args {
	char *lists[OFFLINE_LISTS_MAX]; /* of -o */
	size_t nlists;
	const char *path, *second; /* arguments that are not options */
	const char *rate; /* of --rate; NULL: not given */
	bool is_quiet, repairs, salvages, is_in_place, is_json, wants_help;
};

/* Accepts -o LIST, --help, and those of --quiet, --repair, --salvage, --in-place, --json and --rate
 * that `known` contains. Also one path if wants_path, and another argument if `known` contains
 * SECOND. 0, or -EINVAL after a sentence on standard error. */
int offline_arguments(int argc, char **argv, const char *known, bool wants_path,
		      struct offline_args *ret);
/* Parse the lists as for mounting: lowerdir and upperdir are required, workdir is not. 0, or
 * -EINVAL after a sentence on standard error. */
int offline_options(const struct offline_args *a, struct mount_opts *ret);
/* Does the layer have a snapshot, or an interrupted one? 1, 0, or -errno after a sentence. */
int offline_has_snapshots(const char *layer);
/* For a tool that needs snapshots: 0, or -errno after a sentence if the layer has none. */
int offline_refuse_no_snapshots(const char *layer);
/* For a tool without support of snapshots, which would take the live part for the whole layer. 0,
 * or -EOPNOTSUPP after a sentence on standard error if the layer has any. */
int offline_refuse_snapshots(const char *layer, const char *command);
