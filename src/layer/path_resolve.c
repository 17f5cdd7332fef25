// SPDX-License-Identifier: Apache-2.0
#include "veneer/layer/path_resolve.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/layer/fd_cache.h"
#include "veneer/layer/whiteout.h"
#include "veneer/sys/path.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static int append(struct path_resolve_step *s, const char *name)
{
	size_t len = strlen(s->path), n = strlen(name);

	if (!s->has_below)
		return 0;
	if (len + 1 + n >= sizeof(s->path))
		return -ENAMETOOLONG;
	if (len)
		s->path[len++] = '/';
	memcpy(s->path + len, name, n + 1);
	return 0;
}

static bool is_hidden(int dirfd, const char *name)
{
	char hidden[NAME_MAX + 1];
	struct stat st;

	return snprintf(hidden, sizeof(hidden), WHITEOUT_PREFIX "%s", name) < (int)sizeof(hidden) &&
	       fstatat(dirfd, hidden, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Open the directory's entry of that name, if there is any. */
static int open_entry(int dirfd, const char *name, int *ret_fd)
{
	_cleanup_(closep) int fd = -1;
	struct stat st;

	if (is_hidden(dirfd, name))
		return PATH_RESOLVE_HIDDEN;
	for (int attempt = 0; attempt < 2; attempt++) {
		fd = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (fd >= 0 || (errno != EMFILE && errno != ENFILE))
			break;
		fd_cache_shrink();
	}
	if (fd < 0)
		return errno == ENOENT || errno == ENAMETOOLONG ? PATH_RESOLVE_ABSENT : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (whiteout_is_device(st.st_mode, st.st_rdev))
		return PATH_RESOLVE_HIDDEN;
	*ret_fd = steal_fd(&fd);
	return S_ISDIR(st.st_mode)   ? PATH_RESOLVE_DIRECTORY
	       : S_ISREG(st.st_mode) ? PATH_RESOLVE_REGULAR
				     : PATH_RESOLVE_OTHER;
}

/* Into a directory of the layer, whose parent stands over s->path. */
static int enter_directory(int fd, bool is_doubted, const char *name, struct path_resolve_step *s)
{
	char redirect[PATH_MAX];
	struct stat st;
	int kind = fstatat(fd, WHITEOUT_OPAQUE_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0
			   ? WHITEOUT_DIR_OPAQUE
			   : whiteout_dir_kind(fd, is_doubted, redirect);

	if (kind < 0)
		return kind;
	s->is_redirected = kind == WHITEOUT_DIR_REDIRECTED;
	if (kind == WHITEOUT_DIR_MERGED)
		return append(s, name);
	if (kind == WHITEOUT_DIR_OPAQUE || redirect[0] == '/') {
		s->path[0] = '\0';
		s->has_below = kind != WHITEOUT_DIR_OPAQUE;
	}
	return append(s, redirect + (redirect[0] == '/'));
}

static int append_rest(struct path_resolve_step *s, const char *name, const char *rest)
{
	int r = append(s, name);

	return r == 0 && *rest ? append(s, rest) : r;
}

int path_resolve_visit(struct layer *l, const char *path, struct path_resolve_step *ret)
{
	_cleanup_(closep) int dirfd = -1;
	const char *rest = path;
	struct stat st;
	int r = 0;

	*ret = (struct path_resolve_step){ .kind = PATH_RESOLVE_DIRECTORY };
	/* A root's attributes do not name the layers below, but the file does. */
	ret->has_below = fstatat(l->rootfd, WHITEOUT_OPAQUE_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0;
	while (*rest && r == 0) {
		size_t len = strcspn(rest, "/");
		char name[NAME_MAX + 1];
		int kind, fd = -1;

		memcpy(name, rest, len);
		name[len] = '\0';
		rest += len + (rest[len] == '/');
		ret->is_redirected = false;
		kind = open_entry(dirfd < 0 ? l->rootfd : dirfd, name, &fd);
		closep(&dirfd);
		dirfd = fd;
		if (kind < 0)
			return kind;
		ret->kind = (enum path_resolve_kind)kind;
		if (kind == PATH_RESOLVE_ABSENT)
			return append_rest(ret, name, rest);
		if (kind == PATH_RESOLVE_HIDDEN || (kind != PATH_RESOLVE_DIRECTORY && *rest)) {
			ret->kind = PATH_RESOLVE_HIDDEN;
			ret->has_below = false;
			ret->path[0] = '\0';
			return 0;
		}
		r = kind == PATH_RESOLVE_DIRECTORY ? enter_directory(fd, l->is_doubted, name, ret)
						   : append(ret, name);
	}
	if (r == -EUCLEAN)
		log_error("%s: %.*s: its redirect is no path, or its owner could have forged it",
			  l->path, (int)(rest - path), path);
	return r;
}

static bool is_there(int dirfd, const char *name)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Does the layer say anything of the first name of the path? */
static bool has_first(const struct layer *l, const char *path)
{
	const size_t len = strcspn(path, "/");
	char name[NAME_MAX + 1];

	memcpy(name, path, len);
	name[len] = '\0';
	return !len || is_hidden(l->rootfd, name) || is_there(l->rootfd, name);
}

int path_resolve_visit_parts(struct layer *const *layers, size_t n, size_t *idx, const char *path,
			     struct path_resolve_step *ret)
{
	const size_t k = *idx, rest = k + 1;
	int r;

	if (rest >= n || !layers[rest]->is_rest)
		return path_resolve_visit(layers[k], path, ret);
	if (!has_first(layers[k], path))
		*idx = rest;
	r = path_resolve_visit(layers[*idx], path, ret);
	/* An opaque root is one whichever of them has the file. */
	if (r == 0 && (is_there(layers[k]->rootfd, WHITEOUT_OPAQUE_NAME) ||
		       is_there(layers[rest]->rootfd, WHITEOUT_OPAQUE_NAME))) {
		ret->has_below = false;
		ret->path[0] = '\0';
	}
	return r;
}

ssize_t path_resolve_file(struct layer *const *layers, size_t n, size_t from, const char *path,
			  char **ret_path)
{
	char here[PATH_MAX];
	struct path_resolve_step s;

	if (!path_is_plain(path, strlen(path)))
		return -ENOENT;
	strcpy(here, path);
	for (size_t i = from; i < n; i = layer_below(layers, n, i)) {
		int r = path_resolve_visit_parts(layers, n, &i, here, &s);

		if (r < 0)
			return r;
		if (s.kind == PATH_RESOLVE_REGULAR) {
			*ret_path = strdup(here);
			return *ret_path ? (ssize_t)i : -ENOMEM;
		}
		if (s.kind != PATH_RESOLVE_ABSENT || !s.has_below)
			return -ENOENT;
		strcpy(here, s.path);
	}
	return -ENOENT;
}

int path_resolve_descend(struct layer *const *layers, size_t from, size_t to, char path[PATH_MAX])
{
	struct path_resolve_step s;

	for (size_t i = from; i < to; i++) {
		int r = path_resolve_visit(layers[i], path, &s);

		if (r < 0)
			return r;
		if (s.kind != PATH_RESOLVE_ABSENT || !s.has_below)
			return -ENOENT;
		strcpy(path, s.path);
	}
	return 0;
}

static int add_directory(struct path_resolve_list *l, size_t layer, const char *path)
{
	if (array_grow(&l->layers, l->n) < 0 || array_grow(&l->paths, l->n) < 0)
		return -ENOMEM;
	l->paths[l->n] = strdup(path);
	if (!l->paths[l->n])
		return -ENOMEM;
	l->layers[l->n++] = (uint16_t)layer;
	return 0;
}

void path_resolve_list_release(struct path_resolve_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->paths[i]);
	free(l->paths);
	free(l->layers);
	*l = (struct path_resolve_list){ 0 };
}

int path_resolve_directories(struct layer *const *layers, size_t n, size_t from, const char *path,
			     struct path_resolve_list *ret)
{
	_cleanup_(path_resolve_list_release) struct path_resolve_list list = { 0 };
	bool is_owed = false; /* the last one found says that there is more */
	char here[PATH_MAX], target[PATH_MAX];
	struct path_resolve_step s;

	*ret = list;
	if (!path_is_plain(path, strlen(path)))
		return 0;
	strcpy(here, path);
	for (size_t i = from; i < n; i = layer_below(layers, n, i)) {
		int r = path_resolve_visit_parts(layers, n, &i, here, &s);

		if (r == 0 && s.kind == PATH_RESOLVE_DIRECTORY)
			r = add_directory(&list, i, here);
		if (r < 0)
			return r;
		if (s.kind == PATH_RESOLVE_DIRECTORY) {
			is_owed = s.is_redirected;
			strcpy(target, s.path);
		}
		if ((s.kind != PATH_RESOLVE_DIRECTORY && s.kind != PATH_RESOLVE_ABSENT) ||
		    !s.has_below)
			break;
		strcpy(here, s.path);
	}
	if (is_owed) {
		log_error("%s: %s: no layer below has the directory %s, which it was before it was "
			  "renamed",
			  layers[list.layers[list.n - 1]]->path, list.paths[list.n - 1],
			  *target ? target : "beside it");
		return -EUCLEAN;
	}
	*ret = list;
	list = (struct path_resolve_list){ 0 };
	return 0;
}
