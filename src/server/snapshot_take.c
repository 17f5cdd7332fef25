// SPDX-License-Identifier: Apache-2.0
#include "snapshot_take.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/fuse/rollback_notify.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/layer/layer_registry.h"
#include "veneer/mount/mount_rollback.h"
#include "veneer/sys/mode_relax.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SPARE	  64 /* descriptors that reopening the mount may need */
#define TRIES	  8 /* about 1.3 s in all, as each wait doubles */
#define RETRY_US  10000u
#define NOTIFY_MS 5000

struct taking {
	char *name; /* BRANCH_CHAIN_NAME_MAX + 1 bytes */
	bool is_volatile;
	const char *to; /* snapshot to roll back to; NULL: a snapshot only */
	/* for a rollback; the chain is locked */
	struct branch_chain chain; /* after the rollback */
	uint64_t id; /* of the new snapshot */
	struct image *next; /* the layers after the rollback */
	struct kernel_invalidate *names; /* names that the kernel has to look up again */
	char *err; /* a sentence, or "" */
	size_t err_size;
};

/* Load the chain, and plan the new snapshot in it. */
static int plan(int upper_fd, const char *to, char *name, struct branch_chain *c, uint64_t *ret_id)
{
	MODE_RELAX_SCOPE(upper_fd, "");
	const struct branch_chain_entry *e;
	uint64_t head;
	int r = branch_dir_load(upper_fd, c);

	r = r == -ENOENT ? 0 : r;
	if (r < 0 || !to)
		return r ?: branch_dir_plan(c, name, ret_id);
	e = branch_chain_by_name(c, to);
	head = e ? e->id : 0;
	r = e ? branch_dir_plan(c, name, ret_id) : -ESRCH;
	c->head = head;
	return r;
}

static int take(void *arg, int upper_fd)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	struct taking *t = arg;
	uint64_t id;
	int r;

	if (t->to)
		return branch_dir_take(upper_fd, t->id, &t->chain, t->is_volatile);
	r = plan(upper_fd, NULL, t->name, &c, &id);
	return r ?: branch_dir_take(upper_fd, id, &c, t->is_volatile);
}

static int begin_back(void *arg, struct mount *m, const struct mount_record *d)
{
	struct taking *t = arg;
	struct mount_dirs dirs;
	int r;

	if (m->is_sb_member) {
		snprintf(t->err, t->err_size,
			 "a mount with share=pages goes back while it is "
			 "unmounted: unmount it first");
		return -EOPNOTSUPP;
	}
	/* Finish the notices of an earlier rollback first. */
	if (rollback_notify_end(rollback_notify_begin(m, d->fuse_fd), m, d->fuse_fd, NOTIFY_MS) < 0)
		return -EBUSY;
	r = mount_record_copy_dirs(d, &dirs);
	r = r ?: mount_rollback_image(m, &dirs, t->chain.head, &t->next, t->err, t->err_size);
	return r ?: mount_rollback_prune(m, d->fuse_fd);
}

static int prepare_back(void *arg, struct mount *m, const struct mount_record *d)
{
	struct taking *t = arg;
	int r = mount_rollback_prepare(m, t->next, t->id);

	if (r < 0)
		return r;
	r = rollback_notify_before(m, d->fuse_fd, &t->names);
	if (r < 0)
		mount_rollback_cancel(m);
	return r;
}

static bool has_descriptors(int fd)
{
	int spare[SPARE], n = 0;

	while (n < SPARE && (spare[n] = fcntl(fd, F_DUPFD_CLOEXEC, 3)) >= 0)
		n++;
	for (int k = 0; k < n; k++)
		close(spare[k]);
	return n == SPARE;
}

/* Check everything that can be checked before the mount is held up. */
static int would_take(int upper_fd, const struct taking *t)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	char name[BRANCH_CHAIN_NAME_MAX + 1];
	uint64_t id;

	strcpy(name, t->name);
	if (upper_fd < 0)
		return -EROFS;
	return has_descriptors(upper_fd) ? plan(upper_fd, t->to, name, &c, &id) : -EMFILE;
}

static const char *reason(int r)
{
	switch (r) {
	case -EROFS:
		return "the mount has no upper that it may write";
	case -EEXIST:
		return "there is a snapshot of this name";
	case -E2BIG:
		return "the upper has as many snapshots as it can have";
	case -EUCLEAN:
		return "the chain of its snapshots is damaged";
	case -EPROTO:
		return "a newer version wrote the chain of its snapshots";
	case -EOPNOTSUPP:
		return "needs a server with a supervisor, and Linux 6.9 if the mount has "
		       "locks=server";
	case -ETXTBSY:
		return "a file of the upper is open for writing by the kernel itself: mount with "
		       "io=cached, or close it";
	case -ENOLCK:
		return "whether the kernel writes a file of the upper by itself cannot be told "
		       "here: mount with branches=on";
	case -ENOTEMPTY:
		return "a copy of a file with several names is half done: mount it again";
	case -EUSERS:
		return "a file is open that was removed, or whose name another file took: close it";
	case -ESRCH:
		return "there is no snapshot of this name";
	case -EFBIG:
		return "files that look different in the snapshot are open, and are more than 256 "
		       "or longer than 64 MiB together: close them, or unmount it first";
	case -ENOSYS:
		return "this kernel cannot be told of it, Linux 6.18 can: unmount it first";
	case -EBUSY:
		return "the mount ends, or another snapshot is being taken or removed";
	case -EAGAIN:
		return "a request of the mount does not end";
	case -ENOTCONN:
		return "the mount has ended; the server's log says why";
	default:
		return strerror(-r);
	}
}

