/* SPDX-License-Identifier: Apache-2.0 */
/* Has the kernel forget what it may know wrongly. Where it ends the requests of a dead server
 * (session.c, read_by_clone), they may have been carried out all the same, and the kernel, which
 * saw them fail, believes that nothing has changed. The names and attributes at stake are noted in
 * the journal while a request is under way, and the next server tells the kernel to forget them.
 * Where requests come again, the same is so of those whose caller was killed before they did. */
#pragma once

#include <fuse_lowlevel.h>
#include <stdint.h>

struct kernel_invalidate;
struct intent;

/* The request in buf, of the mount with this key, is about to be carried out. NULL: nothing need be
 * noted, or can be. */
struct intent *kernel_invalidate_note(uint64_t key, const struct fuse_buf *buf);
/* Collect what the requests that were under way when the previous server died, which are over, may
 * have changed. The notes stay in the journal until the kernel is told. NULL: nothing, or no
 * memory. */
struct kernel_invalidate *kernel_invalidate_take(uint64_t key);
/* Likewise of those that will not come again, once no others can: names that were made, and
 * attributes of their directories. */
struct kernel_invalidate *kernel_invalidate_take_left(uint64_t key);
/* Have the kernel forget it: fuse_fd is the connection's, and not what requests are read by. In a
 * process beside, which waits for holders of a directory or a page, and so perhaps for an answer to
 * their request. Its end is nobody's affair (SIGCHLD is ignored). d, which may be NULL, is
 * freed. */
void kernel_invalidate_tell(struct kernel_invalidate *d, int fuse_fd);
void kernel_invalidate_free(struct kernel_invalidate *d);

/* Have the kernel write the changed pages of a range and forget all of them, for a request that is
 * being answered; waits for requests that other threads, or the next server, must answer. */
void kernel_invalidate_forget_pages(int fuse_fd, uint64_t node, int64_t off, int64_t len);
