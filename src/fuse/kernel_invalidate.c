// SPDX-License-Identifier: Apache-2.0
#include "kernel_invalidate.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/human_units.h"
#include "veneer/base/log.h"
#include "veneer/recover/activity.h"
#include "veneer/recover/intent_log.h"

#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

#define FUSE_MAJOR 10
#define FUSE_MINOR 229
#define ALL_PAGES  0
#define NO_PAGES   (-1)
#define CHECK_EACH 16u /* notifications */
#define TRIES	   3 /* of a child that does not live to say all */

/* Linux 6.2, newer than the headers of the systems we build on: the kernel only looks the name up
 * again, and mounts on it stay. */
#define EXPIRE_ONLY 1u
struct inval_entry {
	uint64_t parent;
	uint32_t namelen, flags;
};

/* The offset of the first name in a request, after its header; 0: the request changes no names. */
static size_t name_at(const struct fuse_in_header *in)
{
	switch (in->opcode) {
	case FUSE_CREATE:
		return sizeof(*in) + sizeof(struct fuse_create_in);
	case FUSE_MKNOD:
		return sizeof(*in) + sizeof(struct fuse_mknod_in);
	case FUSE_MKDIR:
		return sizeof(*in) + sizeof(struct fuse_mkdir_in);
	case FUSE_LINK:
		return sizeof(*in) + sizeof(struct fuse_link_in);
	case FUSE_RENAME:
		return sizeof(*in) + sizeof(struct fuse_rename_in);
	case FUSE_RENAME2:
		return sizeof(*in) + sizeof(struct fuse_rename2_in);
	case FUSE_SYMLINK:
	case FUSE_UNLINK:
	case FUSE_RMDIR:
		return sizeof(*in);
	default:
		return 0;
	}
}

/* The node whose bytes or attributes it changes; 0: none. */
static uint64_t node_of(const struct fuse_in_header *in, const void *arg, size_t arg_len)
{
	switch (in->opcode) {
	case FUSE_SETATTR:
	case FUSE_WRITE:
	case FUSE_FALLOCATE:
	case FUSE_SETXATTR:
	case FUSE_REMOVEXATTR:
		return in->nodeid;
	case FUSE_COPY_FILE_RANGE:
		return arg_len < sizeof(struct fuse_copy_file_range_in)
			       ? 0
			       : ((const struct fuse_copy_file_range_in *)arg)->nodeid_out;
	case FUSE_LINK:
		return arg_len < sizeof(struct fuse_link_in)
			       ? 0
			       : ((const struct fuse_link_in *)arg)->oldnodeid;
	default:
		return 0;
	}
}

static const char *next_name(const char *at, const char *end)
{
	const char *nul = at ? memchr(at, '\0', (size_t)(end - at)) : NULL;

	return nul && nul + 1 < end && memchr(nul + 1, '\0', (size_t)(end - nul - 1)) ? nul + 1
										      : NULL;
}

struct intent *kernel_invalidate_note(uint64_t key, const struct fuse_buf *buf)
{
	const struct fuse_in_header *in = buf->mem;
	const char *bytes = buf->mem, *end = bytes + buf->size, *name = NULL;
	struct intent_request q = { .key = key, .kind = INTENT_INVALIDATE };
	size_t at;

	if (buf->size < sizeof(*in))
		return NULL;
	q.unique = in->unique;
	q.node = node_of(in, in + 1, buf->size - sizeof(*in));
	at = name_at(in);
	if (at && at < buf->size && memchr(bytes + at, '\0', buf->size - at))
		name = bytes + at;
	if (!name && !q.node)
		return NULL;
	q.from_parent = name ? in->nodeid : 0;
	q.from_name = name;
	/* Both begin with the new directory. */
	if (name && (in->opcode == FUSE_RENAME || in->opcode == FUSE_RENAME2)) {
		q.to_parent = ((const struct fuse_rename_in *)(in + 1))->newdir;
		q.to_name = next_name(name, end);
	}
	return intent_log_note(&q);
}

/* ---- after a death ---- */

/* A name of a directory, or the attributes of a node and perhaps its pages. */
struct invalidation {
	uint64_t node; /* a directory's, if there is a name */
	int64_t off; /* ALL_PAGES, NO_PAGES */
	char name[NAME_MAX + 1];
};

