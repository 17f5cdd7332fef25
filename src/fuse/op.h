/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the request handlers of src/fuse: what a request means, and how it is answered. */
#pragma once

#include "veneer/base/stats.h"
#include "veneer/data/attr.h"
#include "veneer/fuse/op_lock.h"
#include "veneer/mount/mount.h"
#include "veneer/recover/intent_log.h"

#include <errno.h>
#include <fuse_lowlevel.h>

#define SESSION_MAX_WRITE (1u << 20) /* bytes of one request's data */
#define OP_UNIQUE_RESENT  ((uint64_t)1 << 63) /* in the number of a request that comes again */

/* Fields of the kernel's request that libfuse does not pass on; of the request this thread is
 * serving. */
struct negotiate_request_extra {
	struct fuse_session *session; /* that it came by */
	int tell_fd; /* its, for messages to the kernel: not what requests are read by if that ends
			them */
	uint64_t unique; /* the kernel's number of it */
	bool is_resent; /* a server that died may have carried it out already, as a whole or in
			 * part */
	bool kills_setid; /* FUSE_WRITE_KILL_SUIDGID, FATTR_KILL_SUIDGID: the caller lacks
			     CAP_FSETID */
	int result; /* of an answer that says no more than that */
	bool kills_acl_setgid; /* FUSE_SETXATTR_ACL_KILL_SGID: nor is it in the file's group */
};
extern _Thread_local struct negotiate_request_extra negotiate_request_extra;
/* Fill it from a request as it came. */
void negotiate_note_extra(struct fuse_session *se, const struct fuse_buf *buf);
/* A SETXATTR has the longer head. */
bool negotiate_has_setxattr_ext(void);

/* The INIT handler: userdata is the mount. */
void negotiate_init(void *userdata, struct fuse_conn_info *conn);

