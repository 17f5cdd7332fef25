/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the request handlers: the meaning of a request, and its answer. */
#pragma once

#include "veneer/base/stats.h"
#include "veneer/data/attr.h"
#include "veneer/fuse/op_lock.h"
#include "veneer/mount/mount.h"
#include "veneer/recover/intent_log.h"

#include <errno.h>
#include <fuse_lowlevel.h>

#define SESSION_MAX_WRITE (1u << 20) /* bytes of one request's data */
#define OP_UNIQUE_RESENT  ((uint64_t)1 << 63) /* marks the number of a resent request */

/* Fields of the kernel's request that libfuse does not pass on; of the request this thread is
 * serving. */
struct negotiate_request_extra {
	struct fuse_session *session;
	int notify_fd; /* the session's, for notifications: no clone (unanswered.h) */
	uint64_t unique; /* the kernel's number of the request */
	bool is_resent; /* a dead server may have carried it out already, wholly or in part */
	bool kills_setid; /* FUSE_WRITE_KILL_SUIDGID, FATTR_KILL_SUIDGID: the caller lacks
			     CAP_FSETID */
	int result; /* of a reply that is only an error or success */
	bool kills_acl_setgid; /* FUSE_SETXATTR_ACL_KILL_SGID: nor is it in the file's group */
	/* The node id whose attributes the kernel takes from the reply, or drops at the reply; 0 */
	uint64_t renewed;
};
extern _Thread_local struct negotiate_request_extra negotiate_request_extra;
/* Fill it from the bytes of a request. */
void negotiate_note_extra(struct fuse_session *se, const struct fuse_buf *buf);
/* A SETXATTR has the longer head. */
bool negotiate_has_setxattr_ext(void);

/* The INIT handler: userdata is the mount. */
void negotiate_init(void *userdata, struct fuse_conn_info *conn);

