// SPDX-License-Identifier: Apache-2.0
#include "veneer/mount/mount.h"

#include "mount_layers.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/base/stats.h"
#include "veneer/data/publish.h"
#include "veneer/data/publish_recover.h"
#include "veneer/jobs/checkpoint.h"
#include "veneer/jobs/flat_copy_worker.h"
#include "veneer/jobs/promote_worker.h"
#include "veneer/jobs/readdir_ahead.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/layer/layer_registry.h"
#include "veneer/layer/mode_xattr.h"
#include "veneer/layer/whiteout.h"
#include "veneer/mount/workdir.h"
#include "veneer/passthrough/passthrough_table.h"
#include "veneer/prefetch/prefetch_session.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/sys/path.h"
#include "veneer/sys/probe.h"
#include "veneer/sys/xattr.h"
#include "veneer/union/inode_rebuild.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/locks.h"
#include "veneer/union/quota.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#define START_RETRY_MS	20
#define DISCARD_MS	250
#define DISCARD_STEP_MS 5

static int fail(char *err, size_t err_size, int r, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

static int fail(char *err, size_t err_size, int r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, err_size, fmt, ap);
	va_end(ap);
	return r;
}

/* Does the upper stand on snapshots of its own? On an error yes: open_image then reports it. */
static bool has_snapshots(const struct mount_dirs *dirs)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	int r = -ENOENT;

	if (dirs->upper >= 0) {
		MODE_RELAX_SCOPE(dirs->upper, "");
		r = branch_dir_load(dirs->upper, &c);
	}
	return r == 0 ? c.head != 0 : r != -ENOENT;
}

static int open_image(struct mount *m, struct mount_dirs *dirs, bool is_resumed, char *err,
		      size_t err_size)
{
	_cleanup_(mount_layers_release) struct mount_layers l = { .must_hold = !is_resumed };
	int r = mount_layers_open(&l, m, dirs, err, err_size);

	if (r == 0) {
		r = layer_registry_image(l.layers, l.n, dirs->opener, &m->tree.image);
		if (r < 0)
			fail(err, err_size, r, "cannot stack %zu layers: %s", l.n, strerror(-r));
	}
	return r;
}

static void choose_whiteout_style(struct mount *m)
{
	struct union_fs *t = &m->tree;

	t->style = (struct whiteout_style){
		.has_device = t->can.has_whiteout && !m->opts.has_no_device_whiteouts,
		.has_rename = t->can.has_rename_whiteout,
		.has_trusted = t->can.has_trusted_xattr,
		.has_user_attr = t->can.has_user_xattr,
	};
	t->is_volatile = m->opts.is_volatile;
	t->copies_whole = m->opts.cow == COW_COPY;
	if (!t->can.has_user_xattr && !t->copies_whole) {
		log_warn("%s has no user extended attributes: changed files are copied whole",
			 m->opts.upper);
		t->copies_whole = true;
	}
}

/* xattr_permissions: give the root of the upper the attribute for owner and mode, as engines
 * expect. Its value comes from the topmost lower layer that has one. */
static int choose_override(struct mount *m, char *err, size_t err_size)
{
	struct stat st = { .st_mode = S_IFDIR | 0555 };
	struct layer *upper = m->tree.upper;
	struct layer *const *layers;
	size_t n = image_layers(m->tree.image, &layers);
	int r;

	if (!m->opts.xattr_permissions || upper->override)
		return 0;
	for (size_t i = 0; i < n; i++)
		if (layers[i]->override) {
			mode_xattr_apply(layers[i]->rootfd, "", layers[i]->override, &st);
			break;
		}
	r = mode_xattr_store(upper->rootfd, mode_xattr_for_option(m->opts.xattr_permissions), &st);
	if (r < 0)
		return fail(err, err_size, r, "cannot store permissions in upperdir %s: %s",
			    m->opts.upper, strerror(-r));
	upper->override = mode_xattr_for_option(m->opts.xattr_permissions);
	return 0;
}

/* Is the directory the layer's root or below it? A container could reach such a work directory. The
 * walk does not leave the mount. */
