// SPDX-License-Identifier: Apache-2.0
/* Steps of apply:
 * 1. Unmount the clone, so that nothing changes any more.
 * 2. Look for conflicts, which both sides changed.
 * 3. Write all changes to a tar, which gets its name once it is on the disk. From here on they are
 *    being applied, by this call or, after a kill, by the next one.
 * 4. Apply them.
 * 5. When they are on the disk, empty the clone, and remove the tar last. */
#include "commands.h"

#include "clone_state.h"
#include "mount_call.h"
#include "mount_find.h"
#include "offline.h"
#include "terminal.h"
#include "usage.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/human_units.h"
#include "veneer/base/log.h"
#include "veneer/layer/fd_cache.h"
#include "veneer/mount/upper_lock.h"
#include "veneer/sys/file.h"
#include "veneer/tools/apply.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static int print_usage(void)
{
	printf("usage: veneer apply [--dry-run] [--force] [--drop-snapshots] DEST\n\n"
	       "Apply the changes of a clone (veneer clone) to its directory. The clone is\n"
	       "unmounted meanwhile, and is empty afterwards. If both sides changed a path since\n"
	       "the clone was made or last applied, the conflicts are listed and nothing is\n"
	       "done. An interrupted call is finished by the next one.\n\n"
	       "  --drop-snapshots  accept a clone with snapshots, which are removed\n"
	       "  -f, --force       resolve conflicts in favour of the clone\n"
	       "  -n, --dry-run     list the changes and the obstacles\n\n"
	       "Exit code: 0; 1 when not all changes could be applied; 2 for wrong usage.\n");
	return 0;
}

struct flags {
	bool is_dry, is_forced, drops_snapshots;
};

/* ---- finding the changes ---- */

/* Refuse a clone with snapshots, unless they may be dropped: applying empties the clone. */
static int check_snapshots(const struct clone_state *c, const char *upper,
			   const struct flags *flags)
{
	int r;

	if (flags->is_dry)
		return 0;
	/* A mounted clone holds its own snapshots until it is unmounted. */
	if (flags->drops_snapshots)
		return mount_find_is_ours(c->dest) ? 0 : clone_state_check_branches(c);
	r = offline_refuse_snapshots(upper, "apply");
	if (r == -EOPNOTSUPP)
		log_error("%s: --drop-snapshots applies its present contents, and removes its "
			  "snapshots and their branches",
			  c->dest);
	return r;
}

static void say_conflict(void *arg, const char *path)
{
	(void)arg;
	fprintf(stderr, "conflict: %s\n", path);
}

static void say_closed(void *arg, const char *path)
{
	(void)arg;
	fprintf(stderr, "not yours to change: %s\n", path);
}

static void say_left(void *arg, const char *path)
{
	bool *has_left = arg;

	*has_left = true;
	fprintf(stderr, "changed meanwhile, and left as it is: %s\n", path);
}

/* 0; -EEXIST: there are obstacles, which were printed; -errno after a sentence. */
static int look_for_obstacles(const struct clone_state *c, const struct diff *d, int dirfd,
			      const struct flags *flags)
{
	ssize_t n = apply_find_obstacles(d, dirfd, say_closed, NULL), conflicts = 0;

	if (n >= 0)
		conflicts = apply_find_conflicts(d, dirfd, &c->since, say_conflict, NULL);
	if (n < 0 || conflicts < 0) {
		log_error("%s: %s", c->dir, strerror((int)(n < 0 ? -n : -conflicts)));
		return (int)(n < 0 ? n : conflicts);
	}
	if (conflicts && !flags->is_forced)
		log_error("%s: %s changed on both sides; nothing was done", c->dest,
			  human_units_of((uint64_t)conflicts, "path").text);
	return n || (conflicts && !flags->is_forced) ? -EEXIST : 0;
}