struct kernel_invalidate {
	uint64_t key;
	bool is_left; /* of requests that might have been resent, and were not */
	bool is_asked; /* kernel_invalidate_new */
	bool is_short; /* of memory, say: not all of it is there */
	/* of one that is asked for */
	int pidfd; /* of the child */
	int fuse_fd;
	_Atomic bool *has_said; /* all of it: in memory that the child shares */
	size_t n, room;
	struct invalidation *v;
};

static void put(struct kernel_invalidate *d, uint64_t node, int64_t off, const char *name)
{
	if (!node)
		return;
	if (array_reserve(&d->v, &d->room, d->n + 1) < 0) {
		d->is_short = true;
		return;
	}
	d->v[d->n] = (struct invalidation){ .node = node, .off = off };
	strcpy(d->v[d->n++].name, name);
}

/* Names first: the next look-up then gets the new attributes of the node. */
static void collect(struct intent *n, void *arg)
{
	struct kernel_invalidate *d = arg;
	const struct intent_end *ends[] = { &n->from, &n->to };

	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		const struct intent_end *e = ends[i];

		if (n->kind == INTENT_INVALIDATE && *e->name)
			put(d, e->parent, 0, e->name);
		put(d, e->node, n->kind == INTENT_INVALIDATE ? ALL_PAGES : NO_PAGES, "");
	}
}

/* NULL: no memory. */
static struct kernel_invalidate *take(uint64_t key, void (*each)(struct intent *n, void *arg))
{
	struct kernel_invalidate *d = calloc(1, sizeof(*d));

	if (d) {
		d->key = key;
		intent_log_each(key, each, d);
	}
	return d;
}

struct kernel_invalidate *kernel_invalidate_take(uint64_t key)
{
	struct kernel_invalidate *d = take(key, collect);

	if (!d || d->n)
		return d;
	kernel_invalidate_free(d);
	intent_log_drop_old(key);
	return NULL;
}

/* When the kernel gives up a request, it drops the name that the request removes, but not the
 * negative entry of a name that the request makes. */
static void collect_left(struct intent *n, void *arg)
{
	const struct intent_end *ends[] = { &n->from, &n->to };
	const struct intent_end *made = n->kind == INTENT_CREATE   ? &n->from
					: n->kind == INTENT_RENAME ? &n->to
								   : NULL;
	struct kernel_invalidate *d = arg;

	if (!intent_log_is_left(n))
		return;
	if (made && *made->name)
		put(d, made->parent, 0, made->name);
	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		put(d, ends[i]->parent, NO_PAGES, "");
		put(d, ends[i]->node, NO_PAGES, "");
	}
}

struct kernel_invalidate *kernel_invalidate_take_left(uint64_t key)
{
	struct kernel_invalidate *d = take(key, collect_left);

	if (d && d->n) {
		d->is_left = true;
		return d;
	}
	kernel_invalidate_free(d);
	return NULL;
}

static void notify(int fd, int code, const void *head, size_t head_len, const char *name)
{
	struct fuse_out_header out = { .error = code };
	struct iovec v[] = { { &out, sizeof(out) },
			     { (void *)head, head_len },
			     { (void *)name, strlen(name) + 1 } };
	const int n = *name ? 3 : 2;

	out.len = (uint32_t)(v[0].iov_len + v[1].iov_len + (*name ? v[2].iov_len : 0));
	/* Fails if the kernel has no such node or name, which is fine. */
	(void)!writev(fd, v, n);
}

/* The mount may have ended meanwhile, and the number may be a file's. */
static bool is_connection(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) &&
	       st.st_rdev == makedev(FUSE_MAJOR, FUSE_MINOR);
}

static void notify_all(const struct kernel_invalidate *d, int fuse_fd)
{
	for (size_t i = 0; i < d->n; i++) {
		const struct invalidation *x = &d->v[i];
		const uint32_t len = (uint32_t)strlen(x->name);
		const bool expires = d->is_left || d->is_asked;
		const struct inval_entry entry = { x->node, len, expires ? EXPIRE_ONLY : 0u };
		const struct fuse_notify_inval_inode_out inode = { .ino = x->node, .off = x->off };

		if (i % CHECK_EACH == 0 && !is_connection(fuse_fd))
			return;
		if (*x->name)
			notify(fuse_fd, FUSE_NOTIFY_INVAL_ENTRY, &entry, sizeof(entry), x->name);
		else
			notify(fuse_fd, FUSE_NOTIFY_INVAL_INODE, &inode, sizeof(inode), "");
	}
	if (d->has_said)
		*d->has_said = true;
}

