// SPDX-License-Identifier: Apache-2.0
/* Negotiates INIT with the kernel, and keeps the parts of requests that libfuse does not pass
 * on. */
#include "op.h"

#include "veneer/base/stats.h"

#include <linux/fuse.h>

_Thread_local struct negotiate_request_extra negotiate_request_extra;

static void want(struct fuse_conn_info *conn, uint64_t flag, bool is_wanted)
{
	if (is_wanted)
		fuse_set_feature_flag(conn, flag);
	else
		fuse_unset_feature_flag(conn, flag);
}

static _Atomic bool has_setxattr_ext; /* of the kernel, so of all mounts */

/* A change of this reply takes another SESSION_INIT_VERSION: for a mount that is resumed, the
 * kernel has the reply of the previous build. */
void negotiate_init(void *userdata, struct fuse_conn_info *conn)
{
	struct mount *m = userdata;
	const bool caches = m->opts.timeout_s > 0, keeps_writes = mount_keeps_writes(m);

	m->has_begun = true;
	conn->max_write = SESSION_MAX_WRITE;
	conn->max_background = 64;
	conn->congestion_threshold = 48;
	conn->time_gran = 1;
	want(conn, FUSE_CAP_ASYNC_READ, true);
	want(conn, FUSE_CAP_PARALLEL_DIROPS, true);
	want(conn, FUSE_CAP_READDIRPLUS, true);
	want(conn, FUSE_CAP_READDIRPLUS_AUTO, true);
	want(conn, FUSE_CAP_CACHE_SYMLINKS, caches);
	/* A handle would outlive the node id it names: it could be opened until the kernel forgets
	 * the file, and ESTALE then. In the same superblock the kernel would open known files of
	 * other mounts for a program that guesses the handle. */
	want(conn, FUSE_CAP_EXPORT_SUPPORT, false);
	want(conn, FUSE_CAP_NO_EXPORT_SUPPORT, true);
	want(conn, FUSE_CAP_IOCTL_DIR, true);
	want(conn, FUSE_CAP_DONT_MASK, true);
	want(conn, FUSE_CAP_POSIX_ACL,
	     !m->opts.has_no_acl && (!m->tree.upper || m->tree.can.has_acl));
	want(conn, FUSE_CAP_SETXATTR_EXT, true);
	has_setxattr_ext = fuse_get_feature_flag(conn, FUSE_CAP_SETXATTR_EXT);
	/* Otherwise each write asks for security.capability first. The handlers clear set-id
	 * bits. */
	want(conn, FUSE_CAP_HANDLE_KILLPRIV, false);
	want(conn, FUSE_CAP_HANDLE_KILLPRIV_V2, true);
	/* Opens need no request, unless locks end with them. */
	want(conn, FUSE_CAP_NO_OPEN_SUPPORT, caches && !m->tree.locks);
	want(conn, FUSE_CAP_NO_OPENDIR_SUPPORT, caches);
	want(conn, FUSE_CAP_ATOMIC_O_TRUNC, false);
	/* All changes come through us, so the pages never go stale. */
	want(conn, FUSE_CAP_AUTO_INVAL_DATA, !caches);
	want(conn, FUSE_CAP_WRITEBACK_CACHE, keeps_writes);
	/* A file may be mapped also where it is read past the page cache. */
	want(conn, FUSE_CAP_DIRECT_IO_ALLOW_MMAP, true);
	want(conn, FUSE_CAP_PASSTHROUGH,
	     !keeps_writes && (m->opts.io == IO_AUTO || m->opts.io == IO_PASSTHROUGH));
	m->has_passthrough = fuse_get_feature_flag(conn, FUSE_CAP_PASSTHROUGH);
	/* Without these the kernel keeps locks itself. */
	want(conn, FUSE_CAP_POSIX_LOCKS, m->tree.locks);
	want(conn, FUSE_CAP_FLOCK_LOCKS, m->tree.locks);
	/* Slower than a copy (measured), and a write would come in a pipe. */
	want(conn, FUSE_CAP_SPLICE_READ, false);
	want(conn, FUSE_CAP_SPLICE_WRITE, false);
	want(conn, FUSE_CAP_SPLICE_MOVE, false);
}

bool negotiate_has_setxattr_ext(void)
{
	return has_setxattr_ext;
}

void negotiate_note_extra(struct fuse_session *se, const struct fuse_buf *buf)
{
	const struct fuse_in_header *in = buf->mem;
	const void *arg = in + 1;

	negotiate_request_extra = (struct negotiate_request_extra){ .session = se };
	if (buf->size < sizeof(*in))
		return;
	negotiate_request_extra.unique = in->unique & ~OP_UNIQUE_RESENT;
	negotiate_request_extra.is_resent = in->unique & OP_UNIQUE_RESENT;
	stats_count_request(in->opcode);
	if (in->opcode == FUSE_WRITE && buf->size >= sizeof(*in) + sizeof(struct fuse_write_in))
		negotiate_request_extra.kills_setid =
			((const struct fuse_write_in *)arg)->write_flags & FUSE_WRITE_KILL_SUIDGID;
	else if (in->opcode == FUSE_SETATTR &&
		 buf->size >= sizeof(*in) + sizeof(struct fuse_setattr_in))
		negotiate_request_extra.kills_setid = ((const struct fuse_setattr_in *)arg)->valid &
						      FATTR_KILL_SUIDGID;
	else if (in->opcode == FUSE_SETXATTR && has_setxattr_ext &&
		 buf->size >= sizeof(*in) + sizeof(struct fuse_setxattr_in))
		negotiate_request_extra.kills_acl_setgid =
			((const struct fuse_setxattr_in *)arg)->setxattr_flags &
			FUSE_SETXATTR_ACL_KILL_SGID;
}