static bool is_beneath(int dirfd, const struct layer *l)
{
	_cleanup_(closep) int fd = openat(dirfd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat st, above = { .st_ino = 0 };

	while (fd >= 0 && fstat(fd, &st) == 0) {
		int up;

		if (st.st_dev == l->dev && st.st_ino == l->ino)
			return true;
		if (st.st_dev == above.st_dev && st.st_ino == above.st_ino)
			return false;
		above = st;
		up = path_open_above(fd);
		close(fd);
		fd = up;
	}
	return false;
}

/* Call it before any change of the upper. */
static int set_quota(struct mount *m, char *err, size_t err_size)
{
	const struct mount_opts *o = &m->opts;
	struct union_fs *t = &m->tree;
	int r;

	if ((!o->max_bytes && !o->max_inodes) || o->is_offline)
		return 0;
	r = quota_new(t->upper->rootfd, o->max_bytes, o->max_inodes, &t->quota);
	r = r ?: quota_count(t->quota);
	return r < 0 ? fail(err, err_size, r, "cannot count the files in upperdir %s: %s", o->upper,
			    strerror(-r))
		     : 0;
}

/* flags: of enum mapfile_flags, added to those of the options. */
static int open_map(struct mount *m, unsigned flags, char *err, size_t err_size)
{
	struct union_fs *t = &m->tree;
	int r;

	if (m->opts.is_volatile)
		flags |= MAPFILE_VOLATILE;
	if (t->can.has_true_extents)
		flags |= MAPFILE_TRUE_EXTENTS;
	r = layer_open_upper_map(t->upper, t->workfd, flags, t->can.has_true_extents);
	if (r < 0)
		return fail(err, err_size, r, "cannot use the block map in upperdir %s: %s",
			    m->opts.upper,
			    r == -EUCLEAN ? "it is damaged (veneer inspect shows where)"
					  : strerror(-r));
	t->map = t->upper->map;
	return set_quota(m, err, err_size);
}

/* Open the part of an interrupted snapshot that has already moved and cannot move back. */
static int open_rest(struct mount *m, char *err, size_t err_size)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	const int rootfd = m->tree.upper->rootfd;
	uint64_t id = 0;
	int fd, r;

	MODE_RELAX_SCOPE(rootfd, "");
	r = branch_dir_load(rootfd, &c);
	r = (r == -ENOENT ? 0 : r) ?: branch_dir_pending(rootfd, &c, &id);
	if (r == 0 && id) {
		fd = branch_dir_open(rootfd, id);
		r = fd < 0 ? fd : layer_open_fd(fd, m->opts.upper, &m->tree.rest);
	}
	if (r == 0 && id)
		branch_dir_noted_time(m->tree.rest->rootfd, &m->tree.rest->root_mtime);
	return r < 0 ? fail(err, err_size, r, "cannot use the snapshots in upperdir %s: %s",
			    m->opts.upper, strerror(-r))
		     : 0;
}

/* The upper cannot be written any more, but programs can go on reading. There is no work directory,
 * and capabilities are assumed instead of probed, as the session refuses all changes. */
static int open_frozen(struct mount *m, char *err, size_t err_size)
{
	struct union_fs *t = &m->tree;

	m->is_frozen = true;
	t->can = (struct probe_dir){ .is_readonly = true,
				     .has_user_xattr = true,
				     .has_trusted_xattr = true,
				     .has_acl = true,
				     .has_true_extents = probe_true_extents(t->upper->rootfd) };
	choose_whiteout_style(m);
	return open_rest(m, err, err_size) ?: open_map(m, MAPFILE_READONLY, err, err_size);
}

/* Recover interrupted snapshots, and check the head again: the layers were opened before the upper
 * was locked. */
static int settle_snapshots(struct mount *m, enum mount_reopening how, char *err, size_t err_size)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	const int rootfd = m->tree.upper->rootfd;
	int r = how == MOUNT_REOPENING_WHOLE ? branch_dir_recover(rootfd)
					     : branch_dir_recover_unmerged(rootfd);

	if (r < 0)
		return fail(err, err_size, r,
			    "cannot finish an interrupted snapshot in upperdir %s: %s",
			    m->opts.upper, strerror(-r));
	MODE_RELAX_SCOPE(rootfd, "");
	r = branch_dir_load(rootfd, &c);
	if (r < 0 && r != -ENOENT)
		return fail(err, err_size, r, "cannot use the snapshots in upperdir %s: %s",
			    m->opts.upper, strerror(-r));
	if (c.head != m->snapshot)
		return fail(err, err_size, -EAGAIN,
			    "a snapshot of upperdir %s was taken just now: mount again",
			    m->opts.upper);
	return 0;
}

