// SPDX-License-Identifier: Apache-2.0
#include "offline_upper.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/layer/fd_cache.h"
#include "veneer/mount/upper_lock.h"
#include "veneer/sys/file.h"
#include "veneer/sys/rmtree.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

/* A directory in the upper, hidden from every mount of the layer, and on its file system. */
#define OWN_WORK_DIR ".wh..wh.flatten"

void offline_upper_say_why(const char *upper, int r)
{
	if (r == -ENOSPC || r == -EDQUOT)
		log_error("%s: no room left; it shows the same as before: free some room, and run "
			  "this again",
			  upper);
	else
		log_error("%s: stopped: %s", upper, strerror(-r));
}

/* Make a new directory. The name may belong to the remains of a killed run, or to a symlink in the
 * layer that leads out of it. */
static int make_own_work(int rootfd)
{
	if (mkdirat(rootfd, OWN_WORK_DIR, 0700) == 0)
		return 0;
	if (errno != EEXIST)
		return -errno;
	if (unlinkat(rootfd, OWN_WORK_DIR, 0) < 0)
		rmtree(rootfd, OWN_WORK_DIR);
	return mkdirat(rootfd, OWN_WORK_DIR, 0700) < 0 ? -errno : 0;
}

/* A directory in the root changes the times of the root, so save them. */
static int open_place(struct offline_upper *u, const char *place)
{
	int r = *place ? 0 : saved_attrs_take(u->rootfd, &u->times);

	u->has_times = !*place && r == 0;
	if (r < 0)
		return r;
	u->dirfd = openat(u->rootfd, *place ? place : ".",
			  O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return u->dirfd < 0 ? -errno : 0;
}

static int give_work(struct offline_upper *u, struct mount_opts *opts, const char *place)
{
	int r = open_place(u, place);

	if (r < 0 || opts->work)
		return r;
	r = make_own_work(u->dirfd);
	if (r < 0)
		return r;
	u->has_own_work = true;
	if (asprintf(&opts->work, "%s/%s/" OWN_WORK_DIR, opts->upper, *place ? place : ".") < 0)
		opts->work = NULL;
	return opts->work ? 0 : -ENOMEM;
}

int offline_upper_open(struct offline_upper *u, struct mount_opts *opts, const char *place)
{
	int r;

	umask(0);
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGIO, SIG_IGN); /* of a lease */
	fd_cache_init();
	file_guard_init();
	*u = (struct offline_upper){
		.rootfd = open(opts->upper, O_RDONLY | O_DIRECTORY | O_CLOEXEC), .dirfd = -1
	};
	if (u->rootfd < 0) {
		log_error("cannot open upperdir %s: %s", opts->upper, strerror(errno));
		return -errno;
	}
	r = upper_lock_alone(opts->upper, u->rootfd);
	if (r < 0) {
		log_error("upperdir %s %s", opts->upper,
			  r == -EBUSY ? "is in use by a mount" : "cannot be locked");
		return r;
	}
	r = give_work(u, opts, place);
	if (r < 0)
		offline_upper_say_why(opts->upper, r);
	/* Unlock, because mount_open takes the lock again. */
	flock(u->rootfd, LOCK_UN);
	return r;
}

void offline_upper_close(struct offline_upper *u)
{
	if (u->has_own_work)
		rmtree(u->dirfd, OWN_WORK_DIR);
	if (u->has_times)
		saved_attrs_put_back(u->rootfd, &u->times);
	closep(&u->dirfd);
	closep(&u->rootfd);
}