static inline struct mount *op_mount(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* Decide how files are opened, once the kernel has had its answer to INIT; later calls only
 * tell. */
enum io_mode op_open_settle(struct mount *m, struct fuse_session *se);
/* The mode is what it was under the server that is dead; AUTO: that had not decided. Registered
 * files are the connection's, and stay. Before anything is served. 0 or -ENOMEM. */
int op_open_resume(struct mount *m, struct fuse_session *se, enum io_mode io);
/* The file is about to be cut by this node id: -ESTALE if a lower file is open by it, and the inode
 * has another id from now on; 0; -errno. */
int op_open_leave_lower(struct mount *m, struct inode *i, fuse_ino_t ino);
/* Reply to a request that made a file, and opens it. i is referenced; the reference is used up. */
void op_open_reply_create(fuse_req_t req, struct inode *i, struct stat *st,
			  struct fuse_file_info *fi);
/* Make the handle of an open: the way (passthrough_table.h) that it gets its bytes by, and where
 * the server keeps locks also the request that it came by, so that each open has a handle of its
 * own, with any server. */
static inline uint64_t op_handle(const struct mount *m, uint64_t way)
{
	return m->tree.locks ? negotiate_request_extra.unique << OP_HANDLE_WAY_BITS | way : way;
}
static inline uint64_t op_handle_way(uint64_t handle)
{
	return handle & ((1u << OP_HANDLE_WAY_BITS) - 1);
}
/* An inode was changed by way of this node id: if it has another one by now, what the kernel knows
 * of that is old. */
void op_changed(struct inode *i, fuse_ino_t ino);
/* The kernel asks for the attributes of an inode when it needs them next: a request changed some
 * that it does not expect to change. Waits for nothing, so that any handler may call it. Before the
 * reply. */
void op_forget_attributes(struct inode *i);
/* tree->on_touched: what the kernel knows of the attributes is old. */
void op_touched(struct union_fs *t, struct inode *i);
/* How long the kernel may rely on attributes sent for this node id. */
double op_attr_timeout(struct mount *m, struct inode *i, uint64_t node);

/* A request begins of which the next server must know if this one dies in it; intent_log_end after
 * the reply. NULL: none. */
struct intent *resend_state_begin(fuse_req_t req, enum intent_kind kind);
struct intent *resend_state_begin_names(fuse_req_t req, enum intent_kind kind, fuse_ino_t parent,
					const char *name, fuse_ino_t newparent,
					const char *newname);
/* attr_change_begin, which see; attr_change_end before the reply. */
void resend_state_change_begin(fuse_req_t req, struct inode *i);

/* attr_setid_begin, with what is taken away for a moment in the journal. */
void killpriv_begin(fuse_req_t req, struct inode *i, bool keeps_capability, struct attr_setid *s);
/* attr_setid_end; the kernel may have seen the mode of that moment. */
int killpriv_end(struct mount *m, struct inode *i, struct attr_setid *s, int r);

/* The only way to answer with an error, or with nothing but success. Damage is EIO to the
 * outside. */
static inline void op_reply_err(fuse_req_t req, int r)
{
	/* No failures: ENOSYS asks the kernel not to ask again, and ENODATA says that an attribute
	 * is absent. */
	if (r < 0 && r != -ENOSYS && r != -ENODATA)
		stats_request_failed();
	negotiate_request_extra.result = r;
	fuse_reply_err(req, r == -EUCLEAN ? EIO : -r);
}

/* The inode of a node id, filled; answers the error itself and gives NULL when there is none
 * (ESTALE), or it cannot be had. */
struct inode *op_inode(fuse_req_t req, fuse_ino_t ino);
/* Reply to a look-up or creation: st is as on disk. i is referenced; the reference becomes a
 * look-up of the kernel's, which is given back if it does not take it. */
void op_reply_entry(fuse_req_t req, struct inode *i, struct stat *st);
void op_fill_entry(struct mount *m, struct inode *i, struct stat *st, struct fuse_entry_param *e);

/* The caller of a request, as /proc shows it: is it in the group of this id on disk, or privileged
 * to set its bit; has it the capability in our user namespace? In doubt no. Tens of microseconds:
 * ask where it matters. */
bool caller_may_setgid(void *req, gid_t gid);
bool caller_has_cap(void *req, int cap);
/* Is it a process of our user, in our user namespace, that has the privilege if we have it? */
bool caller_may_unmount(void *req);

/* The set-id bits of a file go before its bytes change, and the kernel is told: it expects no other
 * mode (killpriv.c). intent_log_end after the reply. 0 or -errno. */
int killpriv_clear(fuse_req_t req, struct inode *i);
/* For what the kernel leaves to us without saying what the caller may: only the privileged keep the
 * set-id bits, and only those of the first user namespace. */
int killpriv_clear_unless_privileged(fuse_req_t req, struct inode *i);
/* security.capability was removed, which the kernel does itself before a write and in chown(2). */
void killpriv_note_capability_lost(fuse_req_t req, const struct inode *i);
/* For a SETATTR that sets nothing. The reply tells of it. */
int killpriv_lose(fuse_req_t req, struct inode *i, fuse_ino_t ino);

/* May a lower file or directory be changed, or a name be added to or removed from a directory, by
 * the flags that its layer has for it (protect.c)? 0, -EPERM or -errno. */
int protect_may_change(struct mount *m, struct inode *i);
int protect_may_add(struct mount *m, struct inode *dir);
/* May the kernel write to the file of the upper by itself (io=passthrough)? 0, -EPERM or -errno. */
int protect_may_write_past(struct mount *m, struct inode *i);
int protect_may_remove(struct mount *m, struct inode *dir, const char *name);
/* A name may be there. */
int protect_may_replace(struct mount *m, struct inode *dir, const char *name);

/* Wait a moment for room: an unlinked file gives its room, and its inode, back when the kernel
 * forgets it. True: r says that there is no room, something unlinked is still known, a moment has
 * passed, and the whole may be tried once more. *attempts is 0 at first. No lock may be held. */
bool op_data_waits_for_room(fuse_req_t req, ssize_t r, unsigned *attempts);

/* A thread that served requests ends: give back what the handlers kept for it. */
void op_data_thread_release(void);

void op_open_install(struct fuse_lowlevel_ops *ops);
void op_meta_install(struct fuse_lowlevel_ops *ops);
void op_name_install(struct fuse_lowlevel_ops *ops);
void op_data_install(struct fuse_lowlevel_ops *ops);
void op_dir_install(struct fuse_lowlevel_ops *ops);
void op_xattr_install(struct fuse_lowlevel_ops *ops);
void op_ioctl_install(struct fuse_lowlevel_ops *ops);
/* Of a mount that keeps locks (tree->locks): opens must be asked about, and closes told of. */
void op_lock_install(struct fuse_lowlevel_ops *ops);
