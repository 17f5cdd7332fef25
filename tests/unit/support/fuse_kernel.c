// SPDX-License-Identifier: Apache-2.0
#include "support/fuse_kernel.h"

#include "support/tree.h"
#include "veneer/fuse/session.h"

#include <fuse_lowlevel.h>
#include <poll.h>
#include <sys/socket.h>

#define WAIT_MS	    60000
#define INIT_UNIQUE 2
#define MAX_BYTES   ((size_t)192 << 10) /* of a message */

void fuse_kernel_send(struct fuse_kernel *k, const struct fuse_question *q)
{
	struct fuse_in_header in = { .opcode = q->opcode,
				     .unique = k->unique += 2,
				     .nodeid = q->node,
				     .uid = k->uid,
				     .gid = k->gid,
				     .pid = k->pid };
	struct iovec iov[3] = {
		{ &in, sizeof(in) },
		{ (void *)(uintptr_t)q->head, q->head_len },
		{ (void *)(uintptr_t)q->rest, q->rest_len },
	};

	in.len = (uint32_t)(sizeof(in) + q->head_len + q->rest_len);
	assert_int_equal(writev(k->fd, iov, 3), in.len);
}

void fuse_kernel_open(struct fuse_kernel *k, uint64_t flags)
{
	const struct fuse_init_in init = { .major = FUSE_KERNEL_VERSION,
					   .minor = FUSE_KERNEL_MINOR_VERSION,
					   .max_readahead = 128 << 10,
					   .flags = (uint32_t)(flags | FUSE_INIT_EXT),
					   .flags2 = (uint32_t)(flags >> 32) };
	const int bytes = 4 * (int)MAX_BYTES;
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	for (int i = 0; i < 2; i++)
		setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	*k = (struct fuse_kernel){ .fd = ends[0],
				   .fuse_fd = ends[1],
				   .uid = geteuid(),
				   .gid = getegid(),
				   .pid = (uint32_t)getpid() };
	fuse_kernel_send(k, &(struct fuse_question){
				    .opcode = FUSE_INIT, .head = &init, .head_len = sizeof(init) });
}

void fuse_kernel_take_init(struct fuse_kernel *k)
{
	memset(&k->agreed, 0, sizeof(k->agreed));
	assert_true(fuse_kernel_reply(k, INIT_UNIQUE, &k->agreed, sizeof(k->agreed)) > 0);
	assert_int_equal(k->agreed.major, FUSE_KERNEL_VERSION);
}

void fuse_kernel_start(struct fuse_kernel *k, struct mount *m)
{
	char err[256] = "";

	if (session_start(m, k->fuse_fd, &k->session, err, sizeof(err)) < 0)
		fail_msg("%s", err);
	fuse_kernel_take_init(k);
}

void fuse_kernel_stop(struct fuse_kernel *k)
{
	session_free(k->session);
	k->session = NULL;
}

void fuse_kernel_close(struct fuse_kernel *k)
{
	fuse_kernel_stop(k);
	close(k->fd);
	if (k->fuse_fd >= 0)
		close(k->fuse_fd);
}

void fuse_kernel_serve(struct fuse_kernel *k)
{
	struct fuse_buf buf = { .mem = NULL };

	assert_int_equal(session_receive(k->session, &buf), 1);
	session_answer(k->session, &buf);
	session_free_buffer(&buf);
}

/* The next message; 0: there is none within wait_ms. */
static size_t take(struct fuse_kernel *k, void *message, int wait_ms)
{
	struct pollfd p = { .fd = k->fd, .events = POLLIN };
	ssize_t n;

	if (poll(&p, 1, wait_ms) != 1)
		return 0;
	n = recv(k->fd, message, MAX_BYTES, MSG_DONTWAIT);
	return n > 0 ? (size_t)n : 0;
}

/* True: it is no reply. */
static bool is_notification(struct fuse_kernel *k, const struct fuse_out_header *out, size_t n)
{
	assert_true(n >= sizeof(*out));
	assert_int_equal(out->len, n);
	if (out->unique)
		return false;
	k->n_notified++;
	k->last_notified = out->error;
	return true;
}

ssize_t fuse_kernel_reply(struct fuse_kernel *k, uint64_t unique, void *ret, size_t size)
{
	struct fuse_out_header *out = malloc(MAX_BYTES);
	ssize_t r;
	size_t n;

	assert_non_null(out);
	do {
		n = take(k, out, WAIT_MS);
		if (!n)
			fail_msg("no reply to request %llu", (unsigned long long)unique);
		/* A session that resumes answers INIT once more, which a kernel refuses. */
	} while (is_notification(k, out, n) ||
		 (out->unique == INIT_UNIQUE && unique != INIT_UNIQUE));
	assert_int_equal(out->unique, unique);
	r = out->error ? out->error : (ssize_t)(n - sizeof(*out));
	if (r > 0 && ret)
		memcpy(ret, out + 1, (size_t)r < size ? (size_t)r : size);
	free(out);
	return r;
}

