/* SPDX-License-Identifier: Apache-2.0 */
/* A session of libfuse with the handlers ops, and a socket in place of /dev/fuse: ends[0] is the
 * session's, which fuse_session_destroy closes, ends[1] the kernel's. */
#pragma once

struct fuse_lowlevel_ops;
struct fuse_session;

struct fuse_session *fuse_pair_open_with(int ends[2], const struct fuse_lowlevel_ops *ops,
					 void *userdata);
/* Without any handler. */
struct fuse_session *fuse_pair_open(int ends[2]);
