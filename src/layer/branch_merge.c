// SPDX-License-Identifier: Apache-2.0
/* The new snapshot is made as "squash". Its hidden directory has an empty one for each snapshot
 * that it stands for, and one called "new" while work is left. The exchange with the topmost is the
 * moment from which it counts; "squash" is the old one then. The trees of the replaced snapshots
 * move into the empty directories, and lose their unused files there.
 */
#include "veneer/layer/branch_merge.h"

#include "branch_store.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/layer/snapshot_links.h"
#include "veneer/layer/snapshot_number.h"
#include "veneer/sys/dir_walk.h"
#include "veneer/sys/rmtree.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORK  "squash"
#define FRESH "new"

/* ---- which ---- */

static size_t count_standing_on(const struct branch_chain *c, uint64_t id)
{
	size_t n = c->head == id;

	for (size_t k = 0; k < c->n; k++)
		n += c->entries[k].parent == id;
	return n;
}

static bool is_last(const struct branch_chain *c, const struct branch_chain_entry *e,
		    uint64_t bottom)
{
	return !e->parent || (bottom ? e->id == bottom : count_standing_on(c, e->parent) > 1);
}

int branch_merge_plan(const struct branch_chain *c, const char *from, const char *to, uint64_t *ret,
		      size_t *ret_n)
{
	const struct branch_chain_entry *e = to ? branch_chain_by_name(c, to)
						: branch_chain_by_id(c, c->head);
	const struct branch_chain_entry *bottom = from ? branch_chain_by_name(c, from) : NULL;
	size_t n = 0;

	if (!e || (from && !bottom))
		return -ENOENT;
	for (;;) {
		if (n && count_standing_on(c, e->id) > 1)
			return -EBUSY;
		ret[n++] = e->id;
		if (is_last(c, e, bottom ? bottom->id : 0))
			break;
		e = branch_chain_by_id(c, e->parent);
	}
	*ret_n = n;
	return bottom && e != bottom ? -ENOTDIR : n < 2 ? -EALREADY : 0;
}

/* The ancestors of the live part, top first. */
static size_t list_chain(const struct branch_chain *c, uint64_t *ret)
{
	const struct branch_chain_entry *e = branch_chain_by_id(c, c->head);
	size_t n = 0;

	for (; e && n < c->n; e = branch_chain_by_id(c, e->parent))
		ret[n++] = e->id;
	return n;
}

size_t branch_merge_choose_oldest(const struct branch_chain *c, size_t keep, uint64_t *ret)
{
	const size_t n = list_chain(c, ret);

	if (!keep || n <= 2 * keep)
		return 0;
	for (size_t bottom = n - 1; bottom >= keep; bottom--) {
		size_t top = bottom;

		while (top >= keep && count_standing_on(c, ret[top]) == 1)
			top--;
		if (top < bottom) {
			memmove(ret, ret + top, (bottom - top + 1) * sizeof(*ret));
			return bottom - top + 1;
		}
	}
	return 0;
}

/* ---- the directory of one ---- */

static int open_holder(int dir, uint64_t id)
{
	_cleanup_(closep) int root = branch_store_open_root(dir, id);

	return root < 0 ? root : branch_store_open_at(root, BRANCH_DIR_NAME);
}

/* 1, 0 or -errno. */
static int is_there(int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return 1;
	return errno == ENOENT ? 0 : -errno;
}

/* An object that a forger put in its place is no snapshot. */
static bool is_none(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP;
}

/* A snapshot that stands for others, and of which something is left to be done: 1 with its
 * directory, 0 or -errno. */
static int find_fresh(int dir, uint64_t id, int *ret_holder)
{
	_cleanup_(closep) int holder = open_holder(dir, id);
	int r = is_none(holder) ? 0 : holder < 0 ? holder : is_there(holder, FRESH);

	if (r == 1)
		*ret_holder = steal_fd(&holder);
	return r;
}

static int open_work_holder(int dir)
{
	_cleanup_(closep) int work = branch_store_open_at(dir, WORK);

	return work < 0 ? work : branch_store_open_at(work, BRANCH_DIR_NAME);
}

/* Is "squash" being filled, and not one that was replaced? 1, 0 or -errno. */
static int is_being_filled(int dir)
{
	_cleanup_(closep) int holder = open_work_holder(dir);

	return is_none(holder) ? 0 : holder < 0 ? holder : is_there(holder, FRESH);
}

struct id_list {
	uint64_t *v;
	size_t n, cap;
};

static void id_list_release(struct id_list *l)
{
	free(l->v);
}

static int add_id(struct id_list *l, uint64_t id)
{
	int r = array_reserve(&l->v, &l->cap, l->n + 1);

	if (r == 0)
		l->v[l->n++] = id;
	return r;
}