static bool is_resumed_from(const struct mount_saved_tables *saved)
{
	return saved->slots_fd >= 0 || inode_rebuild_has_left(saved->rebuild);
}

static int open_work(struct mount *m, struct mount_dirs *dirs, struct mount_saved_tables *saved,
		     char *err, size_t err_size)
{
	struct union_fs *t = &m->tree;
	struct stat st;
	int r = workdir_adopt(&saved->work, &m->work)
			? 0
			: workdir_open(dirs->work, m->opts.work, &m->work, err, err_size);

	if (r < 0)
		return r;
	t->workfd = m->work.fd;
	if (fstat(t->workfd, &st) < 0 || st.st_dev != t->upper->dev)
		return fail(err, err_size, -EXDEV,
			    "workdir %s is not on the file system of upperdir %s", m->opts.work,
			    m->opts.upper);
	r = probe_work_dir(t->workfd, &t->can);
	if (r == 0 && t->can.is_readonly)
		r = -EROFS;
	if (r < 0)
		return fail(err, err_size, r, "cannot write to workdir %s: %s", m->opts.work,
			    strerror(-r));
	if (!t->can.has_reserved_names && !is_resumed_from(saved))
		return fail(err, err_size, -EOPNOTSUPP,
			    "upperdir %s is on a file system that refuses the names of whiteouts, "
			    "as fuse-overlayfs and veneer do: "
			    "put it and workdir on another one, such as a volume or a tmpfs",
			    m->opts.upper);
	return 0;
}

static int open_upper(struct mount *m, struct mount_dirs *dirs, struct mount_saved_tables *saved,
		      char *err, size_t err_size)
{
	const bool is_frozen = saved->how == MOUNT_REOPENING_FROZEN;
	struct union_fs *t = &m->tree;
	int r = layer_open_fd(steal_fd(&dirs->upper), m->opts.upper, &t->upper);

	if (r < 0)
		return fail(err, err_size, r, "cannot open upperdir %s: %s", m->opts.upper,
			    strerror(-r));
	t->upper->is_upper = true;
	mount_layers_trust(m, t->upper);
	if (!m->opts.is_offline && is_beneath(dirs->work, t->upper))
		return fail(err, err_size, -EINVAL, "workdir %s is inside upperdir %s",
			    m->opts.work, m->opts.upper);
	r = upper_lock_take(&m->lock, m->opts.upper, t->upper->rootfd,
			    m->opts.is_offline ? NULL : dirs, err, err_size);
	if (r < 0)
		return r;
	r = is_frozen ? 0 : settle_snapshots(m, saved->how, err, err_size);
	if (r < 0)
		return r;
	if (layer_registry_upper_open(t->upper))
		log_warn("%s: upperdir %s is a lowerdir of another mount in use: changes may or "
			 "may not be visible there",
			 m->opts.mountpoint, m->opts.upper);
	if (is_frozen)
		return open_frozen(m, err, err_size);
	r = open_work(m, dirs, saved, err, err_size);
	if (r < 0)
		return r;
	choose_whiteout_style(m);
	r = choose_override(m, err, err_size);
	if (r < 0)
		return r;
	r = workdir_check_volatile(m->work.parent, m->opts.work, m->opts.is_volatile, err,
				   err_size);
	return r < 0 ? r : open_map(m, 0, err, err_size);
}

static int start_missing_jobs(struct mount *m)
{
	struct union_fs *t = &m->tree;
	const bool is_writable = t->upper && !m->is_frozen;
	int r = 0;

	if (is_writable && !m->checkpoint)
		r = checkpoint_start(t, &m->checkpoint);
	if (r == 0 && !m->readdir_ahead)
		r = readdir_ahead_start(t->image, &m->readdir_ahead);
	if (r == 0 && is_writable && !m->promote) {
		/* Set it before the worker starts, which reads it from its first round on. */
		t->completes_expected = m->opts.promote == PROMOTE_POLICY_WRITTEN &&
					m->opts.prefetch == PREFETCH_FULL;
		r = promote_worker_start(t, m->opts.promote, m->opts.promote_rate,
					 m->opts.promote_max, &m->promote);
	}
	if (r == 0 && is_writable && !t->quota && m->opts.partial == PARTIAL_AUTO &&
	    m->opts.coherence != COHERENCE_STRICT && !m->flat_copies)
		r = flat_copy_worker_start(t, m->opts.promote_max,
					   m->opts.coherence != COHERENCE_FAST, &m->flat_copies);
	return r;
}

