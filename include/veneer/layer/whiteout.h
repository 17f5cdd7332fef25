/* SPDX-License-Identifier: Apache-2.0 */
/* Whiteouts, opaque marks, redirects and metacopies in all dialects: the only place that knows them
 * (doc/SPEC.md lists them). Names that start with ".wh." are never shown and never created by a
 * container. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

/* The attributes that make a regular file a metacopy of overlayfs, and that lead it and directories
 * elsewhere. */
#define WHITEOUT_METACOPY_ATTR "trusted.overlay.metacopy"
#define WHITEOUT_REDIRECT_ATTR "trusted.overlay.redirect"

enum whiteout_name {
	WHITEOUT_PLAIN, /* an ordinary name */
	WHITEOUT_HIDES, /* ".wh.NAME": NAME does not exist here or below */
	WHITEOUT_OPAQUE, /* ".wh..wh..opq": nothing below this directory is seen */
	WHITEOUT_META, /* ".wh..wh.*" and ".wh.": ours, aufs's; hidden */
};

#define WHITEOUT_PREFIX	     ".wh."
#define WHITEOUT_PREFIX_LEN  4
#define WHITEOUT_OPAQUE_NAME ".wh..wh..opq"

enum whiteout_name whiteout_name_kind(const char *name);
static inline bool whiteout_is_device(mode_t mode, dev_t rdev)
{
	return S_ISCHR(mode) && rdev == 0;
}
/* An extended attribute that belongs to a union file system and not to the container. */
bool whiteout_is_reserved_attr(const char *attr);

/* How a directory of a layer goes on below. The file form of an opaque directory is found by
 * listing. */
enum whiteout_dir {
	WHITEOUT_DIR_MERGED, /* with the directory at its own path in the layers below */
	WHITEOUT_DIR_OPAQUE, /* not at all */
	WHITEOUT_DIR_REDIRECTED, /* with one at another path there */
};

/* Read the attributes of directory dirfd: one of enum whiteout_dir, or -errno. is_doubted: a
 * redirect in user.* counts on a directory that only this user could have written, and is -EUCLEAN
 * on others. redirect: "/" and a plain path from the root of the layers below, or one plain name in
 * place of the directory's own (overlayfs writes both). -EUCLEAN: a redirect that is neither. */
int whiteout_dir_kind(int dirfd, bool is_doubted, char redirect[PATH_MAX]);
/* Likewise, and does it say that whiteouts of the third form, which are files, may be in it? */
int whiteout_dir_marks(int dirfd, bool is_doubted, char redirect[PATH_MAX], bool *ret_has_files);
/* Of a directory that says so: is this entry one, an empty file with an attribute (overlayfs, since
 * Linux 6.7)? In doubt no. */
bool whiteout_is_file(int dirfd, const char *name);
/* Is there a redirect, be it one that an opaque mark overrules? 1, 0 or -errno. */
int whiteout_has_redirect(int dirfd);
/* Undo whiteout_set_redirect. 0 or -errno. */
int whiteout_remove_redirect(int dirfd);

/* Cheap, for a directory's name: false is certain. */
bool whiteout_may_be_redirected(int dirfd, const char *name);
/* Is it a file whose bytes are all those of a file below (overlayfs, metacopy=on)? 1 with where
 * that is: as of a directory, or "" for its own path. 0: no. -EUCLEAN: it is, but its data cannot
 * be known, or has a digest. */
int whiteout_metacopy(int fd, char redirect[PATH_MAX]);

/* How whiteouts are written on one upper. */
struct whiteout_style {
	bool has_device; /* mknod 0:0 works and is wanted */
	bool has_rename; /* RENAME_WHITEOUT works too */
	bool has_trusted; /* trusted.* attributes can be written */
	bool has_user_attr;
};

/* Make (dirfd, name), which has no entry, a whiteout. 0 or -errno. */
int whiteout_make(const struct whiteout_style *st, int dirfd, const char *name);
/* Remove both forms of the whiteout of name, if there. 0 or -errno. */
int whiteout_remove(int dirfd, const char *name);
/* Is there a ".wh.NAME"? An upper may have whiteouts of both kinds. */
bool whiteout_is_by_name(int dirfd, const char *name);
/* Mark an empty directory opaque, in the forms that the privileges at hand allow. 0 or -errno. */
int whiteout_set_opaque(const struct whiteout_style *st, int dirfd);
/* Let a directory be merged with path (plain, from the root of the layers below) and with nothing
 * at its own. The path is the origin of the copy-up, so it stays when the directory moves again. 0
 * or -errno. */
int whiteout_set_redirect(const struct whiteout_style *st, int dirfd, const char *path);
