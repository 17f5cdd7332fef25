/* SPDX-License-Identifier: Apache-2.0 */
/* fuse-overlayfs's command line and -o grammar, to a struct that is frozen afterwards.
 * Table-driven, pure: touches no file but to tell whether an ambiguous escape names an existing
 * path. */
#pragma once

#include "veneer/base/promote_policy.h"
#include "veneer/prefetch/predictor.h"
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

/* The way in which an open gets its bytes: AUTO is passed through if possible, else cached. */
enum io_mode { IO_AUTO, IO_PASSTHROUGH, IO_CACHED, IO_DIRECT };
/* Of unchanged lower files: which are passed through, and whether read() sees what is written
 * later. */
enum coherence { COHERENCE_AUTO, COHERENCE_STRICT, COHERENCE_FAST };
/* How a partial file is read, on a mount that passes files through. */
enum partial_mode { PARTIAL_AUTO, PARTIAL_CACHED, PARTIAL_DIRECT };
enum writeback_mode { WRITEBACK_AUTO, WRITEBACK_ON, WRITEBACK_OFF };

/* File locks are kept by the kernel or the server. */
enum locking { LOCKING_LOCAL, LOCKING_SERVER };

/* Snapshots are taken when they can be, or must always be possible: then the kernel writes no file
 * of the upper by itself. */
enum branches_mode { BRANCHES_OFF, BRANCHES_ON };

#define OPTIONS_SQUASH_MAX  10000u /* fewer than an upper can have */
#define OPTIONS_COPIES_AUTO 0u
#define OPTIONS_COPIES_ALL  UINT32_MAX

/* The state that mounts of one image share beside the lower files: nothing, or the kernel's
 * pages. */
enum share_mode { SHARE_OFF, SHARE_PAGES };
/* The mode of reading ahead at a start. FULL: what starts write is completed from its first write
 * on. */
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
	bool is_userxattr; /* user.* attributes of layers are believed, by any user */
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
	unsigned squash; /* of more than twice as many snapshots the oldest are merged; 0: never */
	uint64_t promote_max; /* -o promote_max=: bytes of `written` */
	uint32_t copies; /* of lower data, in pages of mounts: OPTIONS_COPIES_AUTO, N,
			    OPTIONS_COPIES_ALL */
	enum prefetch_mode prefetch;
	enum predictor_kind predictor;
	bool has_static_layers; /* -o layers=static */
	int cpu_latency; /* -o cpu-latency=: microseconds, CPU_LATENCY_AUTO or CPU_LATENCY_OFF */
	double window_s; /* of a start: how long first reads are traced */
	uint64_t max_bytes,
		max_inodes; /* what the upper may take: -o size=, inodes=; 0: all there is */
	char *kernel_opts; /* for fuse_session_new's -o: "allow_other,default_permissions,..." */
	bool has_no_redirects; /* directories with something below are not renamed: EXDEV */
	bool has_no_device_whiteouts; /* the caller's environment says so; not an option */
	bool is_standalone; /* a process of its own serves it */
	bool is_strict; /* an unknown argument is an error */
	bool is_offline; /* of a tool, not to be served: no threads, and the work directory may be
			    in the upper */
	bool wants_help, wants_version;
	char **unknown; /* arguments to report as "unknown argument ignored: X" */
	size_t n_unknown;
};

/* A command line, and what its meaning depends on. */
struct options_argv {
	int argc;
	char *const *argv;
	const char *cwd; /* for relative paths */
	bool is_root; /* effective uid 0, which chooses the options that are always injected */
};

/* Parse it as compat.md section 1 describes. On success the caller owns what is in *ret
 * (options_release). On failure -EINVAL and one sentence, without prefix or newline, in err (at
 * most err_size bytes with the NUL). -ENOMEM. Where argv[0] is mount.veneer, as for mount(8), the
 * argument before the mount point is the source of the mount, and what is for mount(8) alone is no
 * unknown argument. */
int options_parse(const struct options_argv *a, struct mount_opts *ret, char *err, size_t err_size);
void options_release(struct mount_opts *o);
/* The unknown arguments, with commas between them; malloc'd. NULL where there are none, or no
 * memory. */
char *options_unknown(const struct mount_opts *o);

/* May two mounts of the same lower layers be parts of one file system? */
bool options_agree(const struct mount_opts *a, const struct mount_opts *b);
/* Options of a mount of the lower layers of o alone, as a mount of o shows them; the caller's. 0 or
 * -ENOMEM. */
int options_common(const struct mount_opts *o, struct mount_opts *ret);

/* The options that choose between ways to do things, as -o would have them: those that hold,
 * defaults too, malloc'd. Directories and id maps are left out. 0 or -ENOMEM. */
int options_in_effect(const struct mount_opts *o, char **ret);

#define ID_OVERFLOW 65534u
#define ID_INVALID                                                                            \
	UINT32_MAX /* no id: the kernel shows 65534, takes no user for the owner, and refuses \
		      changes */

/* On-disk id for a presented one, and back. Outside every row: ID_OVERFLOW on disk, where callers
 * without a place make files; from disk ID_INVALID, but for ID_OVERFLOW, which is itself. Empty
 * maps are the identity. */
uint32_t idmap_to_disk(const struct id_maps *m, uint32_t id);
uint32_t idmap_from_disk(const struct id_maps *m, uint32_t id);
/* A presented id that a row covers. */
bool idmap_has(const struct id_maps *m, uint32_t id);
/* Translate the ids in a POSIX ACL attribute's value in place. to_disk: -EINVAL, and value half
 * done, for an id that no row covers. A value of another form is left alone. */
int idmap_acl(const struct id_maps *uids, const struct id_maps *gids, void *value, size_t size,
	      bool to_disk);
