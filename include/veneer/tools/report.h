/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot of a server's statistics and of its mounts, and its JSON text for `veneer stats` and
 * `veneer top`, which veneer(1) describes. */
#pragma once

#include "veneer/base/stats.h"
#include "veneer/jobs/page_dup_limiter.h"
#include "veneer/layer/layer_registry.h"
#include "veneer/mount/mount.h"
#include "veneer/sys/mmap_cache.h"
#include "veneer/union/quota.h"

struct report_mount {
	char *mountpoint, *mode, *upper; /* owned; upper may be NULL */
	char *unknown; /* ignored arguments (options_unknown), owned; NULL: none */
	char *mode_reason, *options; /* owned: mount_mode_reason, options_in_effect; NULL: from an
					older server */
	char *container; /* owned: the name in an engine's files, else the number; or NULL */
	char **lowers; /* owned, nlower of them, top first; NULL: from an older server */
	size_t nlower, image; /* image: index in report.images */
	uint64_t inodes, map_files, map_log_bytes;
	bool has_quota;
	struct quota_usage quota;
	struct stats_values values;
};

struct report_image {
	const struct image *key; /* identifies the image; not dereferenced */
	size_t nlayers, nmounts;
	uint64_t bytes;
};

struct report {
	char *version; /* owned */
	char *cpu_latency; /* owned: cpu_latency_state; NULL: from an older server */
	pid_t pid;
	uint64_t uptime_s, rss_bytes, descriptors;
	uint64_t mounts_served, inodes_served; /* including mounts that the list leaves out */
	struct layer_registry_stats share;
	struct mmap_cache_usage windows;
	struct page_dup_limiter_usage limiter;
	uint64_t memory[STATS_MEMORIES];
	struct stats_values totals;
	struct report_mount *mounts;
	size_t nmounts;
	struct report_image *images;
	size_t nimages;
};

/* Fill in this process, without any mount. 0 or -ENOMEM. */
int report_begin(struct report *ret);
/* Add a mount, which must stay open during the call. Takes the lock of the inode table and,
 * briefly, the lock of the upper's map. 0 or -ENOMEM. */
int report_add(struct report *r, struct mount *m);
void report_release(struct report *r);
/* Make room for one more mount and one more image, zeroed. 0 or -ENOMEM. */
int report_make_room(struct report *r);
/* The name of a kind of request in the text, such as "lookup". False: the number has no name. */
bool report_op_name(uint32_t opcode, char ret[32]);
/* A path in the form of the text: bytes that are not UTF-8 become \xNN. Malloc'd; NULL: no
 * memory. */
char *report_path(const char *path);
/* report_path for a printed line: control characters become \xNN, too. So a file name from a layer
 * can neither start a line nor control a terminal. Malloc'd; NULL: no memory. */
char *report_line(const char *text);

/* Subtract the counts of an earlier report of the same mount or server; the longest times stay
 * those of all time. */
void report_subtract(struct stats_values *ended, const struct stats_values *begun);

/* ---- report_json.c ---- */

/* Format the report as one line without a newline; malloc'd. 0 or -ENOMEM. */
int report_json(const struct report *r, char **ret);
/* Parse a report, perhaps of another version: unknown fields are ignored, missing ones are 0.
 * -EBADMSG: not a report; -ENOMEM. */
int report_parse(const char *json, struct report *ret);
/* Keep only the mounts that fit; malloc'd. -ENOENT: none fits; -EBADMSG, -ENOMEM. */
int report_only(const char *json, bool (*fits)(void *arg, const char *mountpoint), void *arg,
		char **ret_json);
