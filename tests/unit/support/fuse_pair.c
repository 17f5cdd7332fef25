// SPDX-License-Identifier: Apache-2.0
#include "support/fuse_pair.h"

#include "support/tree.h"

#include <fuse_lowlevel.h>
#include <sys/socket.h>

static ssize_t send_reply(int fd, struct iovec *iov, int count, void *userdata)
{
	(void)userdata;
	return writev(fd, iov, count);
}

static ssize_t receive(int fd, void *buf, size_t len, void *userdata)
{
	(void)userdata;
	return read(fd, buf, len);
}

struct fuse_session *fuse_pair_open_with(int ends[2], const struct fuse_lowlevel_ops *ops,
					 void *userdata)
{
	const struct fuse_custom_io io = { .writev = send_reply, .read = receive };
	char *argv[] = { (char *)"test" };
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	struct fuse_session *se = fuse_session_new(&args, ops, sizeof(*ops), userdata);

	fuse_opt_free_args(&args);
	assert_non_null(se);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(fuse_session_custom_io(se, &io, sizeof(io), ends[0]), 0);
	return se;
}

struct fuse_session *fuse_pair_open(int ends[2])
{
	return fuse_pair_open_with(ends, &(struct fuse_lowlevel_ops){ .init = NULL }, NULL);
}
