// SPDX-License-Identifier: Apache-2.0
/* A snapshot is filled as "<id>.new" and gets its name when the chain has it: so the chain tells a
 * later mount whether to finish the snapshot or to take it back. */
#include "veneer/layer/branch_dir.h"

#include "branch_store.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/layer/branch_merge.h"
#include "veneer/map/mapfile.h"
#include "veneer/sys/file.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/sys/path.h"
#include "veneer/sys/probe.h"
#include "veneer/sys/rmtree.h"
#include "veneer/sys/xattr.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#define NEW BRANCH_STORE_NEW
#define OLD ".old"

#define LOCK_TRIES    200
#define LOCK_RETRY_US 5000u

/* ---- reading ---- */

static int load(int dir, struct branch_chain *ret)
{
	int r = branch_store_read(dir, ret);

	return r ?: branch_merge_look(dir, ret);
}

int branch_dir_load(int rootfd, struct branch_chain *ret)
{
	_cleanup_(closep) int dir = branch_store_open_all(rootfd);

	return dir < 0 ? dir : load(dir, ret);
}

int branch_dir_open(int rootfd, uint64_t id)
{
	_cleanup_(closep) int dir = branch_store_open_all(rootfd);

	return dir < 0 ? dir : branch_store_open_root(dir, id);
}

static char *path_of(const char *root, uint64_t id, const char *suffix)
{
	char *ret;

	return asprintf(&ret, "%s/" BRANCH_DIR_NAME "/%s", root,
			branch_store_place_of(id, suffix).name) < 0
		       ? NULL
		       : ret;
}

char *branch_dir_path(const char *root, uint64_t id)
{
	_cleanup_(freep) char *own = path_of(root, id, ""), *new = path_of(root, id, NEW);
	struct stat st;

	if (!own || !new)
		return NULL;
	/* As branch_store_open_root. */
	return lstat(own, &st) < 0 && errno == ENOENT && lstat(new, &st) == 0 ? steal_ptr(&new)
									      : steal_ptr(&own);
}

/* ---- moving ---- */

struct names {
	char **names;
	size_t n;
};

static void names_release(struct names *l)
{
	for (size_t k = 0; k < l->n; k++)
		free(l->names[k]);
	free(l->names);
}

static int add_name(struct names *l, const char *name)
{
	char *copy = strdup(name);
	int r = copy ? array_grow(&l->names, l->n) : -ENOMEM;

	if (r < 0)
		free(copy);
	else
		l->names[l->n++] = copy;
	return r;
}

/* The names that move, all but the map's: the directory must not change while it is listed. */
static int list(int dirfd, struct names *ret)
{
	/* Its access time may hold the root's future one (note_time). */
	int fd = path_open_quiet(dirfd, "", O_RDONLY | O_DIRECTORY), r = 0;
	struct dirent *de;
	DIR *d;

	if (fd < 0)
		return fd;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	for (errno = 0; r == 0 && (de = readdir(d)); errno = 0)
		if (strcmp(de->d_name, ".") && strcmp(de->d_name, "..") &&
		    strcmp(de->d_name, BRANCH_DIR_NAME) && strcmp(de->d_name, MAPFILE_NAME))
			r = add_name(ret, de->d_name);
	if (r == 0 && errno)
		r = -errno;
	closedir(d);
	return r;
}