/* Those for which the holder has a directory. */
static int list_ids(int holder, struct id_list *ret)
{
	int fd = branch_store_open_at(holder, "."), r = 0;
	struct dirent *de;
	uint64_t id;
	DIR *d;

	if (fd < 0)
		return fd;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	for (errno = 0; r == 0 && (de = readdir(d)); errno = 0)
		if (branch_store_is_place(de->d_name, "", &id))
			r = add_id(ret, id);
	r = r == 0 && errno ? -errno : r;
	closedir(d);
	return r;
}

/* ---- the numbers that it shows ---- */

static int note_number(void *arg, int dirfd, const char *name, const struct stat *st)
{
	uint64_t number;

	if (snapshot_number_read(dirfd, name, false, &number) && add_id(arg, number) < 0)
		return -ENOMEM;
	return S_ISDIR(st->st_mode) && strcmp(name, BRANCH_DIR_NAME) != 0;
}

static int miss_number(void *arg, const char *name, int error)
{
	(void)arg;
	(void)name;
	return error;
}

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Without a name nothing would keep the number from being another file's. */
static bool is_shown(void *arg, int dirfd, const char *name, const struct stat *st)
{
	const struct id_list *l = arg;
	const uint64_t ino = st->st_ino;
	struct stat own;
	int fd;

	if (!l->n || !bsearch(&ino, l->v, l->n, sizeof(ino), by_value))
		return false;
	/* With another name it has the number there. */
	if (S_ISDIR(st->st_mode) || st->st_nlink > 1)
		return S_ISDIR(st->st_mode);
	fd = S_ISREG(st->st_mode) && st->st_blocks
		     ? openat(dirfd, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
		     : -1;
	/* Another may have its name by now; and a lease is given only where nobody has it open, the
	 * kernel for a program included. */
	if (fd >= 0 && fstat(fd, &own) == 0 && own.st_dev == st->st_dev && own.st_ino == ino &&
	    own.st_nlink == 1 && fcntl(fd, F_SETLEASE, F_WRLCK) == 0 && ftruncate(fd, 0) < 0)
		log_debug("cannot empty a file of a merged snapshot: %s", strerror(errno));
	closep(&fd);
	return true;
}

/* With another name a file that could not be removed would show one link too many. */
static int find_left(void *arg, int dirfd, const char *name, const struct stat *st)
{
	return S_ISDIR(st->st_mode) ? 1 : is_shown(arg, dirfd, name, st) ? 0 : -EIO;
}

static int prune(int dir, uint64_t id, int holder, const struct id_list *replaced)
{
	static const struct dir_walk_hooks left = { .entry = find_left,
						    .miss = miss_number,
						    .is_ours = true };
	static const struct dir_walk_hooks hooks = { .entry = note_number,
						     .miss = miss_number,
						     .is_ours = true };
	_cleanup_(id_list_release) struct id_list shown = { 0 };
	_cleanup_(closep) int root = branch_store_open_at(dir, branch_store_place_of(id, "").name);
	int r = root < 0 ? root : dir_walk(root, &hooks, &shown);

	if (r < 0)
		return r;
	if (shown.n)
		qsort(shown.v, shown.n, sizeof(*shown.v), by_value);
	for (size_t k = 0; k < replaced->n; k++)
		rmtree_but(holder, branch_store_place_of(replaced->v[k], "").name, is_shown,
			   &shown);
	return dir_walk(holder, &left, &shown);
}

/* ---- from the exchange on ---- */

static int move(int dir, const char *from, int holder, uint64_t id)
{
	return renameat(dir, from, holder, branch_store_place_of(id, "").name) < 0 &&
			       errno != ENOENT
		       ? -errno
		       : 0;
}

/* Snapshot id stands for the others by now. */
static int finish(int dir, uint64_t id, int holder, const struct branch_chain *c, bool is_volatile)
{
	_cleanup_(id_list_release) struct id_list replaced = { 0 };
	const int filled = is_being_filled(dir), work = is_there(dir, WORK);
	int r = filled < 0 ? filled : work < 0 ? work : list_ids(holder, &replaced);

	/* A filled directory is of another merge; this one is further already. */
	if (r == 0 && work && !filled)
		r = branch_store_write(dir, c, is_volatile);
	for (size_t k = 0; k < replaced.n && r == 0; k++)
		if (replaced.v[k] != id)
			r = move(dir, branch_store_place_of(replaced.v[k], "").name, holder,
				 replaced.v[k]);
	return r < 0 || filled ? r : move(dir, WORK, holder, id);
}

/* Nobody else tidies up. */
static int open_fresh(int holder)
{
	_cleanup_(closep) int fd = branch_store_open_at(holder, FRESH);

	if (fd < 0)
		return fd;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	return steal_fd(&fd);
}

/* Is what was replaced away, as after finish? 1, 0 or -errno. */
static int is_finished(int dir)
{
	const int work = is_there(dir, WORK);

	return work < 0 ? work : work ? is_being_filled(dir) : 1;
}

static void note_gone(int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		snapshot_links_gone(&st);
}

/* The replaced snapshots lose their unused files. "new" stays until these are gone: it tells the
 * next mount which snapshots the chain lacks. */
static int tidy(int dir, uint64_t id, int holder)
{
	_cleanup_(id_list_release) struct id_list replaced = { 0 };
	int r = is_finished(dir);

	if (r <= 0)
		return r < 0 ? r : -EBUSY;
	r = list_ids(holder, &replaced);
	r = r ?: prune(dir, id, holder, &replaced);
	if (r == 0)
		note_gone(dir, branch_store_place_of(id, "").name);
	return r == 0 && unlinkat(holder, FRESH, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : r;
}

/* The ids of all snapshots with "new". */
static int list_fresh(int dir, const struct branch_chain *c, struct id_list *ret)
{
	int r = 0;

	for (size_t k = 0; k < c->n && r >= 0; k++) {
		_cleanup_(closep) int holder = -1;

		r = find_fresh(dir, c->entries[k].id, &holder);
		if (r == 1)
			r = add_id(ret, c->entries[k].id);
	}
	return r < 0 ? r : 0;
}

static int absorb(int dir, uint64_t id, struct branch_chain *c)
{
	_cleanup_(id_list_release) struct id_list replaced = { 0 };
	_cleanup_(closep) int holder = open_holder(dir, id);
	int r = holder < 0 ? holder : list_ids(holder, &replaced);

	return r ?: branch_chain_absorb(c, id, replaced.v, replaced.n);
}

/* Snapshots that were replaced earlier and are not tidied up yet are not in the chain. */
int branch_merge_look(int dir, struct branch_chain *c)
{
	_cleanup_(id_list_release) struct id_list fresh = { 0 };
	int r = is_there(dir, WORK);

	if (r <= 0)
		return r;
	r = list_fresh(dir, c, &fresh);
	for (size_t k = 0; k < fresh.n && r == 0; k++)
		r = absorb(dir, fresh.v[k], c);
	return r;
}

/* Unless somebody is filling it. */
static void drop_work(int dir)
{
	_cleanup_(closep) int fd = branch_store_open_at(dir, WORK);

	struct stat st;

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return;
	rmtree(dir, WORK);
	if (is_there(dir, WORK) == 0 && fstat(fd, &st) == 0)
		snapshot_links_gone(&st);
}

static int recover_one(int dir, uint64_t id, const struct branch_chain *c)
{
	_cleanup_(closep) int holder = open_holder(dir, id), fresh = -1;
	int r = holder < 0 ? holder : finish(dir, id, holder, c, false), e;

	if (r < 0)
		return r;
	fresh = open_fresh(holder);
	e = fresh < 0 ? fresh : tidy(dir, id, holder);
	/* It takes room, and no more. */
	if (e < 0 && e != -EBUSY && e != -ENOENT)
		log_warn("what is left of snapshots that were merged cannot be removed: %s",
			 strerror(-e));
	return 0;
}

int branch_merge_recover(int dir, const struct branch_chain *c)
{
	_cleanup_(id_list_release) struct id_list fresh = { 0 };
	int r = list_fresh(dir, c, &fresh);

	for (size_t k = 0; k < fresh.n && r == 0; k++)
		r = recover_one(dir, fresh.v[k], c);
	if (r == 0)
		drop_work(dir);
	return r;
}

/* ---- a new one ---- */

static int make_holder(int root, const uint64_t *ids, size_t n)
{
	_cleanup_(closep) int holder = -1;

	if (mkdirat(root, BRANCH_DIR_NAME, 0700) < 0)
		return -errno;
	holder = branch_store_open_at(root, BRANCH_DIR_NAME);
	if (holder < 0)
		return holder;
	if (mkdirat(holder, FRESH, 0700) < 0)
		return -errno;
	for (size_t k = 0; k < n; k++)
		if (mkdirat(holder, branch_store_place_of(ids[k], "").name, 0700) < 0)
			return -errno;
	return 0;
}

/* The chain as it is read, and a descriptor of its directory or -errno. */
static int open_chain(int rootfd, struct branch_chain *ret)
{
	int dir = branch_store_open_all(rootfd);
	int r = dir < 0 ? dir : branch_store_read(dir, ret) ?: branch_merge_look(dir, ret);

	if (r < 0)
		closep(&dir);
	return r < 0 ? r : dir;
}

/* It was made just now, by this process. */
static int check_made(int root)
{
	struct stat st;

	if (fstat(root, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid() || st.st_mode & 077)
		return -EPERM;
	return flock(root, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
}

int branch_merge_begin(int rootfd, const uint64_t *ids, size_t n)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	_cleanup_(closep) int dir = open_chain(rootfd, &c);
	_cleanup_(closep) int root = -1;
	_cleanup_(id_list_release) struct id_list fresh = { 0 };
	int r = dir < 0 ? dir : branch_merge_recover(dir, &c) ?: list_fresh(dir, &c, &fresh);

	/* The one before has not been tidied up. */
	if (r == 0 && fresh.n)
		r = -EEXIST;
	if (r == 0 && mkdirat(dir, WORK, 0700) < 0)
		r = -errno;
	if (r < 0)
		return r;
	root = branch_store_open_at(dir, WORK);
	r = root < 0 ? root : check_made(root);
	r = r ?: make_holder(root, ids, n);
	if (r == 0)
		return steal_fd(&root);
	rmtree(dir, WORK);
	return r;
}

bool branch_merge_cancel(int rootfd)
{
	_cleanup_(closep) int dir = branch_store_open_all(rootfd);

	if (dir >= 0)
		rmtree(dir, WORK);
	return dir >= 0 && is_there(dir, WORK) == 0;
}

/* Nobody has any of them open, nor gets one, as long as *ret is. */
static int lock_all(int dir, const uint64_t *ids, size_t n, int *ret)
{
	for (size_t k = 0; k < n; k++) {
		ret[k] = branch_store_open_at(dir, branch_store_place_of(ids[k], "").name);
		if (ret[k] < 0)
			return ret[k] == -ENOENT ? -EUCLEAN : ret[k];
		if (flock(ret[k], LOCK_EX | LOCK_NB) < 0)
			return errno == EWOULDBLOCK ? -EUSERS : -errno;
	}
	return 0;
}

static int check_chain(const struct branch_chain *c, const uint64_t *ids, size_t n)
{
	for (size_t k = 0; k < n; k++) {
		const struct branch_chain_entry *e = branch_chain_by_id(c, ids[k]);

		if (!e)
			return -ENOENT;
		if ((k + 1 < n && e->parent != ids[k + 1]) ||
		    (k && count_standing_on(c, ids[k]) > 1))
			return -EBUSY;
	}
	return 0;
}

static int exchange(int dir, uint64_t id, bool is_volatile)
{
	if (renameat2(dir, WORK, dir, branch_store_place_of(id, "").name, RENAME_EXCHANGE) < 0)
		return errno == EINVAL ? -EOPNOTSUPP : -errno;
	if (!is_volatile && fsync(dir) < 0)
		log_error("cannot sync the snapshots of an upper: %s", strerror(errno));
	return 0;
}

int branch_merge_publish(int rootfd, const uint64_t *ids, size_t n, bool is_volatile)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	_cleanup_(closep) int dir = open_chain(rootfd, &c), holder = -1, fresh = -1;
	_cleanup_(freep) int *locks = NULL;
	int r = dir < 0 ? dir : check_chain(&c, ids, n);

	if (r < 0)
		return r;
	locks = malloc(n * sizeof(*locks));
	if (!locks)
		return -ENOMEM;
	for (size_t k = 0; k < n; k++)
		locks[k] = -1;
	r = lock_all(dir, ids, n, locks);
	r = r ?: branch_chain_absorb(&c, ids[0], ids, n);
	/* Nobody tidies it up before its maker does. */
	holder = r == 0 ? open_work_holder(dir) : -1;
	fresh = holder < 0 ? holder : open_fresh(holder);
	r = r ?: fresh < 0 ? fresh : exchange(dir, ids[0], is_volatile);
	if (r == 0) {
		int e = finish(dir, ids[0], holder, &c, is_volatile);

		/* It counts already; the next mount does the rest. */
		if (e < 0)
			log_error("cannot put snapshots that were merged away: %s", strerror(-e));
	}
	for (size_t k = 0; k < n; k++)
		closep(&locks[k]);
	return r < 0 ? r : steal_fd(&fresh);
}

int branch_merge_tidy(int rootfd, uint64_t id)
{
	_cleanup_(closep) int dir = branch_store_open_all(rootfd);
	_cleanup_(closep) int holder = dir < 0 ? dir : open_holder(dir, id);

	return holder < 0 ? holder : tidy(dir, id, holder);
}
