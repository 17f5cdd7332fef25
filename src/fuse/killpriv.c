// SPDX-License-Identifier: Apache-2.0
/* Clears set-id bits at changes of a file's bytes (FUSE_HANDLE_KILLPRIV_V2). The kernel has the
 * server clear them, executes files by its cached mode, and expects no other mode after any request
 * but SETATTR:
 *
 * WRITE                       a flag says that the bits go
 * SETATTR of the size         likewise; the reply has the new mode
 * FALLOCATE, COPY_FILE_RANGE  no flag: the caller's capabilities are looked up
 * SETATTR of nothing          comes before a write through the page cache or past the server, and
 *                             from chown(2) with neither id, which any user may call for any file
 *
 * The bits are cleared before the bytes change, then the kernel's mode is invalidated
 * (FUSE_NOTIFY_INVAL_INODE without pages, which waits for nothing). A server that dies between the
 * two leaves an intent: the request is resent, or its node invalidated. */
#include "op.h"

#include "veneer/data/attr.h"
#include "veneer/data/replay.h"
#include "veneer/passthrough/passthrough_table.h"
#include "veneer/union/lookup.h"

#include <dirent.h>
#include <linux/capability.h>
#include <stdatomic.h>

static int clear(fuse_req_t req, struct inode *i)
{
	struct union_fs *t = &op_mount(req)->tree;
	struct attr_setid setid;
	mode_t mode;
	int r;

	/* Wait for a write that is about to put the bits back. */
	attr_setid_begin(t, i, false, false, &setid);
	r = setid.lock && !setid.mode ? 0 : attr_without_setid(t, i, caller_may_setgid, req, &mode);
	setid.mode = 0;
	if (r > 0) {
		resend_state_begin(req, INTENT_SETID);
		intent_log_about(inode_for_intent(i), INTENT_NOTHING);
		r = attr_chmod(t, i, mode);
		op_forget_attributes(i);
	} else if (negotiate_request_extra.is_resent) {
		op_forget_attributes(i);
	}
	return attr_setid_end(t, i, &setid, r);
}

static bool has_setid(struct union_fs *t, struct inode *i, struct stat *ret)
{
	return lookup_stat(t, i, ret) == 0 && ret->st_mode & (S_ISUID | S_ISGID);
}

int killpriv_clear_unless_privileged(fuse_req_t req, struct inode *i)
{
	struct union_fs *t = &op_mount(req)->tree;
	struct stat st;
	int r = lookup_stat(t, i, &st);

	/* Without privileges a write under way may be about to put the bits back. */
	if (r < 0 || (t->can.has_trusted_xattr && ((!(st.st_mode & (S_ISUID | S_ISGID)) &&
						    !negotiate_request_extra.is_resent) ||
						   caller_has_cap(req, CAP_FSETID))))
		return r;
	return clear(req, i);
}

/* Is the caller the owner, or has it CAP_FOWNER? */
static bool is_owner(fuse_req_t req, struct stat *st)
{
	mount_present_ids(op_mount(req), st);
	return fuse_req_ctx(req)->uid == st->st_uid || caller_has_cap(req, CAP_FOWNER);
}

/* Is the file open by this node id so that the server sees no write? */
static bool is_written_by_kernel(struct mount *m, fuse_ino_t ino)
{
	struct passthrough_table *b = m->tree.backing;
	const struct node_slot *s = b ? inode_slot(&m->tree, ino) : NULL;

	return s && passthrough_table_is_upper(passthrough_table_kind_in_use(b, s));
}

/* Node and thread of the last such removal that succeeded. It comes before the SETATTR of nothing,
 * by the same thread. */
static _Atomic uint64_t last_capability_lost;

static uint64_t capability_loss(fuse_req_t req, const struct inode *i)
{
	return (uint64_t)inode_id(i) << 32 | (uint32_t)fuse_req_ctx(req)->pid;
}

void killpriv_note_capability_lost(fuse_req_t req, const struct inode *i)
{
	atomic_store(&last_capability_lost, capability_loss(req, i));
}

/* A privileged caller keeps the bits of a file that it writes: the kernel sent the request because
 * of the capability. */
static bool is_privileged_write(fuse_req_t req, const struct inode *i)
{
	uint64_t loss = capability_loss(req, i);

	return atomic_compare_exchange_strong(&last_capability_lost, &loss, 0) &&
	       op_mount(req)->tree.can.has_trusted_xattr && caller_has_cap(req, CAP_FSETID);
}

/* A caller that is not the owner is about to write, and the WRITE clears the bits; or calls
 * chown(2), and shall not clear them. */
int killpriv_lose(fuse_req_t req, struct inode *i, fuse_ino_t ino)
{
	struct mount *m = op_mount(req);
	struct stat st;

	if (inode_is_dir(i) || !has_setid(&m->tree, i, &st) || is_privileged_write(req, i))
		return 0;
	return is_written_by_kernel(m, ino) || is_owner(req, &st) ? clear(req, i) : 0;
}

int killpriv_begin(fuse_req_t req, struct inode *i, bool keeps_capability, struct attr_setid *s)
{
	struct union_fs *t = &op_mount(req)->tree;

	/* The bits go first, as in a local file system: a program that is half written must not run
	 * with them. */
	if (negotiate_request_extra.kills_setid) {
		*s = (struct attr_setid){ .lock = NULL };
		return clear(req, i);
	}
	attr_setid_begin(t, i, keeps_capability, negotiate_request_extra.is_resent, s);
	/* Nearly no file has such bits, and then no intent is needed. */
	if (s->mode || s->capability_len || negotiate_request_extra.is_resent)
		replay_setid(t, i, resend_state_begin(req, INTENT_SETID), keeps_capability, s);
	return 0;
}

int killpriv_end(struct mount *m, struct inode *i, struct attr_setid *s, int r)
{
	const bool was_changed = s->lock && s->mode;

	r = attr_setid_end(&m->tree, i, s, r);
	if (was_changed)
		op_forget_attributes(i);
	return r;
}