static bool is_same_map(int dirfd, int other)
{
	struct stat st, st2;

	return fstatat(dirfd, MAPFILE_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstatat(other, MAPFILE_NAME, &st2, AT_SYMLINK_NOFOLLOW) == 0 &&
	       st.st_dev == st2.st_dev && st.st_ino == st2.st_ino;
}

/* Everything in one directory goes to the other. The map gets a second name there before, and loses
 * this one in drop_map, so that wherever a partial file is, its map is there, too. A root's map
 * loses its name when the chain has the snapshot: a snapshot that is taken back finds its map
 * there. */
static int move_all(int from, int to)
{
	_cleanup_(names_release) struct names l = { 0 };
	int r = 0;

	if (linkat(from, MAPFILE_NAME, to, MAPFILE_NAME, 0) < 0 && errno != ENOENT &&
	    !(errno == EEXIST && is_same_map(from, to)))
		return -errno;
	r = list(from, &l);
	for (size_t k = 0; k < l.n && r == 0; k++)
		r = mode_relax_rename(from, l.names[k], to, l.names[k], RENAME_NOREPLACE);
	return r;
}

static int drop_map(int dirfd)
{
	return unlinkat(dirfd, MAPFILE_NAME, 0) < 0 && errno != ENOENT ? -errno : 0;
}

/* As the root was, so that it looks the same where a mount shows it as its own; but for its times,
 * and for its mode, which must let its owner in. */
static int copy_root(int rootfd, const struct stat *st, int to)
{
	struct stat own;

	if (fstat(to, &own) < 0 || ((own.st_uid != st->st_uid || own.st_gid != st->st_gid) &&
				    fchown(to, st->st_uid, st->st_gid) < 0))
		return -errno;
	if (fchmod(to, (st->st_mode & 07777) | 0700) < 0)
		return -errno;
	return xattr_copy(rootfd, to, NULL);
}

/* Of a root that entries were moved from or to: programs see no other time of it. */
static void restore_times(int rootfd, const struct stat *st)
{
	const struct timespec times[2] = { st->st_atim, st->st_mtim };

	if (futimens(rootfd, times) < 0)
		log_debug("cannot restore the times of an upper's root: %s", strerror(errno));
}

/* Moves do not change a directory's access time: in a snapshot's it is the root's modification
 * time, which branch_dir_recover needs. */
static void note_time(int to, const struct stat *root)
{
	struct stat noted = *root;

	noted.st_atim = root->st_mtim;
	restore_times(to, &noted);
}

/* A root that entries were moved from before a crash. */
static void recover_time(int rootfd, const struct stat *snapshot)
{
	struct stat noted = *snapshot;

	noted.st_mtim = snapshot->st_atim;
	restore_times(rootfd, &noted);
}

static void drop_other_xattrs(int from, int to)
{
	_cleanup_(freep) char *names = NULL;
	ssize_t len = xattr_list_alloc(to, "", &names);

	for (const char *s = names; len > 0 && s < names + len; s += strlen(s) + 1)
		if (strncmp(s, "security.", strlen("security.")) != 0 &&
		    xattr_get(from, "", s, NULL, 0) == -ENODATA)
			xattr_remove(to, "", s);
}

/* A live part that went back has the root of its parent. The names are there already, so an
 * attribute that cannot be set is only logged. */
static void adopt_root(int rootfd, int dir, uint64_t head)
{
	_cleanup_(closep) int from =
		branch_store_open_at(dir, branch_store_place_of(head, "").name);
	struct stat st, own;
	int r = from < 0 ? from : fstat(from, &st) < 0 || fstat(rootfd, &own) < 0 ? -errno : 0;

	if (r == 0 && (own.st_uid != st.st_uid || own.st_gid != st.st_gid) &&
	    fchown(rootfd, st.st_uid, st.st_gid) < 0)
		r = -errno;
	r = r ?: mode_relax_chmod(rootfd, st.st_mode & 07777);
	if (r == 0) {
		drop_other_xattrs(from, rootfd);
		r = xattr_copy(from, rootfd, NULL);
		restore_times(rootfd, &st);
	}
	if (r < 0)
		log_error("an upper's root cannot get the attributes of its snapshot's: %s",
			  strerror(-r));
}

void branch_dir_adopt(int rootfd, uint64_t id)
{
	_cleanup_(closep) int dir = branch_store_open_all(rootfd);

	if (dir >= 0)
		adopt_root(rootfd, dir, id);
}

/* ---- the chain ---- */

static int draw_id(const struct branch_chain *c, uint64_t *ret)
{
	do {
		if (getrandom(ret, sizeof(*ret), 0) != sizeof(*ret))
			return -EIO;
	} while (!*ret || branch_chain_by_id(c, *ret));
	return 0;
}

/* The time in UTC, and a number if there is one of this second already. */
static void name_by_time(const struct branch_chain *c, time_t now, char *name)
{
	char base[32];
	struct tm tm;

	gmtime_r(&now, &tm);
	strftime(base, sizeof(base), "%Y%m%d-%H%M%S", &tm);
	strcpy(name, base);
	for (unsigned k = 2; branch_chain_by_name(c, name); k++)
		snprintf(name, BRANCH_CHAIN_NAME_MAX + 1, "%s-%u", base, k);
}

int branch_dir_plan(struct branch_chain *c, char name[BRANCH_CHAIN_NAME_MAX + 1], uint64_t *ret_id)
{
	struct branch_chain_entry e = { .parent = c->head };
	struct timespec now;
	int r = draw_id(c, &e.id);

	if (r < 0)
		return r;
	clock_gettime(CLOCK_REALTIME, &now);
	e.time_ns = now.tv_sec * 1000000000 + now.tv_nsec;
	if (!*name)
		name_by_time(c, now.tv_sec, name);
	memcpy(e.name, name, BRANCH_CHAIN_NAME_MAX + 1);
	r = branch_chain_add(c, &e);
	if (r == 0)
		*ret_id = c->head = e.id;
	return r;
}

/* ---- taking one ---- */

/* Entries that moved are on the disk before the chain says so, where the file system does not see
 * to the order itself. */
static bool wants_settling(int rootfd, bool is_volatile)
{
	return !is_volatile && (!probe_is_ordered(rootfd) || probe_wants_whole_sync(rootfd));
}

static int settle(int rootfd, bool is_volatile)
{
	return wants_settling(rootfd, is_volatile) && syncfs(rootfd) < 0 ? -errno : 0;
}

/* Likewise the former root: once the snapshot has its name no later mount repairs it. */
static void settle_root(int rootfd, bool is_volatile)
{
	if (wants_settling(rootfd, is_volatile) && fsync(rootfd) < 0)
		log_error("cannot sync an upper's root: %s", strerror(errno));
}

/* The directory of all snapshots. Each snapshot would inherit the attributes that this one inherits
 * from the root. The root keeps its times. */
int branch_dir_make(int rootfd)
{
	struct stat st;
	int fd;

	if (fstat(rootfd, &st) < 0)
		return -errno;
	if (mkdirat(rootfd, BRANCH_DIR_NAME, 0700) == 0)
		restore_times(rootfd, &st);
	else if (errno != EEXIST)
		return -errno;
	fd = branch_store_open_all(rootfd);
	if (fd >= 0) {
		xattr_remove(fd, "", "system.posix_acl_default");
		xattr_remove(fd, "", "system.posix_acl_access");
	}
	return fd;
}

void branch_dir_unmake(int rootfd)
{
	struct stat st;

	if (fstat(rootfd, &st) == 0 && unlinkat(rootfd, BRANCH_DIR_NAME, AT_REMOVEDIR) == 0)
		restore_times(rootfd, &st);
}

static int make_dir(int rootfd, const struct stat *st, int dir, uint64_t id)
{
	const struct branch_store_place p = branch_store_place_of(id, NEW);
	int to, r;

	if (mkdirat(dir, p.name, 0700) < 0)
		return -errno;
	to = branch_store_open_at(dir, p.name);
	r = to < 0 ? to : copy_root(rootfd, st, to);
	if (r == 0)
		return to;
	closep(&to);
	unlinkat(dir, p.name, AT_REMOVEDIR);
	return r;
}

/* branch_dir_recover finds the names that cannot be moved back. */
static void take_back(int rootfd, int dir, int to, uint64_t id)
{
	int r = move_all(to, rootfd) ?: drop_map(to);

	if (r < 0)
		log_error("cannot take back a snapshot that failed: %s", strerror(-r));
	else
		unlinkat(dir, branch_store_place_of(id, NEW).name, AT_REMOVEDIR);
}

static int fill(int rootfd, const struct stat *st, int dir, uint64_t id,
		const struct branch_chain *next, bool is_volatile)
{
	_cleanup_(closep) int to = make_dir(rootfd, st, dir, id);
	int r;

	if (to < 0)
		return to;
	note_time(to, st);
	r = move_all(rootfd, to);
	note_time(to, st);
	r = r ?: settle(rootfd, is_volatile);
	r = r ?: branch_store_write(dir, next, is_volatile);
	if (r < 0) {
		take_back(rootfd, dir, to, id);
		return r;
	}
	/* It is taken; the next mount does it before anything is written. */
	r = drop_map(rootfd);
	if (r < 0)
		log_error("cannot remove the block map of an upper that became a snapshot: %s",
			  strerror(-r));
	return 0;
}

int branch_dir_take(int rootfd, uint64_t id, const struct branch_chain *next, bool is_volatile)
{
	MODE_RELAX_SCOPE(rootfd, "");
	_cleanup_(closep) int dir = -1;
	struct stat st;
	int r = mode_relax_stat(rootfd, "", AT_EMPTY_PATH, &st);

	if (r < 0)
		return r;
	dir = branch_dir_make(rootfd);
	if (dir < 0)
		return dir;
	r = fill(rootfd, &st, dir, id, next, is_volatile);
	restore_times(rootfd, &st);
	if (r == 0 && next->head != id)
		adopt_root(rootfd, dir, next->head);
	settle_root(rootfd, is_volatile);
	/* The snapshot is taken, under either name; the next mount repairs the name. */
	if (r == 0 && renameat2(dir, branch_store_place_of(id, NEW).name, dir,
				branch_store_place_of(id, "").name, RENAME_NOREPLACE) < 0)
		log_error("cannot name a snapshot: %s", strerror(errno));
	return r;
}

/* ---- removing one ---- */

int branch_dir_lock(int rootfd)
{
	_cleanup_(closep) int dir = branch_store_open_all(rootfd);

	if (dir < 0)
		return dir;
	for (int k = 0; flock(dir, LOCK_EX | LOCK_NB) < 0; k++) {
		if (errno != EWOULDBLOCK || k == LOCK_TRIES)
			return errno == EWOULDBLOCK ? -EBUSY : -errno;
		usleep(LOCK_RETRY_US);
	}
	return steal_fd(&dir);
}

int branch_dir_hold(int snapshot_fd)
{
	/* Where there are no locks nobody can tell. */
	return flock(snapshot_fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK ? -EBUSY : 0;
}

int branch_dir_is_held(int rootfd)
{
	_cleanup_(branch_chain_release) struct branch_chain chain = { 0 };
	int r = branch_dir_load(rootfd, &chain);

	for (size_t k = 0; r == 0 && k < chain.n; k++) {
		_cleanup_(closep) int fd = branch_dir_open(rootfd, chain.entries[k].id);

		if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
			return 1;
	}
	return r == -ENOENT ? 0 : r;
}

/* It has another name while the chain changes: after a crash the chain decides whether it is
 * removed or restored. */
static int remove_one(int dir, uint64_t id, const struct branch_chain *next)
{
	const struct branch_store_place old = branch_store_place_of(id, OLD),
					own = branch_store_place_of(id, "");
	int r;

	if (renameat2(dir, own.name, dir, old.name, RENAME_NOREPLACE) < 0)
		return -errno;
	r = branch_store_write(dir, next, false);
	if (r < 0) {
		renameat2(dir, old.name, dir, own.name, RENAME_NOREPLACE);
		return r;
	}
	rmtree(dir, old.name);
	return 0;
}

int branch_dir_delete(int rootfd, const char *name)
{
	_cleanup_(branch_chain_release) struct branch_chain chain = { 0 };
	_cleanup_(closep) int dir = branch_store_open_all(rootfd), fd = -1;
	const struct branch_chain_entry *e;
	uint64_t id;
	int r = dir < 0 ? dir : load(dir, &chain);

	if (r < 0)
		return r;
	e = branch_chain_by_name(&chain, name);
	if (!e)
		return -ENOENT;
	id = e->id;
	r = branch_chain_remove(&chain, id);
	if (r < 0)
		return r;
	fd = branch_store_open_at(dir, branch_store_place_of(id, "").name);
	if (fd < 0)
		return fd == -ENOENT ? -EUCLEAN : fd;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EUSERS : -errno;
	return remove_one(dir, id, &chain);
}

/* ---- after a crash ---- */

static int recover_old(int dir, uint64_t id, const struct branch_chain *chain)
{
	const struct branch_store_place old = branch_store_place_of(id, OLD);

	if (!branch_chain_by_id(chain, id)) {
		rmtree(dir, old.name);
		return 0;
	}
	return renameat2(dir, old.name, dir, branch_store_place_of(id, "").name, RENAME_NOREPLACE) <
			       0
		       ? -errno
		       : 0;
}

static int recover_taken(int rootfd, int dir, uint64_t id, const struct branch_chain *chain)
{
	const struct branch_store_place p = branch_store_place_of(id, NEW);
	struct stat st;

	if (chain->head && chain->head != id)
		adopt_root(rootfd, dir, chain->head);
	else if (fstatat(dir, p.name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		recover_time(rootfd, &st);
	settle_root(rootfd, false);
	return renameat2(dir, p.name, dir, branch_store_place_of(id, "").name, RENAME_NOREPLACE) < 0
		       ? -errno
		       : 0;
}

/* An empty one has no time yet, and the root has its own. */
static int recover_one(int rootfd, int dir, uint64_t id, const struct branch_chain *chain)
{
	const struct branch_store_place p = branch_store_place_of(id, NEW);
	_cleanup_(names_release) struct names l = { 0 };
	_cleanup_(closep) int from = -1;
	struct stat st;
	int r;

	if (branch_chain_by_id(chain, id))
		return recover_taken(rootfd, dir, id, chain);
	from = branch_store_open_at(dir, p.name);
	r = from < 0 ? from : fstat(from, &st) < 0 ? -errno : list(from, &l);
	r = r < 0 ? r : move_all(from, rootfd) ?: drop_map(from);
	if (r == 0 && l.n)
		recover_time(rootfd, &st);
	/* Of one that was made of others, and becomes the live part. */
	if (r == 0)
		rmtree(from, BRANCH_DIR_NAME);
	if (r == 0 && unlinkat(dir, p.name, AT_REMOVEDIR) < 0)
		r = -errno;
	return r;
}

int branch_dir_dissolve(int rootfd)
{
	MODE_RELAX_SCOPE(rootfd, "");
	_cleanup_(branch_chain_release) struct branch_chain chain = { 0 };
	_cleanup_(closep) int dir = branch_store_open_all(rootfd), fd = -1;
	const struct branch_chain none = { 0 };
	int r = dir < 0 ? dir : load(dir, &chain);
	uint64_t id;

	if (r < 0 || chain.n != 1)
		return r < 0 ? r : -EBUSY;
	id = chain.head;
	fd = branch_store_open_at(dir, branch_store_place_of(id, "").name);
	if (fd < 0)
		return fd == -ENOENT ? -EUCLEAN : fd;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EUSERS : -errno;
	/* As an unfinished one: entries of a snapshot that the chain lacks move back. */
	if (renameat2(dir, branch_store_place_of(id, "").name, dir,
		      branch_store_place_of(id, NEW).name, RENAME_NOREPLACE) < 0)
		return -errno;
	r = branch_store_write(dir, &none, false);
	if (r < 0)
		renameat2(dir, branch_store_place_of(id, NEW).name, dir,
			  branch_store_place_of(id, "").name, RENAME_NOREPLACE);
	return r ?: recover_one(rootfd, dir, id, &none);
}

/* Is the map of the root that of a snapshot? 1, 0 or -errno. */
static int is_map_taken(int rootfd, int dir, const struct branch_chain *chain)
{
	struct stat st;

	if (fstatat(rootfd, MAPFILE_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_nlink < 2)
		return 0;
	for (size_t k = 0; k < chain->n; k++) {
		_cleanup_(closep) int fd = branch_store_open_root(dir, chain->entries[k].id);

		if (fd >= 0 && is_same_map(rootfd, fd))
			return 1;
		if (fd < 0 && fd != -ENOENT)
			return fd;
	}
	return 0;
}

/* A crash came before the map lost its name in the root, or the file system keeps no order and
 * brought the name back. That map must not get the blocks of the live part. */
static int recover_map(int rootfd, int dir, const struct branch_chain *chain)
{
	struct stat root;
	int r = is_map_taken(rootfd, dir, chain);

	if (r <= 0 || fstat(rootfd, &root) < 0)
		return r;
	r = drop_map(rootfd);
	restore_times(rootfd, &root);
	return r;
}

int branch_dir_is_interrupted(int rootfd, const struct branch_chain *chain)
{
	_cleanup_(closep) int dir = branch_store_open_all(rootfd);
	uint64_t pending;
	int r = dir < 0 ? dir : branch_dir_pending(rootfd, chain, &pending);

	if (dir == -ENOENT)
		return 0;
	return r < 0 ? r : pending ? 1 : is_map_taken(rootfd, dir, chain);
}

int branch_dir_pending(int rootfd, const struct branch_chain *chain, uint64_t *ret)
{
	_cleanup_(closep) int dir = branch_store_open_all(rootfd);
	_cleanup_(names_release) struct names l = { 0 };
	int r = dir == -ENOENT ? 0 : dir < 0 ? dir : list(dir, &l);

	*ret = 0;
	for (size_t k = 0; k < l.n; k++) {
		uint64_t id;

		if (!branch_store_is_place(l.names[k], NEW, &id) || branch_chain_by_id(chain, id))
			continue;
		if (*ret)
			return -EUCLEAN;
		*ret = id;
	}
	return r < 0 ? r : 0;
}

/* An empty one may have no time yet, as in recover_one. */
void branch_dir_noted_time(int dirfd, struct timespec *ret)
{
	_cleanup_(names_release) struct names l = { 0 };
	struct stat st;

	if (fstat(dirfd, &st) == 0 && list(dirfd, &l) == 0 && l.n)
		*ret = st.st_atim;
}

void branch_dir_taken_time(int rootfd, const struct branch_chain *chain, struct timespec *ret)
{
	_cleanup_(closep) int dir = branch_store_open_all(rootfd);
	_cleanup_(names_release) struct names l = { 0 };
	struct stat st;
	uint64_t id;

	if (dir < 0 || !chain->head || list(dir, &l) < 0)
		return;
	for (size_t k = 0; k < l.n; k++) {
		if (!branch_store_is_place(l.names[k], NEW, &id) || !branch_chain_by_id(chain, id))
			continue;
		if (chain->head == id && fstatat(dir, l.names[k], &st, AT_SYMLINK_NOFOLLOW) == 0)
			*ret = st.st_atim;
		else if (chain->head != id &&
			 fstatat(dir, branch_store_place_of(chain->head, "").name, &st,
				 AT_SYMLINK_NOFOLLOW) == 0)
			*ret = st.st_mtim;
	}
}

/* is_kept: of the snapshots in the chain, or of the others. */
static int recover_each(int rootfd, int dir, const struct branch_chain *chain, bool is_kept)
{
	_cleanup_(names_release) struct names l = { 0 };
	int r = list(dir, &l);

	for (size_t k = 0; k < l.n && r == 0; k++) {
		uint64_t id;

		if (branch_store_is_place(l.names[k], NEW, &id) &&
		    is_kept == !!branch_chain_by_id(chain, id))
			r = recover_one(rootfd, dir, id, chain);
		else if (branch_store_is_place(l.names[k], OLD, &id) &&
			 is_kept == !!branch_chain_by_id(chain, id))
			r = recover_old(dir, id, chain);
	}
	return r;
}

/* The replaced snapshots take room, and files show a link too many. */
static int recover_merge(int dir, const struct branch_chain *chain, bool is_optional)
{
	int r = branch_merge_recover(dir, chain);

	if (r == 0 || r == -ENOMEM || !is_optional)
		return r;
	log_warn("snapshots that were merged cannot be put away before the next mount: %s",
		 strerror(-r));
	return 0;
}

/* A merge is finished when each snapshot of the chain has its name. */
static int recover(int rootfd, bool is_merge_optional)
{
	MODE_RELAX_SCOPE(rootfd, "");
	_cleanup_(closep) int dir = branch_store_open_all(rootfd);
	_cleanup_(branch_chain_release) struct branch_chain chain = { 0 };
	int r;

	if (dir < 0)
		return dir == -ENOENT ? 0 : dir;
	r = load(dir, &chain);
	if (r == -ENOENT)
		r = 0;
	r = r ?: recover_each(rootfd, dir, &chain, true);
	r = r ?: recover_merge(dir, &chain, is_merge_optional);
	r = r ?: recover_each(rootfd, dir, &chain, false);
	return r ?: recover_map(rootfd, dir, &chain);
}

int branch_dir_recover(int rootfd)
{
	return recover(rootfd, false);
}

int branch_dir_recover_unmerged(int rootfd)
{
	return recover(rootfd, true);
}
