/* SPDX-License-Identifier: Apache-2.0 */
/* A picture of a server and the mounts it serves, and the JSON text of it: what `veneer stats` and
 * `veneer top` get, in the form that veneer(1) describes. */
#pragma once

#include "veneer/base/stats.h"
#include "veneer/jobs/page_dup_limiter.h"
#include "veneer/layer/layer_registry.h"
#include "veneer/mount/mount.h"
#include "veneer/sys/mmap_cache.h"
#include "veneer/union/quota.h"

struct report_mount {
	char *mountpoint, *mode, *upper; /* owned; upper may be NULL */
	char *unknown; /* arguments that were ignored (options_unknown), owned; NULL: none */
	char *mode_reason, *options; /* owned: mount_mode_reason, options_in_effect; NULL in a
					report of an older server */
	char *container; /* owned: its name if an engine's files tell it, else its number; or
			  * NULL */
	char **lowers; /* owned, nlower of them, top first; NULL in a report of an older server */
	size_t nlower, image; /* image: index in report.images */
	uint64_t inodes, map_files, map_log_bytes;
	bool has_quota;
	struct quota_usage quota;
	struct stats_values values;
};

struct report_image {
	const struct image *key; /* whose; not looked at */
	size_t nlayers, nmounts;
	uint64_t bytes;
};

struct report {
	char *version; /* owned */
	char *cpu_latency; /* owned: cpu_latency_state; NULL in a report of an older server */
	pid_t pid;
	uint64_t uptime_s, rss_bytes, descriptors;
	uint64_t mounts_served, inodes_served; /* also those that the list leaves out */
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

/* Take the picture of this process, without any mount yet. 0 or -ENOMEM. */
int report_begin(struct report *ret);
/* ... with this one besides, which is open until this returns. 0 or -ENOMEM. Takes the lock of the
 * inode table and, for a moment, the lock of the upper's map. */
int report_add(struct report *r, struct mount *m);
void report_release(struct report *r);
/* Have room for one more mount and one more image, cleared. 0 or -ENOMEM. */
int report_make_room(struct report *r);
/* "lookup": what a kind of request is called in the text. False for numbers without a name. */
bool report_op_name(uint32_t opcode, char ret[32]);
/* A path as the text has it: bytes that are not UTF-8 are \xNN. Malloc'd; NULL on no memory. */
char *report_path(const char *path);
/* The same for a line that is printed: control characters are \xNN, too, so that no name of a file,
 * which comes from a layer, makes a line of its own or steers a terminal. */
char *report_line(const char *text);

/* Subtract the counts of an earlier picture of one mount or server; the longest times stay those of
 * all time. */
void report_subtract(struct stats_values *ended, const struct stats_values *begun);

/* ---- report_json.c ---- */

/* The report as text, malloc'd, one line without newline. 0 or -ENOMEM. */
int report_json(const struct report *r, char **ret);
/* A picture from its text, which may be that of another version: what is not known is left out,
 * what is missing is 0. -EBADMSG: it is no such text at all; -ENOMEM. */
int report_parse(const char *json, struct report *ret);
/* The text with those mounts only that fit; malloc'd. -ENOENT: none does. -EBADMSG, -ENOMEM. */
int report_only(const char *json, bool (*fits)(void *arg, const char *mountpoint), void *arg,
		char **ret_json);
