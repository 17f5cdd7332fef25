// SPDX-License-Identifier: Apache-2.0
/* State that a server leaves when it is killed after each step. The request is sent again to the
 * next server (create_again, replay_link), which completes it; if nobody waits for it any more, the
 * state stays.
 *
 * at a free name     1. object made, without its owner and set-id bits: completed
 *                    2. owner, then mode, or the attribute that stores both: done
 * over a whiteout    1. made in the work directory, which the next mount empties, with owner, mode
 *                       and opaque mark. Under a default ACL it is made beside the name first, and
 *                       the next server that makes that name removes it
 *                    2. renamed over the device, or a directory exchanged with it: done
 *                    3. ".wh.NAME" removed. Before that the object is hidden, and another one
 *                       replaces it
 * link               1. path in the mark: true in any case
 *                    2. linked: done. Over a whiteout as above, but a file without a name is linked
 *                       beside the name first, and taken from there again */
#include "veneer/data/create.h"

#include "partial_mark.h"
#include "veneer/base/cleanup.h"
#include "veneer/data/copyup.h"
#include "veneer/data/publish.h"
#include "veneer/data/remove.h"
#include "veneer/layer/mode_xattr.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/lookup.h"
#include "veneer/union/quota.h"
#include "veneer/union/upper.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int create_check_name(const char *name)
{
	if (strlen(name) > NAME_MAX)
		return -ENAMETOOLONG;
	return whiteout_name_kind(name) == WHITEOUT_PLAIN ? 0 : -EINVAL;
}

/* An object that is being made, and its place: its directory if the name is free there, else the
 * work directory and then over the whiteout. */
struct making {
	const struct create_args *args;
	struct inode *parent;
	const char *name;
	struct lookup_state state; /* of the name, before the request */
	gid_t inherited; /* of a set-group-id directory; else (gid_t)-1 */
	mode_t mode; /* with set-gid inherited and the umask applied */
	uid_t uid;
	gid_t gid;
	int fd; /* of the new object, -1 if it needs none */
	const char *override; /* the attribute that stores owner and mode, or NULL */
	bool has_acl; /* a default ACL of the directory applies */
};

/* Cached per directory, as no other process changes the upper. Not used if owner and mode are in an
 * attribute. */
static int find_inherited(struct union_fs *t, struct making *m, struct upper_dir *d, int dirfd)
{
	struct stat st;
	uint64_t seen;

	if (upper_dir_group(d, &m->inherited, &seen) && !t->upper->override)
		return 0;
	if (fstat(dirfd, &st) < 0)
		return -errno;
	mode_xattr_apply(dirfd, "", t->upper->override, &st);
	m->inherited = st.st_mode & S_ISGID ? st.st_gid : (gid_t)-1;
	upper_dir_note_group(d, seen, m->inherited);
	return 0;
}

static void inherit(struct union_fs *t, struct making *m)
{
	if (S_ISREG(m->args->mode) || S_ISDIR(m->args->mode))
		m->override = t->upper->override;
	m->has_acl = upper_has_default_acl(m->parent);
	m->mode = m->args->mode;
	m->uid = m->args->uid;
	m->gid = m->args->gid;
	/* With a default ACL the backing file system computes the mode itself. */
	if (!m->has_acl && !S_ISLNK(m->mode))
		m->mode &= ~m->args->umask;
	if (m->inherited != (gid_t)-1) {
		m->gid = m->inherited;
		if (S_ISDIR(m->mode))
			m->mode |= S_ISGID;
	}
}

static mode_t real_mode(const struct making *m)
{
	if (!m->override)
		return m->mode;
	return m->has_acl ? mode_xattr_acl_mode(m->mode) : mode_xattr_real_mode(m->mode);
}

/* A file system mounted inside the upper may give new files another owner. open(2) then refuses the
 * quiet flag with EPERM, after it has made the file. If the file existed before, the error is not
 * EPERM. */
