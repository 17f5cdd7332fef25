// SPDX-License-Identifier: Apache-2.0
#include "veneer/layer/branch_receive.h"

#include "branch_store.h"

#include "veneer/base/cleanup.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/map/mapfile.h"
#include "veneer/sys/file.h"
#include "veneer/sys/path.h"
#include "veneer/sys/rmtree.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLACE	  "receive"
#define ROOT	  "root"
#define WORK	  "work"
#define TOKEN	  "token"
#define TOKEN_NEW "token.new"

/* ---- its own directory ---- */

/* A descriptor, locked. */
static int open_place(int dir)
{
	_cleanup_(closep) int fd = branch_store_open_at(dir, PLACE);
	struct stat st, now;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	/* The only user who could have put anything there. */
	if (st.st_uid != geteuid() || st.st_mode & 022)
		return -EPERM;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	/* Another process may have put away what it had locked, and begun anew. */
	return fstatat(dir, PLACE, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_ino == st.st_ino
		       ? steal_fd(&fd)
		       : -EBUSY;
}

static int make_place(int dir)
{
	_cleanup_(closep) int old = open_place(dir);

	if (old < 0 && old != -ENOENT)
		return old;
	rmtree(dir, PLACE);
	if (mkdirat(dir, PLACE, 0700) < 0)
		return -errno;
	return open_place(dir);
}

static int open_part(int fd, const char *name, bool is_new)
{
	if (is_new && mkdirat(fd, name, 0700) < 0)
		return -errno;
	return branch_store_open_at(fd, name);
}

/* What is made from now on is not in the token. */
static int drop_token(int fd)
{
	if (unlinkat(fd, TOKEN, 0) < 0)
		return errno == ENOENT ? 0 : -errno;
	return fsync(fd) < 0 ? -errno : 0;
}

int branch_receive_begin(int rootfd, bool goes_on, struct branch_receive *ret)
{
	int r;

	*ret = BRANCH_RECEIVE_NONE;
	ret->dir = goes_on ? branch_store_open_all(rootfd) : branch_dir_make(rootfd);
	if (ret->dir < 0)
		return ret->dir;
	r = ret->fd = goes_on ? open_place(ret->dir) : make_place(ret->dir);
	if (r >= 0)
		r = ret->root = open_part(ret->fd, ROOT, !goes_on);
	if (r >= 0)
		r = ret->work = open_part(ret->fd, WORK, !goes_on);
	if (r >= 0 && goes_on)
		r = drop_token(ret->fd);
	return r < 0 ? r : 0;
}

void branch_receive_release(struct branch_receive *b)
{
	closep(&b->work);
	closep(&b->root);
	closep(&b->fd);
	closep(&b->dir);
}

static void remove_place(int rootfd, int dir)
{
	rmtree(dir, PLACE);
	/* Not if there are snapshots. */
	branch_dir_unmake(rootfd);
}

void branch_receive_cancel(int rootfd, struct branch_receive *b)
{
	if (b->fd >= 0)
		remove_place(rootfd, b->dir);
}

int branch_receive_abort(int rootfd)
{
	_cleanup_(closep) int dir = branch_store_open_all(rootfd);
	_cleanup_(closep) int fd = dir < 0 ? dir : open_place(dir);

	if (fd < 0)
		return fd;
	remove_place(rootfd, dir);
	return 0;
}

/* ---- how far it is ---- */

int branch_receive_keep(const struct branch_receive *b, const char *token)
{
	_cleanup_(closep) int fd = -1;
	int r;

	unlinkat(b->fd, TOKEN_NEW, 0);
	fd = openat(b->fd, TOKEN_NEW, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	r = fd < 0 ? -errno : file_pwrite(fd, token, strlen(token), 0);
	if (r == 0 && (fsync(fd) < 0 || renameat(b->fd, TOKEN_NEW, b->fd, TOKEN) < 0))
		r = -errno;
	return r;
}

int branch_receive_token(int rootfd, char ret[BRANCH_RECEIVE_TOKEN_MAX])
{
	_cleanup_(closep) int dir = branch_store_open_all(rootfd);
	_cleanup_(closep) int place = dir < 0 ? dir : branch_store_open_at(dir, PLACE), fd = -1;
	ssize_t n;

	*ret = '\0';
	if (place < 0)
		return place == -ENOENT ? 0 : place;
	fd = openat(place, TOKEN, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	n = file_pread(fd, ret, BRANCH_RECEIVE_TOKEN_MAX - 1, 0);
	ret[n < 0 ? 0 : n] = '\0';
	return n < 0 ? (int)n : 0;
}

/* ---- the end ---- */

int branch_receive_is_empty(int rootfd)
{
	int fd = path_open_quiet(rootfd, "", O_RDONLY | O_DIRECTORY), is_empty = 1;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;
	int r = fd;

	if (!d) {
		closep(&fd);
		return r < 0 ? r : -ENOMEM;
	}
	errno = 0;
	while ((de = readdir(d)))
		is_empty &= !strcmp(de->d_name, ".") || !strcmp(de->d_name, "..") ||
			    !strcmp(de->d_name, BRANCH_DIR_NAME) ||
			    !strcmp(de->d_name, MAPFILE_NAME);
	r = errno ? -errno : is_empty;
	closedir(d);
	return r;
}

/* The rest of a crash, which no chain names. */
static int name_root(struct branch_receive *b, uint64_t id)
{
	const struct branch_store_place place = branch_store_place_of(id, "");

	rmtree(b->dir, place.name);
	return renameat2(b->fd, ROOT, b->dir, place.name, RENAME_NOREPLACE) < 0 ? -errno : 0;
}

/* The next mount removes the rest of an interrupted merge in it. */
static int load(int rootfd, int dir, struct branch_chain *ret)
{
	_cleanup_(branch_chain_release) struct branch_chain raw = { 0 };
	int r = branch_store_read(dir, &raw);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = branch_dir_load(rootfd, ret);
	return r == 0 && raw.n != ret->n ? -EBUSY : r;
}

static int enter(int rootfd, struct branch_receive *b, const struct branch_chain_entry *e,
		 bool becomes_head)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	int r = load(rootfd, b->dir, &c);

	if (r == 0 && becomes_head && c.head != e->parent)
		r = -EBUSY;
	r = r ?: branch_chain_add(&c, e);
	if (becomes_head)
		c.head = e->id;
	r = r ?: name_root(b, e->id);
	if (r < 0)
		return r;
	/* No chain says more than what is on the disk. */
	if (fsync(b->dir) < 0)
		r = -errno;
	if (r == 0 && becomes_head)
		branch_dir_adopt(rootfd, e->id);
	r = r ?: branch_store_write(b->dir, &c, false);
	/* So that it can be published once more. */
	if (r < 0)
		renameat2(b->dir, branch_store_place_of(e->id, "").name, b->fd, ROOT,
			  RENAME_NOREPLACE);
	return r;
}

int branch_receive_publish(int rootfd, struct branch_receive *b, const struct branch_chain_entry *e,
			   bool becomes_head)
{
	_cleanup_(closep) int lock = branch_dir_lock(rootfd);
	int r = lock < 0 ? lock : enter(rootfd, b, e, becomes_head);

	if (r == 0)
		rmtree(b->dir, PLACE);
	return r;
}
