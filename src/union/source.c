// SPDX-License-Identifier: Apache-2.0
#include "veneer/source.h"

#include "veneer/cleanup.h"
#include "veneer/format.h"
#include "veneer/log.h"
#include "veneer/mark.h"
#include "veneer/path.h"
#include "veneer/recover.h"
#include "veneer/whiteout.h"
#include "veneer/xattr.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define SOURCE_DEPTH_MAX 512

/* Read-only and without touching the access time: a lower layer is never written, not even that. */
static int open_quiet(int dirfd, const char *path)
{
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
	int fd;

	for (int attempt = 0; attempt < 2; attempt++) {
		fd = path_open(dirfd, path, flags | O_NOATIME, 0);
		if (fd == -EPERM)
			fd = path_open(dirfd, path, flags, 0);
		if (fd != -EMFILE && fd != -ENFILE)
			break;
		fdcache_shrink();
	}
	return fd;
}

static int open_in_layer(struct source *s)
{
	return open_quiet(s->layer->rootfd, s->path);
}

int source_pin(struct source *s)
{
	int fd = fdcache_pin(&s->fd);

	if (fd >= 0)
		return fd;
	fd = s->open(s);
	return fd < 0 ? fd : fdcache_fill(&s->fd, fd);
}

int source_read_mark(int dirfd, const char *name, struct mark *ret, bool *ret_is_bare)
{
	_cleanup_(freep) char *list = NULL;
	ssize_t len = xattr_list_alloc(dirfd, name, &list);
	bool has_mark = false;

	if (ret_is_bare)
		*ret_is_bare = len == 0;
	if (len == -EOPNOTSUPP || len == -ENOSYS)
		return 0;
	if (len < 0)
		return (int)len;
	for (char *a = list; a && a < list + len; a += strlen(a) + 1) {
		/* The kernel's metacopy files are all hole: reading one as it is would give zeros. */
		if (!strcmp(a, "trusted.overlay.metacopy") || !strcmp(a, "user.overlay.metacopy"))
			return -EUCLEAN;
		has_mark = has_mark || !strcmp(a, FORMAT_PARTIAL_ATTR);
	}
	if (has_mark) {
		_cleanup_(freep) char *value = NULL;
		ssize_t n = xattr_get_alloc(dirfd, name, FORMAT_PARTIAL_ATTR, &value);
		int r;

		if (n < 0)
			return (int)n;
		r = mark_decode(value, (size_t)n, ret);
		return r < 0 ? r : 1;
	}
	return 0;
}

bool source_fits_mark(const struct mark *m, const struct stat *base, const char *path, const char *layer)
{
	if (S_ISREG(base->st_mode) && (uint64_t)base->st_size == m->lower_size &&
	    base->st_mtim.tv_sec == m->lower_mtime_s && (uint32_t)base->st_mtim.tv_nsec == m->lower_mtime_ns)
		return true;
	log_error("%s: %s: the lower file it was copied from is not what it was (%" PRIu64 " bytes then, %jd now)", layer,
		  path, m->lower_size, (intmax_t)base->st_size);
	return false;
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

void source_free(struct source *s)
{
	while (s) {
		struct source *below = s->owns_below ? s->below : NULL;

		fdcache_drop(&s->fd);
		free(s->path);
		free(s);
		s = below;
	}
}

static void source_freep(struct source **s)
{
	source_free(*s);
}

/* The map entry that a mark names, or damage. */
static int find_entry(struct layer *l, const struct mark *m, const char *path, struct mapfile **ret)
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

			r = recover_adopt(l, *ret, m, fd);
		}
	}
	if (r == 0 && (uint32_t)mapfile_uuid(*ret) == m->uuid_low)
		return 0;
	log_error("%s: %s: partial file %" PRIu64 " is not in the layer's map (%s)", l->path, path, m->file_id,
		  r < 0 ? strerror(-r) : "another layer's number");
	return -EUCLEAN;
}

/* Next step down: what lies under the holes of s, whose mark is m. */
static int attach_below(struct layer *const *layers, size_t n, size_t idx, struct source *s, const struct mark *m,
			size_t *ret_idx, struct source **ret)
{
	const char *path = *m->path ? m->path : s->path;
	struct source *below;
	ssize_t found;
	int r = find_entry(s->layer, m, s->path, &s->map);

	if (r < 0)
		return r;
	s->id = m->file_id;
	found = source_find(layers, n, idx + 1, path);
	if (found < 0) {
		log_error("%s: %s: no lower layer has %s, which its blocks come from", s->layer->path, s->path, path);
		return -EUCLEAN;
	}
	below = source_alloc(layers[found], path);
	if (!below)
		return -ENOMEM;
	s->below = below;
	s->owns_below = true;
	*ret_idx = (size_t)found;
	*ret = below;
	return 0;
}

