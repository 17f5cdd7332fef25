// SPDX-License-Identifier: Apache-2.0
#include "snapshot_take.h"

#include "veneer/base/cleanup.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/sys/mode_relax.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SPARE	 64 /* descriptors that opening the mount anew may take */
#define TRIES	 8 /* in some 1.3 s, as each wait is twice the one before */
#define RETRY_US 10000u

struct taking {
	char *name; /* BRANCH_CHAIN_NAME_MAX + 1 bytes */
	bool is_volatile;
};

/* The chain as it would be. */
static int plan(int upper_fd, char *name, struct branch_chain *c, uint64_t *ret_id)
{
	MODE_RELAX_SCOPE(upper_fd, "");
	int r = branch_dir_load(upper_fd, c);

	r = r == -ENOENT ? 0 : r;
	return r ?: branch_dir_plan(c, name, ret_id);
}

static int take(void *arg, int upper_fd)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	struct taking *t = arg;
	uint64_t id;
	int r = plan(upper_fd, t->name, &c, &id);

	return r ?: branch_dir_take(upper_fd, id, &c, t->is_volatile);
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

/* Before the mount is held up for it. */
static int would_take(int upper_fd, const char *wanted)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	char name[BRANCH_CHAIN_NAME_MAX + 1];
	uint64_t id;

	strcpy(name, wanted);
	if (upper_fd < 0)
		return -EROFS;
	return has_descriptors(upper_fd) ? plan(upper_fd, name, &c, &id) : -EMFILE;
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
		return "not of a mount with share=pages or locks=server, nor of a server without a "
		       "supervisor";
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

void snapshot_take_name(const char *text, size_t len, char ret[BRANCH_CHAIN_NAME_MAX + 1])
{
	if (len <= BRANCH_CHAIN_NAME_MAX)
		snprintf(ret, BRANCH_CHAIN_NAME_MAX + 1, "%.*s", (int)len, text);
	else
		strcpy(ret, "/");
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
	const struct mount_table_target *target;
	uint64_t number; /* 0: no mount fits */
	bool is_volatile;
	int upper_fd; /* -1: it has none that it may write */
};

static void look(struct mount *m, const struct served_place *at, void *arg)
{
	struct found *f = arg;

	if (f->number || !mount_table_is_at(m, at, f->target))
		return;
	f->number = at->number;
	f->is_volatile = m->opts.is_volatile;
	if (m->tree.upper && !m->is_frozen)
		f->upper_fd = fcntl(m->tree.upper->rootfd, F_DUPFD_CLOEXEC, 3);
}

/* -ENOENT: no mount fits. */
static int try_to_take(struct mount_table *r, const struct mount_table_target *target,
		       struct taking *t)
{
	struct found f = { .target = target, .upper_fd = -1 };
	_cleanup_(closep) int upper = -1, lock = -1;
	int e;

	mount_table_each(r, look, &f);
	upper = f.upper_fd;
	if (!f.number)
		return -ENOENT;
	t->is_volatile = f.is_volatile;
	if (*t->name && !branch_chain_is_name(t->name))
		return -EINVAL;
	e = would_take(upper, t->name);
	/* While requests are answered: somebody may have it. */
	lock = e == 0 ? branch_dir_lock(upper) : -1;
	if (e == 0 && lock < 0 && lock != -ENOENT)
		return lock;
	e = e ?: mount_table_replace(r, f.number, take, t);
	return e == -ENOENT ? -ENOTCONN : e;
}

int snapshot_take(struct mount_table *r, const struct mount_table_target *target,
		  char name[BRANCH_CHAIN_NAME_MAX + 1], char *err, size_t err_size)
{
	struct taking t = { .name = name };
	int e;

	/* The kernel tells of a close, and of an inode that it forgets, some time after the program
	 * went on: what seems in use may not be. */
	for (int k = 0; k < TRIES; k++) {
		if (k)
			usleep(RETRY_US << (k - 1));
		e = try_to_take(r, target, &t);
		if (e != -EUSERS && e != -ETXTBSY)
			break;
	}
	if (e < 0 && e != -ENOENT)
		why(e, err, err_size);
	return e;
}
