/* SPDX-License-Identifier: Apache-2.0 */
/* A session of libfuse without handlers, and a socket in place of /dev/fuse: ends[0] is the
 * session's, which fuse_session_destroy closes, ends[1] the kernel's. */
#pragma once

struct fuse_session;

struct fuse_session *fuse_pair_open(int ends[2]);