/* A notification waits for the lock of a directory, whose holder may wait for our answer, and not
 * even SIGKILL ends that wait. If the server itself waited, it could not die before the next server
 * answers, which starts when it is dead. Hence a child that nobody waits for. It shares the
 * descriptors: a copy of the table would keep the connection open. */
static pid_t notify_by_child(const struct kernel_invalidate *d, int fuse_fd, int *ret_pidfd)
{
	pid_t pid = (pid_t)syscall(SYS_clone, CLONE_FILES | CLONE_PIDFD | SIGCHLD, NULL, ret_pidfd,
				   NULL, 0);

	if (pid == 0) {
		notify_all(d, fuse_fd);
		syscall(SYS_exit_group, 0);
	}
	return pid;
}

void kernel_invalidate_send(struct kernel_invalidate *d, int fuse_fd)
{
	_cleanup_(closep) int pidfd = -1;

	if (!d)
		return;
	if (notify_by_child(d, fuse_fd, &pidfd) < 0)
		log_warn("programs may not see %s of a server that died: cannot start a process: "
			 "%s",
			 human_units_of(d->n, "change").text, strerror(errno));
	/* Not before: if this server dies meanwhile, the next one notifies the kernel. */
	if (d->is_left)
		intent_log_drop_left(d->key);
	else
		intent_log_drop_old(d->key);
	kernel_invalidate_free(d);
}

struct kernel_invalidate *kernel_invalidate_new(void)
{
	struct kernel_invalidate *d = calloc(1, sizeof(*d));
	void *shared = mmap(NULL, sizeof(*d->has_said), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (!d || shared == MAP_FAILED) {
		if (shared != MAP_FAILED)
			munmap(shared, sizeof(*d->has_said));
		free(d);
		return NULL;
	}
	d->is_asked = true;
	d->pidfd = -1;
	d->has_said = shared;
	return d;
}

void kernel_invalidate_put(struct kernel_invalidate *d, uint64_t node, const char *name)
{
	put(d, node, name ? ALL_PAGES : NO_PAGES, name ?: "");
}

void kernel_invalidate_put_failed(struct kernel_invalidate *d)
{
	d->is_short = true;
}

int kernel_invalidate_start(struct kernel_invalidate *d, int fuse_fd)
{
	d->fuse_fd = fuse_fd;
	closep(&d->pidfd);
	return notify_by_child(d, fuse_fd, &d->pidfd) < 0 ? -errno : 0;
}

static int await_child(struct kernel_invalidate *d, int wait_ms)
{
	struct pollfd ended = { .fd = d->pidfd, .events = POLLIN };
	int r;

	do
		r = poll(&ended, 1, wait_ms);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r ? 0 : -ETIMEDOUT;
}

int kernel_invalidate_wait(struct kernel_invalidate *d, int wait_ms)
{
	int r = await_child(d, wait_ms);

	/* Something ended it. */
	for (int k = 1; r == 0 && !*d->has_said && k < TRIES; k++)
		r = kernel_invalidate_start(d, d->fuse_fd) ?: await_child(d, wait_ms);
	if (r < 0)
		return r;
	return !*d->has_said ? -EIO : d->is_short ? -ENOMEM : 0;
}

void kernel_invalidate_forget_pages(int fuse_fd, uint64_t node, int64_t off, int64_t len)
{
	const struct fuse_notify_inval_inode_out inode = { .ino = node, .off = off, .len = len };
	int waiter = activity_wait_begin();

	notify(fuse_fd, FUSE_NOTIFY_INVAL_INODE, &inode, sizeof(inode), "");
	activity_wait_end(waiter);
}

void kernel_invalidate_store(int fuse_fd, uint64_t node, const void *bytes, size_t len)
{
	const struct fuse_notify_store_out store = { .nodeid = node, .size = (uint32_t)len };
	struct fuse_out_header out = { .len = (uint32_t)(sizeof(out) + sizeof(store) + len),
				       .error = FUSE_NOTIFY_STORE };
	const struct iovec v[] = { { &out, sizeof(out) },
				   { (void *)&store, sizeof(store) },
				   { (void *)bytes, len } };

	/* The next server must not begin while this stores old bytes, so it is no wait by
	 * activity_wait_begin: a killed server is dead when it is over. */
	(void)!writev(fuse_fd, v, 3);
}

void kernel_invalidate_free(struct kernel_invalidate *d)
{
	if (!d)
		return;
	if (d->is_asked) {
		closep(&d->pidfd);
		munmap((void *)d->has_said, sizeof(*d->has_said));
	}
	free(d->v);
	free(d);
}
