// SPDX-License-Identifier: Apache-2.0
#include "veneer/recover.h"

#include "veneer/cleanup.h"
#include "veneer/file.h"
#include "veneer/format.h"
#include "veneer/log.h"
#include "veneer/layer.h"
#include "veneer/mark.h"
#include "veneer/path.h"
#include "veneer/probe.h"
#include "veneer/source.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define RECOVER_DEPTH_MAX 1024

struct recover_file {
	file_id_t id;
	char *path;
};

static int remember(struct recover *r, file_id_t id, const char *path)
{
	struct recover_file *files;

	if ((r->n & (r->n - 1)) == 0) {
		files = realloc(r->files, sizeof(*files) * (r->n ? r->n * 2 : 1));
		if (!files)
			return -ENOMEM;
		r->files = files;
	}
	r->files[r->n].path = strdup(path);
	if (!r->files[r->n].path)
		return -ENOMEM;
	r->files[r->n++].id = id;
	return 0;
}

static void closedirp(DIR **d)
{
	if (*d)
		closedir(*d);
}

static int scan_dir(struct recover *r, const char *path, unsigned depth)
{
	_cleanup_(closedirp) DIR *d = NULL;
	struct dirent *de;
	int fd;

	if (depth > RECOVER_DEPTH_MAX)
		return -ELOOP;
	fd = path_open(r->rootfd, path, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	while ((de = readdir(d))) {
		char child[PATH_MAX];
		struct mark mark;
		struct stat st;
		int e = 0;

		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		if (snprintf(child, sizeof(child), "%s%s%s", path, *path ? "/" : "", de->d_name) >= (int)sizeof(child))
			continue;
		if (fstatat(fd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (S_ISDIR(st.st_mode))
			e = scan_dir(r, child, depth + 1);
		else if (S_ISREG(st.st_mode) && source_read_mark(fd, de->d_name, &mark, NULL) == 1)
			e = remember(r, mark.file_id, child);
		if (e < 0)
			return e;
	}
	return 0;
}

struct own_run {
	int (*own)(void *own_arg, blk_t blk, blk_t n);
	void *own_arg;
};

/* An unwritten extent holds nothing that was written: whether the block is an own hole only a synced map can
 * tell. What is allocated but in part was never written whole. */
static int own_extent(void *arg, uint64_t off, uint64_t len, bool is_unwritten)
{
	struct own_run *run = arg;
	blk_t first = (off + BLK_BYTES - 1) >> BLK_SHIFT;
	blk_t end = (off + len) >> BLK_SHIFT;

	return !is_unwritten && end > first ? run->own(run->own_arg, first, end - first) : 0;
}

static int extents_of(void *arg, file_id_t id, int (*own)(void *own_arg, blk_t blk, blk_t n), void *own_arg)
{
	struct recover *r = arg;
	struct own_run run = { own, own_arg };

	if (!r->has_true_extents)
		return -EOPNOTSUPP;
	if (!r->is_scanned) {
		int e;

		log_info("%s was not unmounted before the machine went down: rebuilding its map", r->name);
		e = scan_dir(r, "", 0);
		if (e < 0)
			return e;
		r->is_scanned = true;
	}
	for (size_t i = 0; i < r->n; i++) {
		_cleanup_(closep) int fd = -1;
		struct stat st;

		if (r->files[i].id != id)
			continue;
		fd = path_open(r->rootfd, r->files[i].path, O_RDONLY | O_NOFOLLOW, 0);
		if (fd < 0)
			return fd;
		if (fstat(fd, &st) < 0)
			return -errno;
		/* The last block is a whole one, however little of it the file uses. */
		return file_extents(fd, ((uint64_t)st.st_size + BLK_BYTES - 1) & ~(uint64_t)(BLK_BYTES - 1), own_extent, &run);
	}
	return -ENOENT;
}

void recover_init(struct recover *r, int rootfd, const char *name, bool has_true_extents)
{
	*r = (struct recover){
		.hook = { .extents = extents_of, .arg = r },
		.rootfd = rootfd,
		.name = name,
		.has_true_extents = has_true_extents,
	};
}

void recover_release(struct recover *r)
{
	for (size_t i = 0; i < r->n; i++)
		free(r->files[i].path);
	free(r->files);
	r->files = NULL;
	r->n = 0;
}

int recover_adopt(struct layer *l, struct mapfile *map, const struct mark *m)
{
	struct recover rec;
	int r;

	if ((uint32_t)mapfile_uuid(map) != m->uuid_low)
		return -ENOENT;
	recover_init(&rec, l->rootfd, l->path, probe_true_extents(l->rootfd));
	r = mapfile_file_adopt(map, m->file_id, m->lower_size, &rec.hook);
	recover_release(&rec);
	return r == -EEXIST ? 0 : r;
}
