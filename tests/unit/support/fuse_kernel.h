/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's side of a mount, over a socket in place of /dev/fuse: it says INIT, asks and reads
 * replies. Everything asserts. A reply that does not come fails the test after a minute. */
#pragma once

#include <linux/fuse.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct mount;
struct session;
struct tree_dirs;

struct fuse_kernel {
	int fd; /* the kernel's end */
	int fuse_fd; /* the server's end: duplicated by a session, closed by fuse_kernel_close */
	struct session *session; /* of fuse_kernel_start: served by the thread that asks */
	uint64_t unique; /* of the last request */
	uint32_t uid, gid, pid; /* of the caller */
	uint32_t umask;
	unsigned n_notified; /* notifications read so far, */
	int last_notified; /* and the code of the last one */
	struct fuse_init_out agreed; /* the answer to INIT */
};

struct fuse_question {
	uint32_t opcode;
	uint64_t node;
	const void *head; /* the fixed part; NULL: none */
	size_t head_len;
	const void *rest; /* names, their ends included, or bytes */
	size_t rest_len;
};

/* The caller is this process. INIT, with every flag of flags, waits for a session. */
void fuse_kernel_open(struct fuse_kernel *k, uint64_t flags);
/* A session of m answers INIT; the test's thread serves it from now on. */
void fuse_kernel_start(struct fuse_kernel *k, struct mount *m);
/* tree_mount, and the kernel of the mount, which takes none of INIT's flags. */
struct fuse_kernel fuse_kernel_mount(struct tree_dirs *d, const char *options);
/* Such a volatile mount of a lower layer in which "file" has the content "text". Its node. */
uint64_t fuse_kernel_mount_file(struct fuse_kernel *k, struct tree_dirs *d);
/* Read the reply to INIT, when another session has given it. */
void fuse_kernel_take_init(struct fuse_kernel *k);
/* End the session of fuse_kernel_start. */
void fuse_kernel_stop(struct fuse_kernel *k);
/* Both ends. */
void fuse_kernel_close(struct fuse_kernel *k);

/* Send one, which nobody answers yet. */
void fuse_kernel_send(struct fuse_kernel *k, const struct fuse_question *q);
/* Serve one request that was sent. */
void fuse_kernel_serve(struct fuse_kernel *k);
/* Read a reply to the request with this number: the bytes of its body, at most size of them in ret,
 * or -errno. */
ssize_t fuse_kernel_reply(struct fuse_kernel *k, uint64_t unique, void *ret, size_t size);
/* Is nothing to be read? Notifications are, and are counted. */
bool fuse_kernel_is_silent(struct fuse_kernel *k);
/* Send, serve unless a pool does, and read the reply. */
ssize_t fuse_kernel_ask(struct fuse_kernel *k, const struct fuse_question *q, void *ret,
			size_t size);
/* Likewise, without a reply. */
void fuse_kernel_tell(struct fuse_kernel *k, const struct fuse_question *q);

/* Requests with a name alone, with a fixed part alone, and with both. 0 or more, or -errno. */
ssize_t fuse_kernel_ask_name(struct fuse_kernel *k, uint32_t opcode, uint64_t node,
			     const char *name, void *ret, size_t size);
#define FUSE_KERNEL_ASK(k, opcode_, node_, head_, ret, size)                  \
	fuse_kernel_ask(k,                                                    \
			&(struct fuse_question){ .opcode = (opcode_),         \
						 .node = (node_),             \
						 .head = &(head_),            \
						 .head_len = sizeof(head_) }, \
			ret, size)
#define FUSE_KERNEL_ASK_WITH(k, opcode_, node_, head_, rest_, len, ret, size) \
	fuse_kernel_ask(k,                                                    \
			&(struct fuse_question){ .opcode = (opcode_),         \
						 .node = (node_),             \
						 .head = &(head_),            \
						 .head_len = sizeof(head_),   \
						 .rest = (rest_),             \
						 .rest_len = (len) },         \
			ret, size)

/* The node of a path from the root, each part of it looked up once; fails the test without one. */
uint64_t fuse_kernel_node(struct fuse_kernel *k, const char *path);
/* The attributes of a node. */
struct fuse_attr fuse_kernel_attr(struct fuse_kernel *k, uint64_t node);
/* The bytes of a file: how many, or -errno. */
ssize_t fuse_kernel_read(struct fuse_kernel *k, uint64_t node, uint64_t off, void *ret,
			 size_t size);
ssize_t fuse_kernel_write(struct fuse_kernel *k, uint64_t node, uint64_t off, const void *data,
			  size_t len);
/* Make a regular file, and look it up. */
uint64_t fuse_kernel_make(struct fuse_kernel *k, uint64_t dir, const char *name, uint32_t mode);
