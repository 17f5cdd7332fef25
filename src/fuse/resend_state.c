// SPDX-License-Identifier: Apache-2.0
/* The kernel resends requests that a dead server had read and not answered, whether that server had
 * begun them or not (before Linux 6.9 it does not: kernel_invalidate.h). The needs of each:
 *
 * LOOKUP, READDIRPLUS   nothing. A look-up may be counted twice, and is then never given back:
 *                       harmless
 * GETATTR, READ, READLINK, READDIR, STATFS, LSEEK, GETXATTR, LISTXATTR
 *                       nothing: they change nothing
 * OPEN                  nothing. Its file may count one open too many: it goes with the node
 * RELEASE               at most once: one open too few would pass through a file that another
 *                       process writes
 * CREATE, MKNOD, MKDIR, SYMLINK, LINK, UNLINK, RMDIR, RENAME
 *                       replay.c; the open of CREATE as OPEN. The request is not resent when
 *                       its caller was killed before: the name is invalidated
 *                       (kernel_invalidate.h)
 * TMPFILE               nothing: the first file has no name, and goes when the next server closes
 *                       it
 * WRITE                 nothing: the offset is in it, also of O_APPEND. Set-id bits that the writer
 *                       keeps, and capabilities, are put back after it: they are in the intent
 *                       (INTENT_SETID), until another request changes the file
 * SETATTR               nothing: all of it is absolute, and "now" is a later now. A truncation is
 *                       like WRITE
 * FALLOCATE             nothing: ranges that are emptied, zeroed or filled stay so. The kernel
 *                       sends no others
 * COPY_FILE_RANGE       nothing: offsets are in it, and the kernel lets no range overlap itself
 * SETXATTR              with XATTR_CREATE: an attribute with this value is success if it was not
 *                       there before
 * REMOVEXATTR           a missing attribute is success if it was there before
 * FSYNC, FLUSH          nothing
 * GETLK, SETLK, SETLKW  nothing: an owner that has the lock is given it again, and a waiter waits
 *                       again
 * FORGET                is not resent: its look-ups stay counted. Harmless
 *
 * The kernel holds the inode during a change of it, and the directories during a change of one of
 * their names, from before it sends the request until it has the reply. No other request changes
 * the same in between. Exceptions: pages of a mapping written back, and a write of O_DIRECT that
 * its caller does not wait for. */
#include "veneer/fuse/resend_state.h"

#include "op.h"

#include "veneer/data/attr.h"
#include "veneer/data/replay.h"
#include "veneer/recover/intent_log.h"

struct intent *resend_state_begin(fuse_req_t req, enum intent_kind kind)
{
	return resend_state_begin_names(req, kind, 0, NULL, 0, NULL);
}

struct intent *resend_state_begin_names(fuse_req_t req, enum intent_kind kind, fuse_ino_t parent,
					const char *name, fuse_ino_t newparent, const char *newname)
{
	return intent_log_begin(&(struct intent_request){
		.key = op_mount(req)->key,
		.unique = negotiate_request_extra.unique,
		.kind = kind,
		.is_resent = negotiate_request_extra.is_resent,
		.from_parent = parent,
		.from_name = name,
		.to_parent = newparent,
		.to_name = newname,
	});
}

void resend_state_change_begin(fuse_req_t req, struct inode *i)
{
	attr_change_begin(&op_mount(req)->tree, i, op_mount(req)->key,
			  negotiate_request_extra.unique);
}

void resend_state_settle(struct mount *m)
{
	if (m->key && m->tree.upper)
		replay_settle(&m->tree, m->key);
}