int source_new(struct layer *const *layers, size_t n, size_t idx, const char *path, struct source **ret, struct stat *ret_st)
{
	_cleanup_(source_freep) struct source *top = source_alloc(layers[idx], path);
	struct source *s = top;
	struct mark mark, above;
	bool has_above = false;

	if (!top)
		return -ENOMEM;
	for (unsigned depth = 0; depth < SOURCE_DEPTH_MAX; depth++) {
		struct stat st;
		int r, fd = source_pin(s);

		if (fd < 0)
			return fd;
		r = fstat(fd, &st) < 0 ? -errno : source_read_mark(fd, "", &mark, &s->is_bare);
		fdcache_unpin(&s->fd);
		if (r == -EUCLEAN)
			log_error("%s: %s: damaged or foreign mark of a partial file", s->layer->path, s->path);
		if (r < 0)
			return r;
		if (!S_ISREG(st.st_mode))
			return -EUCLEAN;
		if (has_above && !source_fits_mark(&above, &st, s->path, s->layer->path))
			return -EUCLEAN;
		if (s == top && ret_st)
			*ret_st = st;
		if (r == 0) {
			*ret = steal_ptr(&top);
			return 0;
		}
		r = attach_below(layers, n, idx, s, &mark, &idx, &s);
		if (r < 0)
			return r;
		above = mark;
		has_above = true;
	}
	return -EUCLEAN;
}

enum entry_state { ENTRY_ABSENT, ENTRY_HIDDEN, ENTRY_DIR, ENTRY_REGULAR, ENTRY_OTHER };

/* What one layer's directory says of one name. */
static int entry_state(int dirfd, const char *name)
{
	char hidden[NAME_MAX + 1];
	struct stat st;

	if (snprintf(hidden, sizeof(hidden), WHITEOUT_PREFIX "%s", name) < (int)sizeof(hidden) &&
	    fstatat(dirfd, hidden, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return ENTRY_HIDDEN;
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? ENTRY_ABSENT : -errno;
	if (whiteout_is_device(st.st_mode, st.st_rdev))
		return ENTRY_HIDDEN;
	if (S_ISDIR(st.st_mode))
		return ENTRY_DIR;
	return S_ISREG(st.st_mode) ? ENTRY_REGULAR : ENTRY_OTHER;
}

static int dir_is_opaque(int dirfd)
{
	char redirect[PATH_MAX];
	struct stat st;
	int r;

	if (fstatat(dirfd, WHITEOUT_OPAQUE_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return 1;
	r = whiteout_dir_kind(dirfd, redirect);
	return r == WHITEOUT_DIR_REDIRECTED ? -EUCLEAN : r;
}

/* Does the directory `prefix` of layer l let `name` be seen here? Sets *ret_stop when nothing further
 * down may be asked. */
static int find_in_layer(struct layer *l, const char *prefix, const char *name, bool is_last, bool *ret_stop)
{
	_cleanup_(closep) int dirfd = path_open(l->rootfd, prefix, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0);
	int state, opaque;

	if (dirfd < 0)
		return dirfd == -ENOENT || dirfd == -ENOTDIR || dirfd == -ELOOP ? 0 : dirfd;
	opaque = *prefix ? dir_is_opaque(dirfd) : 0;
	if (opaque < 0)
		return opaque;
	state = entry_state(dirfd, name);
	if (state < 0)
		return state;
	/* Only what is a file has bytes: a device, say, must not even be opened. */
	*ret_stop = opaque || (state != ENTRY_ABSENT && state != (is_last ? ENTRY_REGULAR : ENTRY_DIR));
	return state == (is_last ? ENTRY_REGULAR : ENTRY_DIR);
}

/* Walks the path one component at a time, keeping the range of layers that may still speak: a
 * whiteout, a non-directory or an opaque directory ends it. */
ssize_t source_find(struct layer *const *layers, size_t n, size_t from, const char *path)
{
	_cleanup_(freep) char *copy = strdup(path);
	size_t end = n;
	char *name = copy;

	if (!copy)
		return -ENOMEM;
	if (!path_is_plain(path, strlen(path)))
		return -ENOENT;
	for (;;) {
		char *slash = strchr(name, '/');
		size_t found = n;

		if (slash)
			*slash = '\0';
		for (size_t i = from; i < end; i++) {
			bool stop = false;
			char prefix[PATH_MAX];
			int r;

			snprintf(prefix, sizeof(prefix), "%.*s", name == copy ? 0 : (int)(name - copy - 1), path);
			r = find_in_layer(layers[i], prefix, name, !slash, &stop);
			if (r < 0)
				return r;
			if (r && found == n)
				found = i;
			if (r && !slash)
				return (ssize_t)i;
			if (stop)
				end = r ? i + 1 : i;
		}
		if (found == n)
			return -ENOENT;
		if (!slash)
			return -ENOENT;
		*slash = '/';
		name = slash + 1;
	}
}
