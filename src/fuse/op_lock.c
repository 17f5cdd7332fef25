// SPDX-License-Identifier: Apache-2.0
/* Locks that the server keeps (locks.h has the requests that the kernel sends). Installed for
 * mounts that ask for it: locks that the kernel keeps cost no request, and no OPEN, FLUSH and
 * RELEASE.
 *
 * A request that waits holds no thread. The thread that gives up the lock answers it, or an
 * interrupt. While libfuse calls the handler of an interrupt, a lock of the request is held. So the
 * handler gets the waiter's number, and may answer only when the waiter is known by that number.
 * The kernel resends the requests of a dead server's waiters, or before 6.9 ends them with
 * ECONNABORTED. */
#include "op.h"

#include "veneer/union/locks.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#define CLOSING_TRIES	8
#define CLOSING_WAIT_US 1000

/* A locked file is open, and its inode stays. */
static uint64_t key_of(const struct inode *i)
{
	return (uint64_t)(uintptr_t)i;
}

static enum lock_type type_of(short type)
{
	return type == F_RDLCK ? LOCKS_SHARED : type == F_WRLCK ? LOCKS_EXCLUSIVE : LOCKS_NONE;
}

static struct lock_request request_of(const struct inode *i, fuse_ino_t ino,
				      const struct fuse_file_info *fi)
{
	return (struct lock_request){ .inode = key_of(i),
				      .node = ino,
				      .owner = fi->lock_owner,
				      .handle = fi->fh,
				      .end = LOCKS_END };
}

static struct lock_request record_request(const struct inode *i, fuse_ino_t ino,
					  const struct fuse_file_info *fi, const struct flock *lock)
{
	struct lock_request q = request_of(i, ino, fi);

	q.kind = LOCKS_RECORD;
	q.type = type_of(lock->l_type);
	q.start = (uint64_t)lock->l_start;
	if (lock->l_len)
		q.end = (uint64_t)lock->l_start + (uint64_t)lock->l_len - 1;
	q.pid = (uint32_t)lock->l_pid;
	return q;
}

/* The last close of a file releases locks by a request of its own, which another thread may still
 * be answering. */
static int try_now(struct locks *l, const struct lock_request *q)
{
	bool is_closing = false;
	int r = locks_set(l, q, &is_closing);

	for (int k = 0; r == -EAGAIN && is_closing && k < CLOSING_TRIES; k++) {
		usleep(CLOSING_WAIT_US);
		r = locks_set(l, q, &is_closing);
	}
	return r;
}

static void wait_ended(void *arg, int result)
{
	/* The kernel resends it (session_leave). */
	if (result == -ERESTART)
		fuse_reply_none(arg);
	else
		fuse_reply_err(arg, -result);
}

static void interrupted(fuse_req_t req, void *number)
{
	locks_cancel(op_mount(req)->tree.locks, (uint64_t)(uintptr_t)number);
}

static void wait_for(fuse_req_t req, struct locks *l, const struct lock_request *q)
{
	uint64_t number;
	int r = locks_prepare(l, wait_ended, req, &number);

	if (r == 0) {
		/* Called at once if the request is interrupted already. It then answers nothing, as
		 * the waiter does not wait yet. */
		fuse_req_interrupt_func(req, interrupted, (void *)(uintptr_t)number);
		r = locks_wait(l, number, q);
	}
	/* Otherwise the request may be answered and freed by now. */
	if (r <= 0)
		op_reply_err(req, r);
}

static void answer(fuse_req_t req, const struct lock_request *q, bool waits)
{
	struct locks *l = op_mount(req)->tree.locks;

	if (waits && q->type != LOCKS_NONE)
		wait_for(req, l, q);
	else
		op_reply_err(req, try_now(l, q));
}

static void op_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock,
		     int sleep)
{
	struct inode *i = op_inode(req, ino);
	struct lock_request q;

	if (!i)
		return;
	q = record_request(i, ino, fi, lock);
	answer(req, &q, sleep);
}

static void op_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int op)
{
	struct inode *i = op_inode(req, ino);
	struct lock_request q;

	if (!i)
		return;
	q = request_of(i, ino, fi);
	q.kind = LOCKS_FLOCK;
	q.type = op & LOCK_EX ? LOCKS_EXCLUSIVE : op & LOCK_SH ? LOCKS_SHARED : LOCKS_NONE;
	answer(req, &q, !(op & LOCK_NB));
}

static void op_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock)
{
	struct inode *i = op_inode(req, ino);
	struct lock_record found;
	struct lock_request q;

	if (!i)
		return;
	q = record_request(i, ino, fi, lock);
	if (locks_test(op_mount(req)->tree.locks, &q, &found)) {
		lock->l_type = found.type == LOCKS_EXCLUSIVE ? F_WRLCK : F_RDLCK;
		lock->l_start = (off_t)found.start;
		lock->l_len = found.end == LOCKS_END ? 0 : (off_t)(found.end - found.start + 1);
		lock->l_pid = (pid_t)found.pid;
	} else {
		lock->l_type = F_UNLCK;
	}
	lock->l_whence = SEEK_SET;
	fuse_reply_lock(req, lock);
}

void op_lock_flush(struct mount *m, fuse_ino_t ino, uint64_t owner, uint64_t handle)
{
	const struct inode *i = m->tree.locks ? inode_get(&m->tree, ino) : NULL;

	if (i)
		locks_release_owner(m->tree.locks, key_of(i), owner, handle);
}

static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	op_lock_flush(op_mount(req), ino, fi->lock_owner, fi->fh);
	op_reply_err(req, 0);
}

void op_lock_release(struct mount *m, fuse_ino_t ino, uint64_t handle)
{
	const struct inode *i = m->tree.locks ? inode_get(&m->tree, ino) : NULL;

	if (i)
		locks_release_handle(m->tree.locks, key_of(i), handle);
}

void op_lock_unflock(struct mount *m, fuse_ino_t ino, uint64_t owner)
{
	const struct inode *i = m->tree.locks ? inode_get(&m->tree, ino) : NULL;
	bool is_closing;

	if (i)
		locks_set(m->tree.locks,
			  &(struct lock_request){ .kind = LOCKS_FLOCK,
						  .type = LOCKS_NONE,
						  .inode = key_of(i),
						  .node = ino,
						  .owner = owner,
						  .end = LOCKS_END },
			  &is_closing);
}

void op_lock_install(struct fuse_lowlevel_ops *ops)
{
	ops->setlk = op_setlk;
	ops->flock = op_flock;
	ops->getlk = op_getlk;
	ops->flush = op_flush;
}