/* Results as look_for_obstacles. */
static int read_changes(const struct clone_state *c, const struct flags *flags, struct diff *ret)
{
	_cleanup_(freep) char *upper = clone_state_file(c, "upper");
	_cleanup_(closep) int dirfd = clone_state_open_dir(c);
	char *lower[] = { c->dir };
	int r = !upper ? -ENOMEM : dirfd < 0 ? dirfd : check_snapshots(c, upper, flags);

	*ret = (struct diff){ 0 };
	r = r ?: diff_read(upper, lower, 1, true, NULL, ret);
	if (r == 0 && apply_is_root_changed(ret, dirfd) == 1)
		log_warn("%s: mode and attributes of the directory itself are not applied",
			 c->dest);
	return r ?: look_for_obstacles(c, ret, dirfd, flags);
}

/* Exit code. */
static int list(const struct clone_state *c, const struct flags *flags)
{
	_cleanup_(diff_release) struct diff d = { 0 };
	int r = read_changes(c, flags, &d);

	if (r == 0 || r == -EEXIST)
		r = diff_print(&d, terminal_has_colours(stdout), stdout) ?: r;
	return r < 0;
}

/* ---- applying ---- */

/* Look for obstacles again before the tar counts, as they may have come while it was written. */
static int sync_and_name(const struct clone_state *c, const struct diff *d, int fd,
			 const struct flags *flags)
{
	_cleanup_(closep) int there = clone_state_open_dir(c);
	const int dirfd = c->lock_fd;
	int r = there < 0 ? there : look_for_obstacles(c, d, there, flags);

	if (r < 0)
		return r;
	if (fsync(fd) < 0 || renameat(dirfd, CLONE_STATE_TAR ".new", dirfd, CLONE_STATE_TAR) < 0 ||
	    fsync(dirfd) < 0)
		return -errno;
	return 0;
}