static int make_file(const struct union_fs *t, int dirfd, const char *name, mode_t mode)
{
	const int flags = O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC;
	const int quiet = upper_quiet_flag(t);
	int fd = openat(dirfd, name, flags | quiet, mode);

	if (fd < 0 && errno == EPERM && quiet) {
		unlinkat(dirfd, name, 0);
		fd = openat(dirfd, name, flags, mode);
	}
	return fd < 0 ? -errno : fd;
}

static int make_at(const struct union_fs *t, struct making *m, int dirfd, const char *name)
{
	const mode_t mode = real_mode(m);
	int r = 0;

	switch (m->mode & S_IFMT) {
	case S_IFREG:
		/* Set-id bits come after the owner: a server that is killed between would leave a
		 * set-id file of its own user. */
		m->fd = make_file(t, dirfd, name, mode & 01777);
		return m->fd < 0 ? m->fd : 0;
	case S_IFDIR:
		r = mkdirat(dirfd, name, mode & 07777);
		break;
	case S_IFLNK:
		r = symlinkat(m->args->target, dirfd, name);
		break;
	default:
		r = mknodat(dirfd, name, m->mode, m->args->rdev);
	}
	return r < 0 ? -errno : 0;
}

/* Each step changes the times (an opaque directory's whiteout is one). The reply needs those after
 * the last step. */
static void note_times(const struct making *m, int dirfd, const char *name, struct stat *st)
{
	struct stat now;

	if ((m->fd >= 0 ? mode_relax_stat(m->fd, "", AT_EMPTY_PATH, &now)
			: mode_relax_stat(dirfd, name, AT_SYMLINK_NOFOLLOW, &now)) < 0)
		return;
	st->st_mtim = now.st_mtim;
	st->st_ctim = now.st_ctim;
}