/* A name that is too long becomes an invalid one. */
static void copy_name(const char *text, size_t len, char ret[BRANCH_CHAIN_NAME_MAX + 1])
{
	if (len <= BRANCH_CHAIN_NAME_MAX)
		snprintf(ret, BRANCH_CHAIN_NAME_MAX + 1, "%.*s", (int)len, text);
	else
		strcpy(ret, "/");
}

void snapshot_take_names(const struct wire_message *m, char ret_to[BRANCH_CHAIN_NAME_MAX + 1],
			 char ret_name[BRANCH_CHAIN_NAME_MAX + 1])
{
	const bool is_back = m->type == WIRE_ROLLBACK;
	const char *end = is_back ? memchr(m->text, '\n', m->text_len) : NULL;
	const size_t n = end ? (size_t)(end - m->text) : is_back ? m->text_len : 0;
	const size_t rest = end ? n + 1 : n;

	copy_name(m->text, n, ret_to);
	if (is_back && !n)
		strcpy(ret_to, "/");
	copy_name(m->text + rest, m->text_len - rest, ret_name);
}

static void why(int r, char *err, size_t err_size)
{
	if (r == -EINVAL)
		snprintf(err, err_size,
			 "a name is letters, digits, dots, dashes and underscores, at most %d, and "
			 "begins with a letter or digit",
			 BRANCH_CHAIN_NAME_MAX);
	else
		snprintf(err, err_size, "%s", reason(r));
}

struct found {
	uint64_t number;
	bool is_volatile;
	int upper_fd; /* -1: it has no writable upper */
};

static void look(struct mount *m, const struct served_place *at, void *arg)
{
	struct found *f = arg;

	f->number = at->number;
	f->is_volatile = m->opts.is_volatile;
	if (m->tree.upper && !m->is_frozen)
		f->upper_fd = fcntl(m->tree.upper->rootfd, F_DUPFD_CLOEXEC, 3);
}

/* Called with the chain locked. */
static int go_back(struct mount_table *r, uint64_t number, int upper_fd, struct taking *t)
{
	const struct mount_table_step step = {
		.begin = begin_back,
		.prepare = prepare_back,
		.take = take,
		.arg = t,
	};
	int e = plan(upper_fd, t->to, t->name, &t->chain, &t->id);

	e = e ?: mount_table_replace(r, number, &step);
	if (e == 0 && rollback_notify_await(t->names, NOTIFY_MS) < 0)
		log_warn("programs may see names as they were before a rollback");
	rollback_notify_free(t->names);
	layer_registry_release(t->next);
	t->names = NULL;
	t->next = NULL;
	branch_chain_release(&t->chain);
	return e;
}

/* The first snapshot creates the directory whose lock this is, so that no other snapshot can be
 * received into the upper meanwhile. */
static int lock_chain(int upper, bool *ret_is_made)
{
	MODE_RELAX_SCOPE(upper, "");
	_cleanup_(closep) int dir = -1;
	int lock = branch_dir_lock(upper);

	*ret_is_made = lock == -ENOENT;
	if (lock != -ENOENT)
		return lock;
	dir = branch_dir_make(upper);
	lock = dir < 0 ? dir : branch_dir_lock(upper);
	return lock == -ENOENT ? -EBUSY : lock;
}

/* -ENOENT: there is no such mount. */
static int try_to_take(struct mount_table *r, const struct mount_table_target *target,
		       struct taking *t)
{
	const struct mount_table_step step = { .take = take, .arg = t };
	struct found f = { .upper_fd = -1 };
	_cleanup_(closep) int upper = -1, lock = -1;
	bool is_made = false;
	int e;

	if (!mount_table_at(r, target, look, &f))
		return -ENOENT;
	upper = f.upper_fd;
	t->is_volatile = f.is_volatile;
	if (*t->name && !branch_chain_is_name(t->name))
		return -EINVAL;
	e = would_take(upper, t);
	/* Lock it while requests are answered: this fails if another process has the lock. */
	lock = e == 0 ? lock_chain(upper, &is_made) : -1;
	if (e == 0 && lock < 0)
		return lock;
	e = e ?: t->to ? go_back(r, f.number, upper, t) : mount_table_replace(r, f.number, &step);
	if (e < 0 && is_made)
		branch_dir_unmake(upper);
	return e == -ENOENT ? -ENOTCONN : e;
}

int snapshot_take(struct mount_table *r, const struct mount_table_target *target, const char *to,
		  char name[BRANCH_CHAIN_NAME_MAX + 1], char *err, size_t err_size)
{
	struct taking t = { .name = name, .to = *to ? to : NULL, .err = err, .err_size = err_size };
	bool is_lost = false;
	int e = 0;

	*err = '\0';
	/* The kernel reports a close, and an inode that it forgets, some time after the program has
	 * gone on. A file that seems in use may not be. */
	for (int k = 0; k < TRIES; k++) {
		if (k)
			usleep(RETRY_US << (k - 1));
		e = try_to_take(r, target, &t);
		/* The mount may have a new number, if another snapshot was taken meanwhile. */
		if (e == -ENOENT && is_lost)
			e = -ENOTCONN;
		else
			is_lost = e == -ENOTCONN;
		if (e != -EUSERS && e != -ETXTBSY && e != -EFBIG && !is_lost)
			break;
	}
	if (e < 0 && e != -ENOENT && !*err)
		why(e, err, err_size);
	return e;
}