static int write_tar(const struct clone_state *c, const struct diff *d, const struct flags *flags)
{
	_cleanup_(closep) int fd = openat(c->lock_fd, CLONE_STATE_TAR ".new",
					  O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct diff_progress done;
	int r = fd < 0 ? -errno : diff_tar_write(d, fd, NULL, NULL, &done);

	r = r ?: sync_and_name(c, d, fd, flags);
	if (r < 0) {
		if (r != -EEXIST)
			log_error("%s: nothing was done: %s", c->dest, strerror(-r));
		unlinkat(c->lock_fd, CLONE_STATE_TAR ".new", 0);
	}
	return r;
}

static int carry_out(const struct clone_state *c, int dirfd)
{
	_cleanup_(closep) int tar =
		openat(c->lock_fd, CLONE_STATE_TAR, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	bool has_left = false;
	int r = tar < 0 ? -errno : apply_extract(tar, dirfd, say_left, &has_left);

	if (r == 0 && syncfs(dirfd) < 0)
		r = -errno;
	if (r < 0)
		log_error("%s: not all changes were applied: %s; run the same command again",
			  c->dest, strerror(-r));
	return r ?: has_left;
}

/* Remove the tar, or keep it for the changes that were left out. */
static int end_tar(const struct clone_state *c, bool is_kept)
{
	char name[64];
	int r;

	snprintf(name, sizeof(name), "left-out-%lld.tar", (long long)time(NULL));
	r = is_kept ? renameat(c->lock_fd, CLONE_STATE_TAR, c->lock_fd, name)
		    : unlinkat(c->lock_fd, CLONE_STATE_TAR, 0);
	if (r < 0 || fsync(c->lock_fd) < 0) {
		r = -errno;
		log_error("%s: %s", c->path, strerror(-r));
		return r;
	}
	if (is_kept)
		log_error("%s: the clone's objects for those are in %s/%s, until it is discarded",
			  c->dest, c->path, name);
	return 0;
}

/* Lock the upper, which a kill may have left removed. */
static int lock_upper(const struct clone_state *c, int *ret)
{
	_cleanup_(freep) char *upper = clone_state_file(c, "upper");
	int r = clone_state_check_branches(c);

	if (r < 0 || !upper)
		return r ?: -ENOMEM;
	*ret = open(upper, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = *ret >= 0 ? upper_lock_alone(upper, *ret) : errno == ENOENT ? 0 : -errno;
	if (r < 0)
		log_error("%s: %s", c->dest,
			  r == -EBUSY ? "another mount uses its upper" : strerror(-r));
	return r;
}

/* Apply the changes of the tar. 0; 1: some were left out, which was printed; -errno after a
 * sentence. */
static int finish(struct clone_state *c)
{
	_cleanup_(closep) int dirfd = clone_state_open_dir(c), upper = -1;
	int r = dirfd < 0 ? dirfd : lock_upper(c, &upper), e;

	r = r ?: carry_out(c, dirfd);
	e = r < 0 ? r : clone_state_renew(c);
	e = e ?: end_tar(c, r == 1);
	return e < 0 ? e : r;
}

/* Apply a clone that is unmounted and locked. */
static int apply_alone(struct clone_state *c, const struct flags *flags)
{
	_cleanup_(closep) int fd = -1;
	_cleanup_(diff_release) struct diff d = { 0 };
	int r = lock_upper(c, &fd);

	r = r ?: read_changes(c, flags, &d);
	if (r < 0 || !d.n)
		return r;
	r = write_tar(c, &d, flags);
	diff_release(&d);
	closep(&fd);
	return r ?: finish(c);
}

/* Read the changes, with the results of read_changes. Closes the descriptors of the directories, as
 * a child that unmounts would inherit them. */
static int look_at_changes(const struct clone_state *c, const struct flags *flags)
{
	_cleanup_(diff_release) struct diff d = { 0 };

	return read_changes(c, flags, &d);
}

/* Exit code. */
static int apply(struct clone_state *c, const struct flags *flags)
{
	const bool is_mounted = mount_find_is_ours(c->dest);
	int r;

	if (clone_state_is_applying(c) && !is_mounted)
		return finish(c) != 0;
	/* Find obstacles before unmounting, so that the mount stays if it cannot be done. */
	if (is_mounted && (look_at_changes(c, flags) < 0 || mount_call_umount(c->dest)))
		return 1;
	r = apply_alone(c, flags);
	/* A half-applied clone must not be changed. */
	if (is_mounted && !clone_state_is_applying(c) && clone_state_mount(c))
		return 1;
	return r != 0;
}

/* Exit code. */
static int find_and_apply(const char *given, const struct flags *flags)
{
	_cleanup_(clone_state_release) struct clone_state c = { .lock_fd = -1 };
	_cleanup_(freep) char *dest = mount_find_path(given);
	int r = dest ? clone_state_find(dest, &c) : 0;

	if (r == 0)
		log_error("%s is no clone of this user", given);
	if (r != 1 || clone_state_lock(&c) < 0)
		return 1;
	fd_cache_init();
	file_guard_init();
	/* left by an apply that was killed */
	unlinkat(c.lock_fd, CLONE_STATE_TAR ".new", 0);
	return flags->is_dry ? list(&c, flags) : apply(&c, flags);
}

int cmd_apply(int argc, char **argv)
{
	static const struct option options[] = { { "dry-run", no_argument, NULL, 'n' },
						 { "force", no_argument, NULL, 'f' },
						 { "drop-snapshots", no_argument, NULL, 's' },
						 { "help", no_argument, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	struct flags flags = { .is_dry = false };
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":fhn", options, NULL)) != -1) {
		if (c == 'h')
			return print_usage();
		if (c != 'n' && c != 'f' && c != 's') {
			usage_wrong_option(argv, c);
			return usage_hint("apply");
		}
		flags.is_dry |= c == 'n';
		flags.is_forced |= c == 'f';
		flags.drops_snapshots |= c == 's';
	}
	if (optind == argc)
		usage_missing("DEST");
	else if (argc - optind > 1)
		usage_unexpected(argv[optind + 1]);
	else
		return find_and_apply(argv[optind], &flags);
	return usage_hint("apply");
}