/* Set the owner, and the mode bits that chown or mkdir clear. */
static int settle_owner(struct making *m, int dirfd, const char *name, struct stat *st)
{
	bool has_lost_mode;
	int fd;

	if (m->fd >= 0 ? fstat(m->fd, st) : fstatat(dirfd, name, st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	if (m->override) {
		fd = m->fd >= 0
			     ? m->fd
			     : mode_relax_openat(dirfd, name,
						 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			return fd;
		int r = mode_xattr_keep_access(fd, st->st_mode);

		st->st_uid = m->uid;
		st->st_gid = m->gid;
		/* A default ACL has limited the real mode. */
		st->st_mode = m->mode & (st->st_mode | ~(mode_t)0777);
		r = r ?: mode_xattr_store(fd, m->override, st);

		if (fd != m->fd)
			close(fd);
		note_times(m, dirfd, name, st);
		return r;
	}
	if (st->st_uid != m->uid || st->st_gid != m->gid) {
		if (fchownat(dirfd, name, m->uid, m->gid, AT_SYMLINK_NOFOLLOW) < 0 &&
		    !m->args->ignores_chown)
			return -errno;
		if (fstatat(dirfd, name, st, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
	}
	has_lost_mode = !S_ISLNK(st->st_mode) &&
			(m->mode & (S_ISUID | S_ISGID | S_ISVTX)) & ~st->st_mode;
	if (has_lost_mode) {
		if (fchmodat(dirfd, name, st->st_mode | (m->mode & (S_ISUID | S_ISGID | S_ISVTX)),
			     0) < 0)
			return -errno;
		st->st_mode |= m->mode & (S_ISUID | S_ISGID | S_ISVTX);
		note_times(m, dirfd, name, st);
	}
	return 0;
}

static void unmake(struct making *m, int dirfd, const char *name)
{
	closep(&m->fd);
	unlinkat(dirfd, name, S_ISDIR(m->mode) ? AT_REMOVEDIR : 0);
}

static int make_direct(const struct union_fs *t, struct making *m, int dirfd, const char *name,
		       struct stat *st)
{
	int r = make_at(t, m, dirfd, name);

	if (r < 0)
		return r;
	r = settle_owner(m, dirfd, name, st);
	if (r < 0)
		unmake(m, dirfd, name);
	return r;
}

/* Move (tempfd, temp) over the whiteout at (dirfd, name), and over an object that ".wh.NAME" hides
 * there. A directory cannot be renamed over a device or over a directory that is not empty: then
 * exchange the two. */
static int replace_whiteout(struct union_fs *t, int tempfd, const char *temp, int dirfd,
			    const char *name, bool is_dir)
{
	char hidden[NAME_MAX + 1];

	int r = mode_relax_rename(tempfd, temp, dirfd, name, 0);

	if (r < 0) {
		if (!(is_dir && r == -ENOTDIR) && !whiteout_is_by_name(dirfd, name))
			return r;
		r = mode_relax_rename(tempfd, temp, dirfd, name, RENAME_EXCHANGE);
		if (r < 0)
			return r;
		remove_unseen(t, tempfd, temp);
	}
	/* Remove the other dialect's whiteout last: until then the name stays hidden. */
	if (snprintf(hidden, sizeof(hidden), WHITEOUT_PREFIX "%s", name) >= (int)sizeof(hidden))
		return 0;
	if (unlinkat(dirfd, hidden, 0) < 0)
		return errno == ENOENT ? 0 : -errno;
	/* If it hid this very file, placed by a server that died, the rename did nothing. */
	unlinkat(tempfd, temp, 0);
	return 0;
}

/* An object inherits a default ACL only in the directory that has it, so it is made there. */
static int make_over_whiteout(struct union_fs *t, struct making *m, int dirfd, struct stat *st)
{
	const bool is_opaque = S_ISDIR(m->mode) && m->state.below && m->state.below->type == DT_DIR;
	char temp[NAME_MAX + 1];
	int at = t->workfd, r = 0;

	upper_temp_name(t, temp);
	if (upper_has_default_acl(m->parent)) {
		remove_beside_name(m->name, temp);
		r = remove_unseen(t, dirfd, temp); /* a leftover of a killed server */
		at = dirfd;
	}
	if (r == 0)
		r = make_direct(t, m, at, temp, st);
	if (r < 0)
		return r;
	if (is_opaque) {
		MODE_RELAX_SCOPE(at, temp);
		_cleanup_(closep) int fd =
			openat(at, temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		r = fd < 0 ? -errno : whiteout_set_opaque(&t->style, fd);
	}
	if (r == 0 && at == dirfd) {
		char moved[32];

		upper_temp_name(t, moved);
		r = mode_relax_rename(at, temp, t->workfd, moved, 0);
		if (r == 0) {
			strcpy(temp, moved);
			at = t->workfd;
		}
	}
	if (r == 0)
		r = replace_whiteout(t, t->workfd, temp, dirfd, m->name, S_ISDIR(m->mode));
	if (r < 0 && is_opaque && at == t->workfd)
		remove_temp_dir(t, temp);
	else if (r < 0)
		unmake(m, at, temp);
	else
		note_times(m, dirfd, m->name, st);
	return r;
}

static int enter_new(struct union_fs *t, struct making *m, struct upper_dir *d,
		     const struct stat *st, struct inode **ret)
{
	struct inode_found f = { .type = IFTODT(st->st_mode),
				 .has_upper = true,
				 .upper_ino = st->st_ino,
				 .upper_dev = inode_upper_dev(t, st->st_dev),
				 .ino = inode_fold_ino(t, st->st_dev, st->st_ino) };
	struct upper_dir_entry up = { .ino = f.ino,
				      .type = f.type,
				      .is_ino_known = true,
				      .is_below = m->state.below != NULL };
	int r = upper_dir_set(d, m->name, &up);

	if (r == 0)
		r = inode_enter(t, m->parent, m->name, &f, ret);
	if (r < 0) {
		/* Restore the whiteout that the object replaced. */
		remove_made(t, m->parent, m->name, &m->state, S_ISDIR(m->mode));
		return r;
	}
	if (m->fd >= 0)
		upper_install(t, *ret, steal_fd(&m->fd));
	if (f.type == DT_DIR && !upper_has_default_acl(m->parent))
		r = upper_listing_empty(*ret, false);
	/* Without this listing, the first readdir reads it. */
	return 0;
}

/* The kernel holds the directory's lock for this request, so the name still leads to the new
 * object. */
static void note_new(struct union_fs *t, int dirfd, const char *name)
{
	quota_note(t->quota, dirfd);
	if (name)
		quota_note_at(t->quota, dirfd, name);
}

/* A directory takes a block, and so does a long symlink target. The name of another object usually
 * takes none, but on a full upper nothing may make the directory grow. */
static uint64_t room_of(const struct create_args *args)
{
	return S_ISDIR(args->mode) || S_ISLNK(args->mode) ? BLK_BYTES : 1;
}

int create_node(struct union_fs *t, struct inode *parent, const char *name,
		const struct create_args *args, struct inode **ret, struct stat *ret_st)
{
	const uint64_t room = room_of(args);
	struct making m = { .args = args, .parent = parent, .name = name, .fd = -1 };
	bool is_new = false;
	struct upper_dir *d;
	int dirfd, r = create_check_name(name);

	if (r == 0 && S_ISCHR(args->mode) && args->rdev == 0)
		r = -EPERM;
	if (r == 0)
		r = copyup_inode(t, parent, NULL);
	if (r == 0)
		r = upper_listing(t, parent, &d);
	if (r == 0)
		r = lookup_settle(t, parent, name);
	if (r == 0)
		r = lookup_state(t, parent, name, &m.state);
	if (r == 0 && m.state.where != LOOKUP_NOWHERE)
		r = -EEXIST;
	if (r < 0)
		return r;
	dirfd = upper_pin(t, parent);
	if (dirfd < 0)
		return dirfd;
	r = quota_claim(t->quota, room, 1);
	if (r < 0) {
		fd_cache_unpin(&parent->src.fd);
		return r;
	}
	r = find_inherited(t, &m, d, dirfd) ?: inode_reserve(t);
	if (r == 0)
		r = upper_dir_reserve(d, name, m.state.below != NULL, &is_new);
	if (r == 0) {
		inherit(t, &m);
		if (m.state.is_whiteout)
			r = make_over_whiteout(t, &m, dirfd, ret_st);
		else
			r = make_direct(t, &m, dirfd, name, ret_st);
	}
	if (r < 0 && is_new)
		upper_dir_remove(d, name);
	if (r == 0)
		r = enter_new(t, &m, d, ret_st, ret);
	note_new(t, dirfd, r == 0 ? name : NULL);
	quota_settle(t->quota, -1, room, 1);
	if (r == 0)
		ret_st->st_ino = (*ret)->ino;
	closep(&m.fd);
	fd_cache_unpin(&parent->src.fd);
	return r;
}

/* Take over an object that a dead server made for an unanswered request: no caller knows it. Its
 * owner and mode may be missing. */
static int take_over_made(struct union_fs *t, struct making *m, struct upper_dir *d,
			  struct stat *st)
{
	int dirfd = upper_pin(t, m->parent), r;

	if (dirfd < 0)
		return dirfd;
	r = find_inherited(t, m, d, dirfd);
	if (r == 0) {
		inherit(t, m);
		/* The mode may deny access even to this server: then the file is opened when it is
		 * needed. */
		if (S_ISREG(m->mode))
			m->fd = openat(dirfd, m->name,
				       O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC |
					       upper_quiet_flag(t));
		r = settle_owner(m, dirfd, m->name, st);
	}
	fd_cache_unpin(&m->parent->src.fd);
	return r;
}

int create_again(struct union_fs *t, struct inode *parent, const char *name,
		 const struct create_args *args, struct inode **ret, struct stat *ret_st)
{
	struct making m = { .args = args,
			    .parent = parent,
			    .name = name,
			    .state = { .where = LOOKUP_NOWHERE },
			    .fd = -1 };
	struct upper_dir *d;
	int r = create_check_name(name);

	if (r == 0 && parent->has_upper)
		r = upper_listing(t, parent, &d);
	if (r == 0 && parent->has_upper)
		r = lookup_settle(t, parent, name);
	if (r == 0 && parent->has_upper)
		r = lookup_state(t, parent, name, &m.state);
	if (r < 0)
		return r;
	if (m.state.where != LOOKUP_UPPER || m.state.up.type != IFTODT(args->mode))
		return create_node(t, parent, name, args, ret, ret_st);
	r = take_over_made(t, &m, d, ret_st);
	if (r == 0)
		r = enter_new(t, &m, d, ret_st, ret);
	if (r == 0)
		upper_forget_group(*ret);
	if (r == 0)
		ret_st->st_ino = (*ret)->ino;
	closep(&m.fd);
	return r;
}

/* is_only_here: the file has no name in the mount. Such a file can be linked only once. The next
 * mount would remove a name in the work directory, and the file could get no other. */
static int link_locked(struct union_fs *t, int fd, int dirfd, const char *name, bool is_whiteout,
		       bool is_only_here)
{
	int at = t->workfd, r;
	char temp[NAME_MAX + 1];
	struct stat st, there;

	if (!is_whiteout)
		return publish_link_fd(fd, dirfd, name);
	if (fstat(fd, &st) < 0)
		return -errno;
	upper_temp_name(t, temp);
	if (is_only_here) {
		remove_beside_name(name, temp);
		at = dirfd;
	}
	/* Remove a leftover of a killed server. */
	if (at == dirfd && fstatat(at, temp, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
	    there.st_ino != st.st_ino) {
		r = remove_unseen(t, at, temp);
		if (r < 0)
			return r;
	}
	r = publish_link_fd(fd, at, temp);
	if (r < 0 && !(r == -EEXIST && at == dirfd))
		return r;
	r = replace_whiteout(t, at, temp, dirfd, name, false);
	if (r < 0)
		unlinkat(at, temp, 0);
	return r;
}

int create_link(struct union_fs *t, struct inode *i, struct inode *parent, const char *name,
		struct stat *ret_st)
{
	struct upper_dir_entry up = { .type = i->type, .is_ino_known = true };
	struct lookup_state state;
	bool is_new = false;
	struct upper_dir *d;
	int fd, dirfd, r = create_check_name(name);

	if (r == 0)
		r = copyup_inode(t, i, NULL);
	if (r == 0)
		r = copyup_inode(t, parent, NULL);
	if (r == 0)
		r = upper_listing(t, parent, &d);
	if (r == 0)
		r = lookup_settle(t, parent, name);
	if (r == 0)
		r = lookup_state(t, parent, name, &state);
	if (r == 0 && state.where != LOOKUP_NOWHERE)
		r = -EEXIST;
	if (r == 0)
		r = partial_mark_fix(t, i, NULL);
	if (r < 0)
		return r;
	fd = upper_pin(t, i);
	if (fd < 0)
		return fd;
	dirfd = upper_pin(t, parent);
	r = dirfd < 0 ? dirfd : inode_reserve(t);
	if (r == 0)
		r = upper_dir_reserve(d, name, state.below != NULL, &is_new);
	if (r == 0) {
		r = link_locked(t, fd, dirfd, name, state.is_whiteout, inode_is_orphan(i));
		if (r < 0 && is_new)
			upper_dir_remove(d, name);
	}
	if (r == 0) {
		up.ino = i->ino;
		up.is_below = state.below != NULL;
		r = upper_dir_set(d, name, &up);
		if (r == 0)
			r = inode_add_name(t, i, parent, name);
		if (r < 0)
			remove_made(t, parent, name, &state, false);
	}
	if (dirfd >= 0)
		quota_note(t->quota, dirfd);
	if (dirfd >= 0)
		fd_cache_unpin(&parent->src.fd);
	fd_cache_unpin(&i->src.fd);
	if (r < 0)
		return r;
	return lookup_stat(t, i, ret_st);
}
