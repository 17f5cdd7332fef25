// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/rmtree.h"

#include "veneer/base/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define RMTREE_DEPTH_MAX  64 /* descriptors held at once */
#define RMTREE_PASSES_MAX 65536 /* another process may keep making directories meanwhile */

struct removal {
	rmtree_keep_fn *keep; /* NULL: nothing stays */
	void *arg;
	int top; /* the directory to remove */
	unsigned seq; /* for names in top */
	bool has_moved; /* an entry was too deep and was moved to top */
};

/* Move a directory that is too deep to the top, for the next pass. */
static void move_up(struct removal *m, int parent_fd, const char *name)
{
	char up[16];
	int r;

	do {
		snprintf(up, sizeof(up), "#%x", m->seq++);
		r = renameat2(parent_fd, name, m->top, up, RENAME_NOREPLACE);
	} while (r < 0 && errno == EEXIST && m->seq);
	m->has_moved = m->has_moved || r == 0;
}

static bool stays(const struct removal *m, int parent_fd, const char *name)
{
	struct stat st;

	return m->keep && fstatat(parent_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       m->keep(m->arg, parent_fd, name, &st);
}

static void remove_at(struct removal *m, int parent_fd, const char *name, unsigned depth)
{
	int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	const bool is_left = stays(m, parent_fd, name);
	struct dirent *de;
	struct stat st;
	DIR *d;

	/* The mode denies access: change it, as the directory is removed anyway. */
	if (fd < 0 && errno == EACCES && fchmodat(parent_fd, name, 0700, AT_SYMLINK_NOFOLLOW) == 0)
		fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700)
		fchmod(fd, 0700);
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return;
	}
	if (depth == 0)
		m->top = fd;
	while ((de = readdir(d))) {
		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		if (de->d_type != DT_DIR && stays(m, fd, de->d_name))
			continue;
		if (unlinkat(fd, de->d_name, 0) == 0 || errno != EISDIR)
			continue;
		if (depth + 1 < RMTREE_DEPTH_MAX)
			remove_at(m, fd, de->d_name, depth + 1);
		else if (stays(m, fd, de->d_name) || unlinkat(fd, de->d_name, AT_REMOVEDIR) < 0)
			move_up(m, fd, de->d_name);
	}
	closedir(d);
	if (!is_left)
		unlinkat(parent_fd, name, AT_REMOVEDIR);
}

void rmtree_but(int parent_fd, const char *name, rmtree_keep_fn *keep, void *arg)
{
	struct removal m = { .keep = keep, .arg = arg, .top = -1 };
	unsigned npasses = 0;

	do {
		m.has_moved = false;
		remove_at(&m, parent_fd, name, 0);
	} while (m.has_moved && ++npasses < RMTREE_PASSES_MAX);
}

void rmtree(int parent_fd, const char *name)
{
	rmtree_but(parent_fd, name, NULL, NULL);
}
