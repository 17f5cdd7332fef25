// SPDX-License-Identifier: Apache-2.0
#include "offline_squash.h"

#include "progress.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/mount/mount_squash.h"
#include "veneer/mount/upper_lock.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int draw(void *arg, const struct snapshot_merge_progress *s)
{
	if (progress_is_due(arg))
		progress_show(arg, "entry", &(struct progress_point){ s->entries, 0, s->bytes, 0 },
			      "");
	return 0;
}

static int fill(struct mount *m, const struct offline_squash_range *range, struct progress *p,
		struct mount_squash *s)
{
	int r = mount_squash_begin(m, range->from, range->to, s);

	return r ?: mount_squash_fill(s, draw, p);
}

/* Publish after the mount, which has the layers open, is closed. */
static int publish(const char *upper, struct mount_squash *s)
{
	int r = upper_lock_alone(upper, s->rootfd);

	return r == -EBUSY ? -EAGAIN : r ?: mount_squash_publish(s);
}

static int fail(const char *upper, const struct mount_squash *s, int r)
{
	if (s->merge.where)
		log_error("%s: %s: %s", upper, s->merge.where, mount_squash_reason(r));
	else
		log_error("%s: %s", upper, mount_squash_reason(r));
	return r;
}

int offline_squash(struct mount_opts *opts, const struct offline_squash_range *range, bool is_quiet,
		   struct client_squashed *ret)
{
	_cleanup_(mount_squash_release) struct mount_squash s = MOUNT_SQUASH_NONE;
	_cleanup_(freep) char *upper = strdup(opts->upper);
	char err[PATH_MAX * 2] = "";
	struct progress p;
	struct mount m;
	int r;

	if (!upper) {
		log_error("out of memory");
		return -ENOMEM;
	}
	progress_start(&p, is_quiet);
	r = mount_open(&m, opts, err, sizeof(err));
	if (r < 0)
		log_error("%s", err);
	else
		r = fill(&m, range, &p, &s);
	mount_close(&m);
	progress_clear(&p);
	if (*err)
		return r;
	if (r == -EALREADY) {
		*ret = (struct client_squashed){ 0 };
		return 0;
	}
	r = r ?: publish(upper, &s);
	if (r < 0)
		return fail(upper, &s, r);
	*ret = (struct client_squashed){ s.n, s.merge.progress.entries, s.merge.progress.bytes };
	return 0;
}

/* All snapshots must be below the live part. */
static int check_all(const struct branch_chain *c)
{
	return branch_chain_below(c, c->head, NULL) == c->n ? 0 : -EBUSY;
}

/* Turn the live part into a snapshot, too. The upper must be locked. */
static int take_live(int rootfd)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	char name[BRANCH_CHAIN_NAME_MAX + 1] = "";
	uint64_t id;
	int r = branch_dir_recover(rootfd) ?: branch_dir_load(rootfd, &c);

	/* An interrupted squash has been finished by the recovery. */
	if (r == -ENOENT || (r == 0 && !c.n))
		return -EALREADY;
	r = r ?: check_all(&c) ?: branch_dir_plan(&c, name, &id);
	if (r == 0 && syncfs(rootfd) < 0)
		r = -errno;
	return r ?: branch_dir_take(rootfd, id, &c, false);
}

static int lock_and(const char *upper, int rootfd, int (*fn)(int rootfd))
{
	int r = upper_lock_alone(upper, rootfd);

	r = r ?: fn(rootfd);
	flock(rootfd, LOCK_UN);
	if (r < 0 && r != -EALREADY)
		log_error("%s: %s", upper,
			  r == -EBUSY ? "it has snapshots that it does not stand on: remove them "
					"before (veneer snapshot --delete)"
				      : mount_squash_reason(r));
	return r;
}

int offline_squash_all(struct mount_opts *opts, int rootfd, bool is_quiet)
{
	_cleanup_(freep) char *upper = strdup(opts->upper);
	_cleanup_(closep) int lock = branch_dir_lock(rootfd);
	struct client_squashed done;
	int r = !upper ? -ENOMEM : lock == -EBUSY ? -EAGAIN : lock < 0 ? lock : 0;

	if (r < 0) {
		log_error("%s: %s", opts->upper, mount_squash_reason(r));
		return r;
	}
	r = lock_and(upper, rootfd, take_live);
	r = r
		    ?: offline_squash(opts, &(struct offline_squash_range){ NULL, NULL }, is_quiet,
				      &done);
	r = r ?: lock_and(upper, rootfd, branch_dir_dissolve);
	return r == -EALREADY ? 0 : r;
}
