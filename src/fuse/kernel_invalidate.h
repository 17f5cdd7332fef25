/* SPDX-License-Identifier: Apache-2.0 */
/* Has the kernel drop cached names and attributes that a dead server may have changed. A kernel
 * that ends the requests of a dead server (unanswered.h) saw them fail and believes that nothing
 * has changed, but the server may have carried them out. Their names and nodes are noted in the
 * journal while they run, and the next server invalidates them. Where the kernel resends requests,
 * the same is done for requests whose caller was killed before they were resent. */
#pragma once

#include <fuse_lowlevel.h>
#include <stdint.h>

struct kernel_invalidate;
struct intent;

/* Note the request in buf, of the mount with this key, before it is carried out. NULL: it needs no
 * note, or there is no room for one. */
struct intent *kernel_invalidate_note(uint64_t key, const struct fuse_buf *buf);
/* Collect the possible changes of the requests that ran when the previous server died. The notes
 * stay in the journal until the kernel is notified. NULL: nothing, or no memory. */
struct kernel_invalidate *kernel_invalidate_take(uint64_t key);
/* Likewise of requests that were not resent, once no other can be: names that were made, and
 * attributes of their directories. */
struct kernel_invalidate *kernel_invalidate_take_left(uint64_t key);
/* Notify the kernel by fuse_fd, a descriptor of the connection by which no request is read. A child
 * process does it, as it waits for holders of a directory or a page, and so perhaps for an answer
 * to their request. Nobody waits for the child (SIGCHLD is ignored). Frees d, which may be NULL. */
void kernel_invalidate_send(struct kernel_invalidate *d, int fuse_fd);
void kernel_invalidate_free(struct kernel_invalidate *d);

/* Other invalidations, of no dead server's request: names to look up again (mounts on them stay);
 * with "" for a name, attributes and pages of a node, with NULL the former alone. */
struct kernel_invalidate *kernel_invalidate_new(void);
void kernel_invalidate_put(struct kernel_invalidate *d, uint64_t node, const char *name);
/* Something could not be found out. */
void kernel_invalidate_put_failed(struct kernel_invalidate *d);
/* Once: begin to notify the kernel of that, as kernel_invalidate_send does; d stays. 0 or
 * -errno. */
int kernel_invalidate_start(struct kernel_invalidate *d, int fuse_fd);
/* 0: all is said; -ENOMEM: so it is, but d lacks some; -ETIMEDOUT: it goes on; -EIO: child after
 * child ended before; -errno. */
int kernel_invalidate_wait(struct kernel_invalidate *d, int wait_ms);

/* Have the kernel write the changed pages of a range and drop all of them, for a request that is
 * being answered. Waits for requests that other threads, or the next server, must answer. */
void kernel_invalidate_forget_pages(int fuse_fd, uint64_t node, int64_t off, int64_t len);
/* Give the kernel the first bytes of a file as its pages, also over existing ones. Waits for the
 * holder of one of them, which must not wait for an answer of a server. */
void kernel_invalidate_store(int fuse_fd, uint64_t node, const void *bytes, size_t len);
