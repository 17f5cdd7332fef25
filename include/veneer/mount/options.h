/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the command line and the -o grammar of fuse-overlayfs into a struct that does not change
 * afterwards. Driven by a table. Pure, except that it checks whether an ambiguous escape names an
 * existing path. */
#pragma once

#include "veneer/base/promote_policy.h"
#include "veneer/sys/cpu_latency.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* One row of uidmapping=/gidmapping=: `len` ids from `inside` (as presented) are stored as
 * `outside` ids on disk. A:B:N in the option is outside A, inside B. */
struct id_map {
	uint32_t outside, inside, len;
};

struct id_maps {
	struct id_map *rows;
	size_t n;
};

enum cow_mode { COW_MAP, COW_COPY };

/* How an open file is read and written. AUTO: passed through if possible, else cached. */
enum io_mode { IO_AUTO, IO_PASSTHROUGH, IO_CACHED, IO_DIRECT };
/* For unchanged lower files: which are passed through, and whether read() sees a later write. */
enum coherence { COHERENCE_AUTO, COHERENCE_STRICT, COHERENCE_FAST };
/* How a partial file is read, on a mount that passes files through. */
enum partial_mode { PARTIAL_AUTO, PARTIAL_CACHED, PARTIAL_DIRECT };
enum writeback_mode { WRITEBACK_AUTO, WRITEBACK_ON, WRITEBACK_OFF };

/* File locks are kept by the kernel or by the server. */
enum locking { LOCKING_LOCAL, LOCKING_SERVER };

/* OFF: snapshots are taken when possible. ON: they must always be possible, so the kernel writes no
 * file of the upper by itself. */
enum branches_mode { BRANCHES_OFF, BRANCHES_ON };

#define OPTIONS_SQUASH_MAX  10000u /* below the limit of snapshots of an upper */
#define OPTIONS_COPIES_AUTO 0u
#define OPTIONS_COPIES_ALL  UINT32_MAX

/* The state that mounts of one image share besides the lower files: nothing, or the kernel's
 * pages. */
enum share_mode { SHARE_OFF, SHARE_PAGES };
/* How a start is read ahead. FULL: a file that starts write is completed at its first write. */
enum prefetch_mode { PREFETCH_OFF, PREFETCH_READ, PREFETCH_FULL };

struct mount_opts {
	char **lower; /* absolute, top first, n_lower >= 1 */
	size_t n_lower;
	char *upper, *work; /* absolute or NULL (no upper: read-only mount) */
	char *mountpoint; /* absolute */
	struct id_maps uids, gids; /* empty: identity */
	bool squash_to_root;
	int64_t squash_uid, squash_gid; /* -1: none */
	double timeout_s; /* entry and attribute timeout; default 1e9; 0 caches nothing */
	int xattr_permissions; /* 0, 1 or 2 */
	bool is_userxattr; /* trust user.* attributes of layers, which any user can write */
	bool is_foreground, is_debug, is_readonly, is_volatile, has_static_nlink, has_no_acl,
		has_no_xattrs, keeps_atime;
	bool is_private; /* "private", as Buildah's :O volumes pass it */
	enum cow_mode cow; /* -o cow=map|copy; default map, copy when is_private */
	bool is_cow_given;
	enum io_mode io;
	enum coherence coherence;
	enum share_mode share;
	enum partial_mode partial;
	enum writeback_mode writeback;
	enum locking locks;
	enum branches_mode branches;
	enum promote_policy_mode promote; /* -o promote=off|auto|eager|written|RATE */
	uint64_t promote_rate; /* bytes a second */
	unsigned squash; /* above twice this number of snapshots the oldest are merged; 0: never */
	uint64_t promote_max; /* -o promote_max=: bytes, for `written` */
	uint32_t copies; /* limit of copies of lower data in the pages of mounts:
			    OPTIONS_COPIES_AUTO, N, OPTIONS_COPIES_ALL */
	enum prefetch_mode prefetch;
	bool has_static_layers; /* -o layers=static */
	int cpu_latency; /* -o cpu-latency=: microseconds, CPU_LATENCY_AUTO or CPU_LATENCY_OFF */
	double window_s; /* length of the trace of first reads at a start */
	uint64_t max_bytes, max_inodes; /* limits of the upper: -o size=, inodes=; 0: none */
	char *kernel_opts; /* for fuse_session_new's -o: "allow_other,default_permissions,..." */
	bool has_no_redirects; /* renaming a directory with lower contents fails: EXDEV */
	bool has_no_device_whiteouts; /* set by the caller's environment, not by an option */
	bool is_standalone; /* served by a process of its own */
	bool is_strict; /* an unknown argument is an error */
	bool is_offline; /* opened by a tool and not served: no threads, and the work directory may
			    be in the upper */
	bool wants_help, wants_version;
	char **unknown; /* arguments to report as "unknown argument ignored: X" */
	size_t n_unknown;
};

/* A command line and its context. */
struct options_argv {
	int argc;
	char *const *argv;
	const char *cwd; /* for relative paths */
	bool is_root; /* effective uid 0, which adds the options that root always gets */
	bool is_saved; /* from the record of a mount, which an earlier build may have made: options
			  that have been removed since are accepted without effect */
};

/* Parse the command line as compat.md section 1 describes. On success the caller owns *ret
 * (options_release). On failure -EINVAL and a sentence, without prefix or newline, in err (at most
 * err_size bytes with the NUL); or -ENOMEM. If argv[0] is mount.veneer, as for mount(8), the
 * argument before the mount point is the source, and options of mount(8) alone do not count as
 * unknown. */
int options_parse(const struct options_argv *a, struct mount_opts *ret, char *err, size_t err_size);
void options_release(struct mount_opts *o);
/* The unknown arguments, separated by commas; malloc'd. NULL: none, or no memory. */
char *options_unknown(const struct mount_opts *o);

/* May two mounts of the same lower layers share a superblock? */
bool options_agree(const struct mount_opts *a, const struct mount_opts *b);
/* Make the options of the common mount: the lower layers of o alone, shown as o shows them. The
 * caller owns *ret. 0 or -ENOMEM. */
int options_common(const struct mount_opts *o, struct mount_opts *ret);

/* The options in effect that choose between ways of working, defaults included, in the syntax of
 * -o; malloc'd. Directories and id maps are left out. 0 or -ENOMEM. */
int options_in_effect(const struct mount_opts *o, char **ret);

#define ID_OVERFLOW 65534u
#define ID_INVALID                                                                            \
	UINT32_MAX /* not an id: the kernel shows 65534, matches no user with it, and refuses \
		      changes */

/* Translate a presented id to the one on disk, and back. An id outside all rows becomes ID_OVERFLOW
 * on disk, so callers without a row can create files. From disk it becomes ID_INVALID, except
 * ID_OVERFLOW, which stays. Empty maps are the identity. */
uint32_t idmap_to_disk(const struct id_maps *m, uint32_t id);
uint32_t idmap_from_disk(const struct id_maps *m, uint32_t id);
/* Does a row cover this presented id? */
bool idmap_has(const struct id_maps *m, uint32_t id);
/* Translate the ids in the value of a POSIX ACL attribute, in place. to_disk: -EINVAL for an id
 * that no row covers, and value is half translated. A malformed value is left alone. */
int idmap_acl(const struct id_maps *uids, const struct id_maps *gids, void *value, size_t size,
	      bool to_disk);