static inline struct mount *op_mount(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* How files are opened: the first call, after the reply to INIT, decides. */
enum io_mode op_open_settle(struct mount *m, struct fuse_session *se);
/* Before the session is served: take over the mode of the dead server; AUTO: it had not decided.
 * Registered files belong to the connection and stay. 0 or -ENOMEM. */
int op_open_resume(struct mount *m, struct fuse_session *se, enum io_mode io);
/* Before the file is truncated by this node id: -ESTALE if a lower file is open by it, and the
 * inode has another id from now on; 0; -errno. */
int op_open_leave_lower(struct mount *m, struct inode *i, fuse_ino_t ino);
/* Open a file that was just made, and reply. Uses up the reference of i. */
void op_open_reply_create(fuse_req_t req, struct inode *i, struct stat *st,
			  struct fuse_file_info *fi);
/* The handle of an open: its way (passthrough_table.h), and where the server keeps locks also the
 * number of the request, so that each open has a handle of its own, with any server. */
static inline uint64_t op_handle(const struct mount *m, uint64_t way)
{
	return m->tree.locks ? negotiate_request_extra.unique << OP_HANDLE_WAY_BITS | way : way;
}
static inline uint64_t op_handle_way(uint64_t handle)
{
	return handle & ((1u << OP_HANDLE_WAY_BITS) - 1);
}
/* After a change by this node id: if the inode has another id by now, have the kernel drop the
 * attributes of that. */
void op_changed(struct inode *i, fuse_ino_t ino);
/* Have the kernel drop an inode's attributes, when a request changed some that the kernel does not
 * expect to change. Before the reply. Waits for nothing, so that any handler may call it. */
void op_forget_attributes(struct inode *i);
/* tree->on_touched: have the kernel drop the attributes. */
void op_touched(struct union_fs *t, struct inode *i);
/* How long the kernel may rely on attributes sent for this node id. */
double op_attr_timeout(struct mount *m, struct inode *i, uint64_t node);

/* Log the intent of this request, for the next server if this one dies before the reply. The
 * responder ends it. NULL: none. */
struct intent *resend_state_begin(fuse_req_t req, enum intent_kind kind);
struct intent *resend_state_begin_names(fuse_req_t req, enum intent_kind kind, fuse_ino_t parent,
					const char *name, fuse_ino_t newparent,
					const char *newname);
/* attr_change_begin for this request; attr_change_end before the reply. */
void resend_state_change_begin(fuse_req_t req, struct inode *i);

/* Around a change of a file's bytes. If the kernel says that the set-id bits go, they go first, and
 * the kernel is told: it expects no other mode. Otherwise attr_setid_begin, with the bits that the
 * change takes away for a moment in the journal. 0 or -errno. */
int killpriv_begin(fuse_req_t req, struct inode *i, bool keeps_capability, struct attr_setid *s);
/* Follows killpriv_begin in any case; r as for attr_setid_end. The kernel may have seen the mode of
 * that moment. */
int killpriv_end(struct mount *m, struct inode *i, struct attr_setid *s, int r);

/* The only way to reply with an error, or with nothing but success. EUCLEAN is EIO to programs. */
static inline void op_reply_err(fuse_req_t req, int r)
{
	/* No failures: ENOSYS asks the kernel not to ask again, and ENODATA says that an attribute
	 * is absent. */
	if (r < 0 && r != -ENOSYS && r != -ENODATA)
		stats_request_failed();
	negotiate_request_extra.result = r;
	fuse_reply_err(req, r == -EUCLEAN ? EIO : -r);
}

/* The inode of a node id, resolved. NULL: there is none (ESTALE), or it cannot be resolved, and the
 * request has been answered. */
struct inode *op_inode(fuse_req_t req, fuse_ino_t ino);
/* Reply to a look-up or creation: the error r, or i with st, which is as on disk. The reference of
 * i becomes a look-up of the kernel's, or is dropped if the kernel does not take the reply. */
void op_reply_entry(fuse_req_t req, int r, struct inode *i, struct stat *st);
void op_fill_entry(struct mount *m, struct inode *i, struct stat *st, struct fuse_entry_param *e);

/* The caller of a request, as /proc shows it: is it in the group with this id on disk, or
 * privileged to set its bit; has it the capability in our user namespace? In doubt no. Each takes
 * tens of microseconds. */
bool caller_may_setgid(void *req, gid_t gid);
bool caller_has_cap(void *req, int cap);
/* Is it a process of our user, in our user namespace, that has CAP_SYS_ADMIN if we have it? */
bool caller_may_unmount(void *req);

/* As killpriv_begin, for requests that do not say whether the bits go (FALLOCATE, COPY_FILE_RANGE):
 * only callers with CAP_FSETID keep them, and only those of the first user namespace. */
int killpriv_clear_unless_privileged(fuse_req_t req, struct inode *i);
/* security.capability was removed, as the kernel itself does before a write and in chown(2). */
void killpriv_note_capability_lost(fuse_req_t req, const struct inode *i);
/* For a SETATTR that sets nothing. The reply shows the mode. */
int killpriv_lose(fuse_req_t req, struct inode *i, fuse_ino_t ino);

/* Do the chattr(1) flags of a lower file or directory allow a change of it, or of a name in it? 0,
 * -EPERM or -errno. */
int protect_may_change(struct mount *m, struct inode *i);
int protect_may_add(struct mount *m, struct inode *dir);
/* Likewise: may the kernel write to the file of the upper by itself (io=passthrough)? */
int protect_may_passthrough(struct mount *m, struct inode *i);
int protect_may_remove(struct mount *m, struct inode *dir, const char *name);
/* The name may be absent. */
int protect_may_replace(struct mount *m, struct inode *dir, const char *name);

/* After ENOSPC or EDQUOT wait a moment: an unlinked file frees its room, and its inode, when the
 * kernel forgets it. True: a moment has passed, so try again. *attempts is 0 at first. Without any
 * lock held. */
bool op_data_waits_for_room(fuse_req_t req, ssize_t r, unsigned *attempts);

/* At the end of a thread that served requests: free its read buffer. */
void op_data_thread_release(void);

void op_open_install(struct fuse_lowlevel_ops *ops);
void op_meta_install(struct fuse_lowlevel_ops *ops);
void op_name_install(struct fuse_lowlevel_ops *ops);
void op_data_install(struct fuse_lowlevel_ops *ops);
void op_dir_install(struct fuse_lowlevel_ops *ops);
void op_xattr_install(struct fuse_lowlevel_ops *ops);
void op_ioctl_install(struct fuse_lowlevel_ops *ops);
/* For a mount that keeps locks (tree->locks): the kernel must send opens and closes. */
void op_lock_install(struct fuse_lowlevel_ops *ops);
