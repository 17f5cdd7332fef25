// SPDX-License-Identifier: Apache-2.0
#include "veneer/layer/source.h"

#include "source_mark.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/base/singleflight.h"
#include "veneer/layer/map_recover.h"
#include "veneer/layer/metacopy_origin.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/layer/path_resolve.h"
#include "veneer/layer/whiteout.h"
#include "veneer/layer/xattr_trust.h"
#include "veneer/sys/path.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#define SOURCE_DEPTH_MAX 512
#define NAME_BELOW_MAX	 (PATH_MAX + 1) /* a slash and a mark's path */

/* Read-only and without touching the access time: a lower layer is never written, not even that. */
static int open_quiet(int dirfd, const char *path)
{
	int fd;

	for (int attempt = 0; attempt < 2; attempt++) {
		fd = path_open_quiet(dirfd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
		if (fd != -EMFILE && fd != -ENFILE)
			break;
		fd_cache_shrink();
	}
	return fd;
}

static int note_replaced(struct source *s)
{
	if (!atomic_exchange(&s->is_replaced, true))
		log_warn("%s: %s: another file has taken its place, with other owners, mode or "
			 "access list: it is not shown until the "
			 "mount is made anew",
			 s->layer->path, s->path);
	return -ESTALE;
}

static bool is_same_file(const struct source_seen *seen, const struct stat *st)
{
	return st->st_dev == seen->dev && st->st_ino == seen->ino;
}

static bool has_same_access(const struct source_seen *seen, const struct stat *st)
{
	return st->st_uid == seen->uid && st->st_gid == seen->gid && st->st_mode == seen->mode;
}

int source_fits_stat(struct source *s, const struct stat *st)
{
	if (s->is_replaced)
		return -ESTALE;
	return is_same_file(&s->seen, st) || has_same_access(&s->seen, st) ? 0 : note_replaced(s);
}

/* The kernel has let callers in by the attributes of the file that was there. Another one is shown
 * if the users who may read it are the same; of access lists that is not asked. File systems that
 * may be remote number files anew. */
static int check_opened(struct source *s, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (is_same_file(&s->seen, &st))
		return 0;
	if (!has_same_access(&s->seen, &st))
		return note_replaced(s);
	if (s->layer->is_mappable && (s->seen.has_acl || fgetxattr(fd, ACL_ATTR, NULL, 0) >= 0))
		return note_replaced(s);
	return 0;
}

static int open_in_layer(struct source *s)
{
	int fd = open_quiet(s->layer->rootfd, s->path);
	int r = fd >= 0 && s->seen.is_known ? check_opened(s, fd) : 0;

	if (r < 0)
		close(fd);
	return r < 0 ? r : fd;
}

static int open_and_pin(struct source *s)
{
	int fd = s->open(s);

	return fd < 0 ? fd : fd_cache_fill(&s->fd, fd);
}

/* Open the file once where its file system may be remote: most FUSE file systems forget the file's
 * pages at each open, so that a second open drops the pages of the first. */
static int open_alone_and_pin(struct source *s)
{
	struct singleflight flight;
	const bool is_ours = singleflight_begin(&flight, s);
	int fd = fd_cache_pin_again(&s->fd);

	if (fd < 0)
		fd = open_and_pin(s);
	if (is_ours)
		singleflight_end(&flight);
	return fd;
}

int source_pin(struct source *s)
{
	int fd = fd_cache_pin(&s->fd);

	if (fd >= 0)
		return fd;
	return s->layer && !s->layer->is_mappable ? open_alone_and_pin(s) : open_and_pin(s);
}

int source_stat(struct source *s, struct stat *ret)
{
	const int fd = source_pin(s);
	int r;

	if (fd < 0)
		return fd;
	r = fstat(fd, ret) < 0 ? -errno : 0;
	fd_cache_unpin(&s->fd);
	return r;
}

int source_settle(struct source *s)
{
	struct partial_xattr mark;
	int fd, r;

	if (!s->path)
		return -EUCLEAN;
	fd = source_pin(s);
	if (fd < 0)
		return fd;
	r = source_mark_kind(fd, "", &mark, NULL, NULL);
	fd_cache_unpin(&s->fd);
	if (r == SOURCE_MARK_OWN)
		s->id = 0;
	return r == SOURCE_MARK_OWN ? 0 : -EUCLEAN;
}

static struct source *source_alloc(struct layer *layer, const char *path)
{
	struct source *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->layer = layer;
	s->open = open_in_layer;
	s->path = strdup(path);
	if (!s->path) {
		free(s);
		return NULL;
	}
	return s;
}

void source_close(struct source *s)
{
	for (; s; s = s->owns_below ? s->below : NULL) {
		void (*drop_flat)(struct source *s) = s->drop_flat;

		fd_cache_drop(&s->fd);
		if (drop_flat)
			drop_flat(s);
		s->flat_reads = 0;
	}
}

void source_free(struct source *s)
{
	source_close(s);
	while (s) {
		struct source *below = s->owns_below ? s->below : NULL;

		free(s->path);
		free(s);
		s = below;
	}
}

static void source_freep(struct source **s)
{
	source_free(*s);
}

/* The map entry that a mark names: 0; 1: the file has none any more, and no mark either; or
 * damage. */
static int find_entry(struct layer *l, const struct partial_xattr *m, const char *path,
		      struct mapfile **ret)
{
	uint64_t clip;
	int r = layer_map(l, ret);

	if (r == 0 && mapfile_clip(*ret, m->file_id, &clip) == -ENOENT) {
		/* The layer may be the live upper of another mount: look at its newest records. */
		r = mapfile_refresh(*ret);
		if (r >= 0)
			r = mapfile_clip(*ret, m->file_id, &clip);
		if (r == -ENOENT) {
			_cleanup_(closep) int fd = open_quiet(l->rootfd, path);
			struct partial_xattr again;

			if (fd >= 0 &&
			    source_mark_kind(fd, "", &again, NULL, NULL) == SOURCE_MARK_OWN)
				return 1;
			r = map_recover_enter(l, *ret, m, fd);
		}
	}
	if (r == 0 && (uint32_t)mapfile_uuid(*ret) == m->uuid_low)
		return 0;
	log_error("%s: %s: partial file %" PRIu64 " is not in the layer's map (%s)", l->path, path,
		  m->file_id, r < 0 ? strerror(-r) : "another layer's number");
	return -EUCLEAN;
}

/* Find the file that s stands over in the layers below layers[idx], for a name given as by
 * whiteout_metacopy. -ENOENT: there is none. */
static int path_below(struct source *s, const char *name, char ret[PATH_MAX])
{
	struct path_resolve_step step;
	char *last;
	int r;

	if (name[0] == '/') {
		strcpy(ret, name + 1);
		return 0;
	}
	r = path_resolve_visit(s->layer, s->path, &step);
	if (r < 0)
		return r;
	if (step.kind != PATH_RESOLVE_REGULAR || !step.has_below)
		return -ENOENT;
	last = strrchr(step.path, '/');
	last = last ? last + 1 : step.path;
	if (!*name)
		name = last;
	return snprintf(ret, PATH_MAX, "%.*s%s", (int)(last - step.path), step.path, name) <
			       PATH_MAX
		       ? 0
		       : -ENAMETOOLONG;
}

/* The place where a chain goes on. at: the layers known to have the file at the path of its first
 * part; 0 of them once it has left that path. */
struct chain {
	struct layer *const *layers;
	size_t n, idx;
	const uint16_t *at;
	size_t nat;
	struct source *enough; /* the first that needs no lower file: the files below only give the
				  number */
};

/* The layer of the file that s stands over, and its path there. */
static ssize_t find_below(struct chain *c, struct source *s, const char *name, char **ret_path)
{
	char path[PATH_MAX];
	int r;

	for (size_t k = 0; !*name && k < c->nat; k++)
		if (c->at[k] > c->idx) {
			*ret_path = strdup(s->path);
			return *ret_path ? c->at[k] : -ENOMEM;
		}
	c->nat = 0;
	r = path_below(s, name, path);
	return r < 0 ? r
		     : path_resolve_file(c->layers, c->n, layer_below(c->layers, c->n, c->idx),
					 path, ret_path);
}

/* Next step down: the file under the holes of s. */
static int attach_below(struct chain *c, struct source *s, const char *name, struct source **ret)
{
	_cleanup_(freep) char *there = NULL;
	ssize_t found = find_below(c, s, name, &there);

	if (found == -ENOENT || found == -EUCLEAN || found == -ENAMETOOLONG) {
		if (!c->enough)
			log_error(
				"%s: %s: no lower layer has the file that its bytes come from%s%s",
				s->layer->path, s->path, *name ? ", " : "", name);
		return -EUCLEAN;
	}
	if (found < 0)
		return (int)found;
	s->below = source_alloc(c->layers[found], there);
	if (!s->below)
		return -ENOMEM;
	s->owns_below = true;
	c->idx = (size_t)found;
	*ret = s->below;
	return 0;
}

/* Examine one file: a partial one gets its map and id. name: the file that it stands over, in the
 * form of whiteout_metacopy. */
static int examine(struct source *s, struct stat *st, struct partial_xattr *mark,
		   char name[NAME_BELOW_MAX])
{
	bool has_acl = false;
	int fd = source_pin(s), r;

	name[0] = '\0';
	if (fd < 0)
		return fd;
	r = fstat(fd, st) < 0 ? -errno
			      : source_mark_kind(fd, "", mark, &s->is_unresolved, &has_acl);
	if (r >= 0)
		s->seen = (struct source_seen){ true,	     has_acl,	 st->st_uid, st->st_gid,
						st->st_mode, st->st_dev, st->st_ino };
	if (r == SOURCE_MARK_BELOW)
		r = whiteout_metacopy(fd, name) < 0 ? -EUCLEAN : SOURCE_MARK_BELOW;
	fd_cache_unpin(&s->fd);
	if (r == -EUCLEAN)
		log_error("%s: %s: damaged or foreign mark of a file whose bytes are below",
			  s->layer->path, s->path);
	if (r >= 0 && !S_ISREG(st->st_mode))
		return -EUCLEAN;
	if (r == SOURCE_MARK_PARTIAL) {
		int e = find_entry(s->layer, mark, s->path, &s->map);

		if (e < 0)
			return e;
		if (e == 1)
			return SOURCE_MARK_OWN;
		s->id = mark->file_id;
		s->is_copy = mark->is_copy;
		snprintf(name, NAME_BELOW_MAX, "%s%s", *mark->path ? "/" : "", mark->path);
	}
	s->is_hollow = r == SOURCE_MARK_BELOW;
	return r;
}

int source_path_below(struct source *s, char ret[PATH_MAX])
{
	char name[NAME_BELOW_MAX];
	struct partial_xattr mark;
	struct stat st;
	int r = examine(s, &st, &mark, name);

	if (r < 0)
		return r;
	return r == SOURCE_MARK_OWN ? -ENOENT : path_below(s, name, ret);
}

/* s, partial, whose mark leads to a file with this stat. */
static int check_trust(const struct chain *c, struct source *s, const struct partial_xattr *m,
		       const struct stat *low)
{
	int fd = s->layer->is_doubted ? source_pin(s) : -1, r;

	if (fd < 0)
		return s->layer->is_doubted ? fd : 0;
	r = xattr_trust_check(s->layer, s->map, fd, m, low);
	fd_cache_unpin(&s->fd);
	if (r == -EUCLEAN && !c->enough)
		log_error("%s: %s: " XATTR_TRUST_SAID, s->layer->path, s->path);
	return r;
}

/* s stands over below, a file at its own place. */
static int check_metacopy(struct source *s, struct source *below, const struct stat *low)
{
	int fd, low_fd, r;

	if (!s->layer->is_doubted)
		return 0;
	fd = source_pin(s);
	if (fd < 0)
		return fd;
	low_fd = source_pin(below);
	r = low_fd < 0 ? low_fd : metacopy_origin_check(fd, low_fd, low);
	if (low_fd >= 0)
		fd_cache_unpin(&below->fd);
	fd_cache_unpin(&s->fd);
	if (r == -EUCLEAN)
		log_error("%s: %s: " METACOPY_ORIGIN_SAID, s->layer->path, s->path);
	return r;
}

/* Follow s down to a file that has all of its bytes. */
static int follow(struct chain *c, struct source *s, struct stat *ret_st)
{
	struct source *top = s, *over = NULL;
	bool is_at_own_place = false;
	uint64_t hollow_size = 0;
	int above = SOURCE_MARK_OWN;
	struct partial_xattr mark;

	for (unsigned depth = 0; depth < SOURCE_DEPTH_MAX; depth++) {
		char name[NAME_BELOW_MAX];
		struct partial_xattr next;
		struct stat st;
		int r = examine(s, &st, &next, name);

		if (r < 0)
			return r;
		if (above == SOURCE_MARK_PARTIAL &&
		    !(c->enough ? partial_xattr_fits(&mark, &st)
				: source_fits_mark(&mark, &st, s->path, s->layer->path)))
			return -EUCLEAN;
		r = above == SOURCE_MARK_PARTIAL ? check_trust(c, over, &mark, &st) ?: r : r;
		if (r < 0)
			return r;
		if (above == SOURCE_MARK_BELOW && (uint64_t)st.st_size != hollow_size) {
			log_error("%s: %s: not of the size of the file that stands for it above",
				  s->layer->path, s->path);
			return -EUCLEAN;
		}
		if (above == SOURCE_MARK_BELOW && is_at_own_place)
			r = check_metacopy(over, s, &st) ?: r;
		if (r < 0)
			return r;
		if (s == top && ret_st)
			*ret_st = st;
		if (r == SOURCE_MARK_OWN)
			return 0;
		if (r == SOURCE_MARK_PARTIAL && !c->enough &&
		    source_needs_lower(s->map, &next, (uint64_t)st.st_size) == 0)
			c->enough = s;
		above = r;
		over = s;
		is_at_own_place = name[0] != '/';
		mark = next;
		hollow_size = (uint64_t)st.st_size;
		r = attach_below(c, s, name, &s);
		if (r < 0)
			return r;
	}
	return -EUCLEAN;
}

static int new_chain(struct chain *c, const char *path, struct source **ret, struct stat *ret_st)
{
	_cleanup_(source_freep) struct source *top = source_alloc(c->layers[c->idx], path);
	int r = top ? follow(c, top, ret_st) : -ENOMEM;

	/* All its bytes are its own. */
	if (r == -EUCLEAN && c->enough) {
		if (c->enough->owns_below)
			source_free(c->enough->below);
		c->enough->below = NULL;
		c->enough->owns_below = false;
		c->enough->id = 0;
		r = 0;
	}
	if (r < 0)
		return r;
	top->is_from_elsewhere = !c->nat;
	*ret = steal_ptr(&top);
	return 0;
}

int source_new(struct layer *const *layers, size_t n, size_t idx, const char *path,
	       struct source **ret, struct stat *ret_st)
{
	struct chain c = { .layers = layers, .n = n, .idx = idx };

	return new_chain(&c, path, ret, ret_st);
}

int source_new_at(struct layer *const *layers, size_t n, const uint16_t *at, size_t nat,
		  const char *path, struct source **ret)
{
	struct chain c = { .layers = layers, .n = n, .idx = at[0], .at = at, .nat = nat };

	return new_chain(&c, path, ret, NULL);
}
