/* SPDX-License-Identifier: Apache-2.0 */
/* A source of bytes: one file of one layer: plain, partial with the files under its holes, or
 * hollow (overlayfs's metacopy: nothing but holes). A file of a stack of such layers resolves to a
 * chain of sources. */
#pragma once

#include "veneer/base/types.h"
#include "veneer/layer/fd_cache.h"
#include "veneer/layer/layer.h"

#include <limits.h>
#include <sys/stat.h>

struct partial_xattr;
struct source_flat; /* source_flat.h */

/* The file itself, as it was when the source was made: permission to read it was decided by
 * that. */
struct source_seen {
	bool is_known, has_acl;
	uid_t uid;
	gid_t gid;
	mode_t mode;
	dev_t dev;
	ino_t ino;
};

struct source {
	struct fd_cache_slot fd;
	struct source_seen seen;
	_Atomic bool is_replaced; /* by a file that others may read: never shown */
	int (*open)(struct source *s); /* a new descriptor or -errno */
	struct layer *layer; /* borrowed from the stack */
	char *path; /* owned; relative to the layer, NULL if `open` needs none */
	struct mapfile *map; /* borrowed from the layer; NULL when plain */
	_Atomic file_id_t id; /* 0 when plain or hollow; a partial file may become plain
			       * (materialize.h, source_settle), and an empty plain one of the
			       * upper partial (copy_range.h) */
	struct source *below; /* under the holes; NULL when plain, and where none is needed */
	bool owns_below;
	bool is_hollow; /* every byte is the one below */
	bool is_copy; /* what is below is another file, as numbers of inodes go */
	bool is_from_elsewhere; /* made by source_new_at: not from the layers that it named alone */
	bool is_unresolved; /* the file has no extended attribute at all */
	_Atomic enum source_head {
		HEAD_UNSEEN,
		HEAD_OTHER,
		HEAD_DATABASE,
		HEAD_TEXT
	} head; /* its first bytes: passthrough_select_is_followed */
	_Atomic(struct source_flat *) flat; /* a reference, set once; NULL: none */
	void (*_Atomic drop_flat)(struct source *s); /* of source_flat.c, set before it; NULL */
	_Atomic uint64_t flat_reads; /* cost of reading without it, as bytes of copying */
};

/* Are the source's bytes just those of its file? */
static inline bool source_is_plain(const struct source *s)
{
	return !s->id && !s->is_hollow;
}

/* The descriptor of a source, opened if need be, pinned: fd_cache_unpin(&s->fd). -ESTALE: its path
 * leads to another file by now, with other owners, mode or access list. Or -errno. */
int source_pin(struct source *s);

/* fstat of the source's file. 0 or -errno. */
int source_stat(struct source *s, struct stat *ret);

/* The kernel lets callers in by st: 0, or -ESTALE where that is of another file, with other owners
 * or another mode. */
int source_fits_stat(struct source *s, const struct stat *st);

/* The file at path of layers[idx], path being the one in that layer, following its partial marks
 * and metacopies down the stack. Checks that every lower file fits its mark. *ret_st (may be NULL)
 * is the top file's stat. 0; -EUCLEAN for marks that fit nothing (logged: file, layer, reason);
 * other -errno. The layers outlive the source. */
int source_new(struct layer *const *layers, size_t n, size_t idx, const char *path,
	       struct source **ret, struct stat *ret_st);
/* The same for a caller that knows the layers with a regular file at that path, so that the others
 * are left alone. They are at[0..nat), ascending, and no layer between them hides one further down;
 * the file is that of the first. */
int source_new_at(struct layer *const *layers, size_t n, const uint16_t *at, size_t nat,
		  const char *path, struct source **ret);
void source_free(struct source *s);
/* Close the descriptors of s and of the sources below it; nobody uses it. Later calls open them
 * again. */
void source_close(struct source *s);

/* The path of the file under the holes of s, in the tree that the layers below its own show. 0;
 * -ENOENT: there is none; -errno. */
int source_path_below(struct source *s, char ret[PATH_MAX]);

/* The map does not know the file of a partial source any more: if the layer is another mount's
 * upper, that one has made the file whole, and s is plain from now on. 0, or -EUCLEAN. */
int source_settle(struct source *s);

/* Read the partial mark of fd (or of dirfd's name). 1 with *ret filled, 0 when there is none,
 * -EUCLEAN when it is damaged or another union's (metacopy), other -errno. ret_is_bare (may be
 * NULL): there is no attribute at all. */
int source_read_mark(int dirfd, const char *name, struct partial_xattr *ret,
		     bool *ret_is_unresolved);

/* Are bytes of its lower file seen in a partial file of that size? While none are, it needs no
 * lower file (doc/SPEC.md, section 2), and will never need one again. 1, 0; -ENOENT: the map has no
 * such file; other -errno. */
int source_needs_lower(struct mapfile *map, const struct partial_xattr *m, uint64_t size);

/* Does the base file still look as the mark says? Logged when not. */
bool source_fits_mark(const struct partial_xattr *m, const struct stat *base, const char *path,
		      const char *layer);
