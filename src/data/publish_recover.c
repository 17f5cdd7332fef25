// SPDX-License-Identifier: Apache-2.0
/* If the server is killed here, the next one begins again. A pending copy is removed when it has
 * all its names, and those names no longer lead to the lower file. */
#include "veneer/data/publish_recover.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/data/copyup.h"
#include "veneer/data/publish.h"
#include "veneer/layer/origin_xattr.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/sys/rmtree.h"
#include "veneer/union/inode_struct.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* Find the lower file of a pending copy. 1; 0: the copy has no other name yet, or does not state
 * it. */
static int read_origin(struct union_fs *t, int dirfd, const char *name, struct image_entry **ret)
{
	_cleanup_(mode_relax_endp) struct mode_relax *x = NULL;
	char origin[PATH_MAX];
	struct partial_xattr m = { .path = "" };
	struct stat st;
	int r = 0;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode) || st.st_nlink < 2)
		return 0;
	x = mode_relax_begin(dirfd, name);
	if (S_ISREG(st.st_mode))
		r = source_read_mark(dirfd, name, &m, NULL);
	/* A whole copy states it in the origin attribute. */
	if (r == 0)
		r = origin_xattr_read(dirfd, name, t->upper->is_doubted, origin);
	else if (r == 1)
		strcpy(origin, !m.is_copy && (m.is_sealed || !t->upper->is_doubted) ? m.path : "");
	if (r != 1 || !*origin)
		return r == -EUCLEAN || r >= 0 ? 0 : r;
	r = image_lookup_path(t->image, origin, ret);
	if (r == -ENOENT || r == -ENOTDIR)
		return 0;
	return r < 0 ? r : (*ret)->type == IFTODT(st.st_mode);
}

/* Give a pending copy its names. The stand-in inode holds the fields that the mirror needs. */
static int finish(struct union_fs *t, int dirfd, const char *pending)
{
	struct inode stand_in = { 0 };
	struct hardlink_set names;
	struct image_entry *e;
	int r = read_origin(t, dirfd, pending, &e);

	if (r <= 0)
		return r;
	stand_in.type = e->type;
	stand_in.ino = image_ino(t->image, e);
	r = hardlink_index_find(t, e, &names);
	for (size_t k = 0; k < names.n && r == 0; k++) {
		r = copyup_inode(t, names.v[k].dir, NULL);
		if (r == 0)
			r = publish_link(t, &stand_in, dirfd, pending, names.v[k].dir,
					 names.v[k].name);
	}
	if (r == 0)
		log_info("%s: %s has all of its %zu missing names again", t->upper->path, e->name,
			 names.n);
	hardlink_index_set_release(t, &names);
	/* The sync also covers names that were made before the server died. */
	if (r == 0 && t->can.wants_name_sync && !t->is_volatile && syncfs(dirfd) < 0)
		r = -errno;
	return r;
}

int publish_recover(struct union_fs *t)
{
	int fd = publish_open_left(t), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	if (!d) {
		r = fd == -ENOENT ? 0 : fd < 0 ? fd : -errno;
		closep(&fd);
		return r;
	}
	while (r == 0 && (de = readdir(d))) {
		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		r = finish(t, fd, de->d_name);
		if (r < 0 || unlinkat(fd, de->d_name, 0) == 0)
			continue;
		if (errno == EISDIR)
			rmtree(fd, de->d_name);
		else
			r = -errno;
	}
	closedir(d);
	return r;
}