/* waits: retry while no thread can be started, because programs are using the mount and would lose
 * it. The kernel has threads again sooner or later. */
static int start_jobs(struct mount *m, bool waits, char *err, size_t err_size)
{
	int r;

	while ((r = start_missing_jobs(m)) == -EAGAIN && waits)
		usleep(START_RETRY_MS * 1000);
	return r < 0 ? fail(err, err_size, r, "cannot start a thread: %s", strerror(-r)) : 0;
}

static const struct union_fs_backing_hooks backing_hooks = {
	.detach = passthrough_table_detach,
	.reap = passthrough_table_reap,
	.is_registered = passthrough_table_is_registered,
};

/* On failure the memory files stay the caller's, for another try. */
static int attach_nodes(struct union_fs *t, struct mount_saved_tables *nodes)
{
	int r = inode_table_attach(t, nodes->slots_fd, nodes->names_fd);

	if (r == 0)
		nodes->slots_fd = nodes->names_fd = -1;
	return r;
}

/* Test for opaque as in merge_layer_dir for lower layers; attributes of a root do not count. */
static bool is_opaque(const struct layer *l)
{
	struct stat st;

	return l && fstatat(l->rootfd, WHITEOUT_OPAQUE_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static int open_root(struct mount *m, struct mount_saved_tables *nodes, char *err, size_t err_size)
{
	struct union_fs *t = &m->tree;
	int r = 0;

	t->backing_hooks = &backing_hooks;
	if (inode_rebuild_has_left(nodes->rebuild))
		r = inode_rebuild_attach(nodes->rebuild, t);
	else if (nodes->slots_fd < 0)
		r = inode_table_init(t);
	else
		r = attach_nodes(t, nodes);
	if (r < 0)
		return fail(err, err_size, r, "cannot make the inode table: %s", strerror(-r));
	t->root->lower = image_root(t->image);
	t->root->ino = image_ino(t->image, t->root->lower);
	r = hardlink_index_init(t);
	if (r < 0)
		return fail(err, err_size, r, "cannot make the inode table: %s", strerror(-r));
	if (t->upper) {
		t->root->upper_ino = t->upper->ino;
		t->root->has_upper = true;
		if (is_opaque(t->upper) || is_opaque(t->rest))
			t->root->lower = NULL;
		r = m->is_frozen ? 0 : publish_recover(t);
	}
	return r < 0 ? fail(err, err_size, r, "cannot finish an interrupted copy-up in %s: %s",
			    t->upper->path, strerror(-r))
		     : 0;
}

static uint64_t inode_of(uint64_t node, void *arg)
{
	return (uint64_t)(uintptr_t)inode_get(arg, node);
}

static int open_locks(struct mount *m, struct mount_saved_tables *saved, char *err, size_t err_size)
{
	struct union_fs *t = &m->tree;
	int r = 0;

	if (saved->locks) {
		r = locks_renumber(saved->locks, inode_of, t);
		if (r == 0)
			t->locks = steal_ptr(&saved->locks);
	} else if (m->opts.locks == LOCKING_SERVER) {
		r = saved->locks_fd < 0
			    ? locks_new(&t->locks)
			    : locks_attach(steal_fd(&saved->locks_fd), inode_of, t, &t->locks);
	}
	return r < 0 ? fail(err, err_size, r, "cannot make the table of file locks: %s",
			    strerror(-r))
		     : 0;
}

int mount_open(struct mount *m, struct mount_opts *opts, char *err, size_t err_size)
{
	struct mount_dirs dirs;
	int r = mount_dirs_open(opts, &dirs, err, err_size);

	if (getenv("FUSE_OVERLAYFS_DISABLE_OVL_WHITEOUT"))
		opts->has_no_device_whiteouts = true;
	if (r == 0)
		return mount_open_at(m, opts, &dirs, err, err_size);
	mount_dirs_release(&dirs);
	*m = (struct mount){
		.opts = *opts, .lock = { .fd = -1 }, .work = WORKDIR_NONE, .state_fd = -1
	};
	readdirplus_policy_init(&m->readdirplus_policy);
	*opts = (struct mount_opts){ 0 };
	m->tree.workfd = -1;
	return r;
}

/* The reason why the kernel sends each write at once in spite of writeback=on; NULL: it keeps
 * writes. A kernel that passes files through keeps no changed pages, and passes none through
 * without privileges. With size= the write itself must fail on a full upper. */
static const char *why_writes_are_sent(const struct mount *m)
{
	const struct mount_opts *o = &m->opts;

	if (o->io == IO_PASSTHROUGH || (o->io == IO_AUTO && m->tree.can.has_trusted_xattr))
		return "files are passed through: io=cached keeps their pages";
	if (o->io == IO_DIRECT || o->timeout_s <= 0)
		return "with io=direct and timeout=0 no pages are kept";
	if (o->share == SHARE_PAGES || m->is_sb_member)
		return "with share=pages no changed pages are kept";
	if (o->locks == LOCKING_SERVER)
		return "not with locks=server";
	return m->tree.quota ? "with size= and inodes= the write itself says that there is no room"
			     : NULL;
}

bool mount_keeps_writes(const struct mount *m)
{
	return m->opts.writeback == WRITEBACK_ON && m->tree.upper && !why_writes_are_sent(m);
}

static void warn_of_writeback(const struct mount *m)
{
	const char *why = m->tree.upper && !m->opts.is_offline ? why_writes_are_sent(m) : NULL;

	if (m->opts.writeback == WRITEBACK_ON && why)
		log_warn("%s: writeback=on has no effect: %s", m->opts.mountpoint, why);
}

static int open_at(struct mount *m, struct mount_opts *opts, struct mount_dirs *dirs,
		   struct mount_saved_tables *saved, char *err, size_t err_size)
{
	const bool is_resumed = is_resumed_from(saved);
	struct stats *before;
	uint32_t start;
	int r;

	*m = (struct mount){
		.opts = *opts, .lock = { .fd = -1 }, .work = WORKDIR_NONE, .state_fd = -1
	};
	readdirplus_policy_init(&m->readdirplus_policy);
	*opts = (struct mount_opts){ 0 };
	m->tree.workfd = -1;
	/* The upper may still have reserved names of dead servers, so start at a random number. */
	if (getrandom(&start, sizeof(start), GRND_NONBLOCK) == sizeof(start))
		m->tree.work_seq = (uint64_t)start << 16;
	m->tree.has_static_nlink = m->opts.has_static_nlink;
	m->tree.keeps_atime = m->opts.keeps_atime;
	m->tree.has_branches = m->opts.branches == BRANCHES_ON;
	m->tree.has_no_redirects = m->opts.has_no_redirects;
	m->tree.stats = steal_ptr(&saved->stats);
	r = m->tree.stats ? 0 : stats_new(&m->tree.stats);
	if (r < 0)
		fail(err, err_size, r, "out of memory");
	before = stats_enter(m->tree.stats);
	if (r == 0 && saved->image && !has_snapshots(dirs))
		m->tree.image = layer_registry_again(saved->image);
	else
		r = r ?: open_image(m, dirs, is_resumed, err, err_size);
	if (r == 0 && m->opts.upper && !m->opts.is_readonly)
		r = open_upper(m, dirs, saved, err, err_size);
	m->state_fd = steal_fd(&dirs->state);
	mount_dirs_release(dirs);
	if (r == 0)
		r = open_root(m, saved, err, err_size);
	if (r == 0)
		r = open_locks(m, saved, err, err_size);
	if (r == 0 && !is_resumed)
		warn_of_writeback(m);
	if (r == 0 && !m->opts.is_offline)
		r = start_jobs(m, is_resumed, err, err_size);
	stats_enter(before);
	return r;
}

int mount_open_at(struct mount *m, struct mount_opts *opts, struct mount_dirs *dirs, char *err,
		  size_t err_size)
{
	struct mount_saved_tables none = MOUNT_SAVED_TABLES_NONE;

	return open_at(m, opts, dirs, &none, err, err_size);
}

int mount_reopen_at(struct mount *m, struct mount_opts *opts, struct mount_dirs *dirs,
		    struct mount_saved_tables *saved, char *err, size_t err_size)
{
	return open_at(m, opts, dirs, saved, err, err_size);
}

void mount_start_prefetch(struct mount *m)
{
	const struct prefetch_session_config c = {
		.image = m->tree.image,
		.stats = m->tree.stats,
		.state_fd = steal_fd(&m->state_fd),
		.window_ms = (unsigned)(m->opts.window_s * 1000),
	};
	int r;

	if (c.state_fd < 0)
		return;
	/* Members do not get the reads of common files, so the profile would be empty. Reading
	 * ahead would fill only the lower file's own pages, which no mount reads again. */
	if (m->is_sb_member) {
		close(c.state_fd);
		return;
	}
	if (m->opts.prefetch == PREFETCH_FULL && m->tree.upper && !m->tree.completes_expected)
		log_warn("%s: prefetch=full is the same as prefetch=read without promote=written",
			 m->opts.mountpoint);
	r = prefetch_session_start(&c, &m->prefetch);
	if (r == -EOPNOTSUPP)
		log_warn("%s: this program was built without prefetch: nothing is read ahead",
			 m->opts.mountpoint);
	else if (r < 0)
		log_debug("%s: nothing is learned: %s", m->opts.mountpoint, strerror(-r));
	else
		m->trace = prefetch_session_trace(m->prefetch);
}

/* Engines mount volatile when they remove the upper right after the unmount. Then its data need not
 * reach the disk. */
static bool is_discarded(const struct union_fs *t)
{
	struct stat st;

	for (int waited = 0; waited < DISCARD_MS; waited += DISCARD_STEP_MS) {
		if (fstat(t->upper->rootfd, &st) < 0 || st.st_nlink == 0)
			return true;
		usleep(DISCARD_STEP_MS * 1000);
	}
	return false;
}

/* Sync, mark the map clean, and remove the mark of a volatile mount. A clean map can be trusted to
 * its last record after a reboot or on another machine. The sync may take long, and the next mount
 * of this upper must not wait for it: if it has taken the lock, this mount changes neither mark. */
static void close_clean(struct mount *m)
{
	struct union_fs *t = &m->tree;
	const bool has_map = mapfile_count(t->map) > 0;
	const bool is_marked = m->has_begun && workdir_is_volatile(m->work.parent);
	int r = 0;

	if (t->is_volatile ? !is_marked : !has_map && !is_marked)
		return;
	upper_lock_yield(&m->lock, t->upper->rootfd);
	if (t->is_volatile && is_discarded(t))
		return;
	if (syncfs(t->upper->rootfd) < 0 ||
	    !upper_lock_retake(&m->lock, t->upper->rootfd, m->work.name))
		return;
	if (has_map)
		r = mapfile_is_current(t->map) ? mapfile_mark_clean(t->map) : -ESTALE;
	/* Marking a volatile map does not sync it. */
	if (r == 0 && is_marked && syncfs(t->upper->rootfd) == 0)
		workdir_end_volatile(&m->work);
}

static void stop_jobs(struct mount *m)
{
	promote_worker_stop(m->promote);
	flat_copy_worker_stop(m->flat_copies);
	prefetch_session_stop(m->prefetch);
	closep(&m->state_fd);
	worker_stop(m->checkpoint);
	readdir_ahead_stop(m->readdir_ahead);
	readdirplus_policy_release(&m->readdirplus_policy);
}

/* Called after the inodes are released. */
static void release_rest(struct mount *m, void (*end_workdir)(struct workdir *w))
{
	struct union_fs *t = &m->tree;

	layer_registry_release(t->image);
	quota_free(t->quota);
	if (t->upper)
		layer_registry_upper_close(t->upper);
	layer_unref(t->upper);
	layer_unref(t->rest);
	end_workdir(&m->work);
	options_release(&m->opts);
	stats_free(t->stats);
	*m = (struct mount){ .lock = { .fd = -1 }, .work = WORKDIR_NONE, .state_fd = -1 };
}

void mount_close(struct mount *m)
{
	struct union_fs *t = &m->tree;

	stop_jobs(m);
	/* This is the last write to the upper, which is still locked. Unlinked files leave the map
	 * with their inodes, and two servers that append to one map would lose records. */
	if (t->upper && t->map && !m->is_frozen)
		publish_close(t);
	hardlink_index_release(t);
	inode_table_release(t);
	locks_free(t->locks);
	t->locks = NULL;
	passthrough_table_free(t->backing);
	t->backing = NULL;
	if (t->map && !m->is_frozen)
		close_clean(m);
	upper_lock_release(&m->lock, t->upper ? t->upper->rootfd : -1);
	release_rest(m, workdir_close);
}

/* Sync now: a later fsync of a program does not reach this mount. */
static int settle(struct union_fs *t)
{
	if (!t->upper)
		return 0;
	/* A volatile upper is refused after a reboot, but not after a clean unmount. */
	if (!t->is_volatile && syncfs(t->upper->rootfd) < 0)
		return -errno;
	return t->map ? mapfile_mark_clean(t->map) : 0;
}

static void leave_inodes(struct union_fs *t, struct mount_saved_tables *left)
{
	if (!left->rebuild || inode_rebuild_leave(left->rebuild, t) < 0)
		inode_table_leave(t, &left->slots_fd, &left->names_fd);
}

int mount_leave(struct mount *m, struct mount_saved_tables *left)
{
	struct union_fs *t = &m->tree;
	int r;

	stop_jobs(m);
	if (t->upper && t->map && !m->is_frozen)
		publish_close(t);
	r = settle(t);
	hardlink_index_release(t);
	if (t->nodes)
		leave_inodes(t, left);
	left->stats = steal_ptr(&t->stats);
	left->locks = steal_ptr(&t->locks);
	left->work = m->work;
	m->work = WORKDIR_NONE;
	passthrough_table_free(t->backing);
	t->backing = NULL;
	/* The record of the mount has a duplicate. */
	closep(&m->lock.fd);
	release_rest(m, workdir_leave);
	return r;
}

const char *mount_mode(const struct mount *m)
{
	static const char *const names[] = { "auto", "passthrough", "cached", "direct" };

	return names[m->io];
}

const char *mount_mode_reason(const struct mount *m)
{
	if (m->is_sb_member)
		return "share=pages keeps unchanged files once for all mounts of the image";
	if (m->io == IO_AUTO)
		return "the mount has had no request yet";
	if (m->io == IO_PASSTHROUGH)
		return "the kernel reads unchanged files by itself";
	if (m->opts.io == m->io)
		return "set by the option io=";
	return m->has_passthrough ? "the kernel lets only root of the machine pass files through"
				  : "the kernel passes no files through: that needs Linux 6.9";
}

bool mount_squashes(const struct mount *m)
{
	return m->opts.squash_to_root || m->opts.squash_uid >= 0 || m->opts.squash_gid >= 0;
}

uid_t mount_uid_to_disk(const struct mount *m, uid_t uid)
{
	return idmap_to_disk(&m->opts.uids, uid);
}

gid_t mount_gid_to_disk(const struct mount *m, gid_t gid)
{
	return idmap_to_disk(&m->opts.gids, gid);
}

bool mount_has_uid(const struct mount *m, uid_t uid)
{
	return idmap_has(&m->opts.uids, uid);
}

bool mount_has_gid(const struct mount *m, gid_t gid)
{
	return idmap_has(&m->opts.gids, gid);
}

int mount_acl_to_disk(const struct mount *m, void *value, size_t size)
{
	return idmap_acl(&m->opts.uids, &m->opts.gids, value, size, true);
}

void mount_present_acl(const struct mount *m, void *value, size_t size)
{
	idmap_acl(&m->opts.uids, &m->opts.gids, value, size, false);
}

void mount_present_ids(const struct mount *m, struct stat *st)
{
	st->st_uid = idmap_from_disk(&m->opts.uids, st->st_uid);
	st->st_gid = idmap_from_disk(&m->opts.gids, st->st_gid);
	if (m->opts.squash_to_root)
		st->st_uid = st->st_gid = 0;
	if (m->opts.squash_uid >= 0)
		st->st_uid = (uid_t)m->opts.squash_uid;
	if (m->opts.squash_gid >= 0)
		st->st_gid = (gid_t)m->opts.squash_gid;
}

void mount_present_root_ids(const struct mount *m, struct stat *st)
{
	mount_present_ids(m, st);
	if (st->st_uid == ID_INVALID)
		st->st_uid = ID_OVERFLOW;
	if (st->st_gid == ID_INVALID)
		st->st_gid = ID_OVERFLOW;
}