bool fuse_kernel_is_silent(struct fuse_kernel *k)
{
	struct fuse_out_header *out = malloc(MAX_BYTES);
	bool is_silent = true;
	size_t n;

	assert_non_null(out);
	while (is_silent && (n = take(k, out, 0)))
		is_silent = is_notification(k, out, n) || out->unique == INIT_UNIQUE;
	free(out);
	return is_silent;
}

ssize_t fuse_kernel_ask(struct fuse_kernel *k, const struct fuse_question *q, void *ret,
			size_t size)
{
	fuse_kernel_send(k, q);
	if (k->session)
		fuse_kernel_serve(k);
	return fuse_kernel_reply(k, k->unique, ret, size);
}

void fuse_kernel_tell(struct fuse_kernel *k, const struct fuse_question *q)
{
	fuse_kernel_send(k, q);
	if (k->session) {
		fuse_kernel_serve(k);
		assert_true(fuse_kernel_is_silent(k));
	}
}

ssize_t fuse_kernel_ask_name(struct fuse_kernel *k, uint32_t opcode, uint64_t node,
			     const char *name, void *ret, size_t size)
{
	return fuse_kernel_ask(k,
			       &(struct fuse_question){ .opcode = opcode,
							.node = node,
							.rest = name,
							.rest_len = strlen(name) + 1 },
			       ret, size);
}

uint64_t fuse_kernel_node(struct fuse_kernel *k, const char *path)
{
	char *copy = strdup(path), *rest = copy, *name;
	uint64_t node = FUSE_ROOT_ID;

	while ((name = strsep(&rest, "/"))) {
		struct fuse_entry_out e;
		ssize_t r = fuse_kernel_ask_name(k, FUSE_LOOKUP, node, name, &e, sizeof(e));

		if (r != sizeof(e) || !e.nodeid)
			fail_msg("%s: look-up of %s: %zd", path, name, r);
		node = e.nodeid;
	}
	free(copy);
	return node;
}

struct fuse_attr fuse_kernel_attr(struct fuse_kernel *k, uint64_t node)
{
	const struct fuse_getattr_in in = { .dummy = 0 };
	struct fuse_attr_out out;

	assert_int_equal(FUSE_KERNEL_ASK(k, FUSE_GETATTR, node, in, &out, sizeof(out)),
			 sizeof(out));
	return out.attr;
}

ssize_t fuse_kernel_read(struct fuse_kernel *k, uint64_t node, uint64_t off, void *ret, size_t size)
{
	const struct fuse_read_in in = { .offset = off, .size = (uint32_t)size };

	return FUSE_KERNEL_ASK(k, FUSE_READ, node, in, ret, size);
}

ssize_t fuse_kernel_write(struct fuse_kernel *k, uint64_t node, uint64_t off, const void *data,
			  size_t len)
{
	const struct fuse_write_in in = { .offset = off, .size = (uint32_t)len };
	struct fuse_write_out out;
	ssize_t r = FUSE_KERNEL_ASK_WITH(k, FUSE_WRITE, node, in, data, len, &out, sizeof(out));

	return r < 0 ? r : (ssize_t)out.size;
}

uint64_t fuse_kernel_make(struct fuse_kernel *k, uint64_t dir, const char *name, uint32_t mode)
{
	const struct fuse_mknod_in in = { .mode = S_IFREG | mode, .umask = k->umask };
	struct fuse_entry_out e;

	assert_int_equal(
		FUSE_KERNEL_ASK_WITH(k, FUSE_MKNOD, dir, in, name, strlen(name) + 1, &e, sizeof(e)),
		sizeof(e));
	return e.nodeid;
}

struct fuse_kernel fuse_kernel_mount(struct tree_dirs *d, const char *options)
{
	struct fuse_kernel k;

	tree_mount(d, options);
	fuse_kernel_open(&k, 0);
	fuse_kernel_start(&k, &d->m);
	return k;
}

uint64_t fuse_kernel_mount_file(struct fuse_kernel *k, struct tree_dirs *d)
{
	tree_put_text(d, "lower/file", "text");
	*k = fuse_kernel_mount(d, "volatile");
	return fuse_kernel_node(k, "file");
}
