/* SPDX-License-Identifier: Apache-2.0 */
/* The inodes of one mount: what the kernel holds node ids for, the names that lead to them, and
 * where each one's bytes are. An inode stands for one actual object (a lower entry, or an upper
 * file), never for an inode number; copy-up keeps the inode and its number.
 *
 * Lock order: inode->lock of a child before that of its parent directory; of two inodes of a rename
 * the lower node id first; the inode table's innermost. inode->lock may be held over I/O on that
 * very inode, which delays nobody but its own users; the table's never is. */
#pragma once

#include "veneer/base/lock.h"
#include "veneer/layer/image.h"
#include "veneer/layer/xino.h"
#include "veneer/recover/intent_log.h"
#include "veneer/sys/probe.h"
#include "veneer/union/node_table.h"
#include "veneer/union/upper_dir.h"

#include <limits.h>
#include <stdatomic.h>

#define UNION_FS_SETID_LOCKS 16
#define UNION_FS_GROWN_STEP  2048u

struct inode; /* inode_struct.h */
struct inode_table;
struct passthrough_table;

/* Calls up into passthrough_table.h, which see: a node id goes; and what it had is given back. */
struct union_fs_backing_hooks {
	void (*detach)(struct passthrough_table *b, struct node_slot *s);
	void (*reap)(struct passthrough_table *b);
	bool (*is_registered)(struct passthrough_table *b, const struct node_slot *s);
};

/* One mount's merged tree. Made and taken down by mount.c; the plain fields are constant
 * meanwhile. */
struct union_fs {
	struct image *image;
	struct layer *upper; /* NULL: read-only */
	struct layer
		*rest; /* of a frozen mount: entries of the upper's root that have moved into
			  a snapshot that was interrupted (upper_dirfd); NULL: none, constant */
	struct mapfile *map; /* the upper's, borrowed from it; NULL without upper */
	int workfd; /* a private directory beside the upper; -1 without */
	struct whiteout_style style;
	struct probe_dir can;
	bool copies_whole; /* -o cow=copy, or an upper without user.* attributes */
	bool has_no_redirects; /* directories that have something below cannot be renamed */
	bool is_volatile;
	bool has_static_nlink;
	bool keeps_atime; /* -o atime: what reads of the upper do to its access times is its file
			     system's business */
	_Atomic uint64_t work_seq; /* next temporary name in workfd */
	struct inode *root;
	struct hardlink_index *links; /* hardlink_index.h */
	struct xino
		devs; /* the layers', in their order, the upper's, and what is mounted in that */
	struct fd_cache_share held; /* of its files without a name; see upper_hold */
	_Atomic bool has_held_all; /* that was refused, and has been said */
	_Atomic bool has_said_unguarded; /* no room for a guard (metacopy_guard.h) */
	_Atomic int sync_error; /* of a sync of the whole upper, of which no program hears; 0 */
	bool has_branches; /* the kernel writes no upper file past us (branches=on); constant */
	struct quota *quota; /* what the upper may take (quota.h); NULL: all there is */
	struct stats *stats; /* NULL: what happens counts for the process alone */

	/* Called when blocks of some partial file became its own: fn, constant, is called once
	 * after is_armed was set, from any thread and with locks held: it waits for nothing. */
	void (*on_own)(void *arg);
	void *on_own_arg;
	_Atomic bool is_armed;
	bool tells_written; /* fn is also called for each PROMOTE_POLICY_WRITES writes of a partial
			       file; constant while requests are answered */
	bool completes_expected; /* and for each of its writes whose number is a power of two, if
				    starts of the image write the file (image_entry); likewise */

	/* By a copy-up the change time of an inode is another now: it was copied up, also where the
	 * change that it was for failed, or is the directory that got the copy. NULL, or called
	 * from any thread and with the lock held of what was copied up: it waits for no request.
	 * Constant while requests are answered. */
	void (*on_touched)(struct union_fs *t, struct inode *i);

	/* Called when the kernel knows UNION_FS_GROWN_STEP inodes more: NULL, or called from any
	 * thread and with locks held, so that it waits for nothing. Constant while requests are
	 * answered. */
	void (*on_grown)(void);

	/* Without privileges a write loses set-id bits that it must put back, and with them what is
	 * written back of a mapping a capability: one write to a file at a time, by node id, so
	 * that none loses what another is about to put back (attr.h). */
	mutex_t setid_locks[UNION_FS_SETID_LOCKS];
	_Atomic uint32_t keeping; /* writes that are to put a capability back */

	mutex_t import_lock; /* held while one metacopy is imported (metacopy_import.h) */

	struct inode_table *inodes; /* with the lock of all that src/union keeps of an inode */
	/* What it says of an id is guarded by that lock, but for what node_table.h excepts. */
	struct node_table *nodes;

	/* Opens by node id and their way (passthrough_table.h); NULL unless files are passed
	 * through, which the kernel is asked when the mount's own threads run already. */
	struct passthrough_table *_Atomic backing;
	const struct union_fs_backing_hooks *backing_hooks; /* constant */
	struct locks *locks; /* locks.h, by struct inode; NULL: the kernel keeps them */
};

/* The image and the upper are known. 0 or -ENOMEM. */
int inode_table_init(struct union_fs *t);
/* The same of a node table that a dead server left: unresolved inodes for what the kernel holds,
 * but for the root. The descriptors are taken over, but on failure; those that slots hold stay
 * open. -EPROTO: it is none, or of another version; -ENOMEM; -errno. */
int inode_table_attach(struct union_fs *t, int slots_fd, int names_fd);
void inode_table_release(struct union_fs *t);
/* As a server that dies leaves it: what inode_table_attach takes stays open, the descriptors that
 * slots hold too. The memory files are the caller's. */
void inode_table_leave(struct union_fs *t, int *ret_slots, int *ret_names);

static inline void union_fs_note_own(struct union_fs *t)
{
	if (t->is_armed && atomic_exchange(&t->is_armed, false))
		t->on_own(t->on_own_arg);
}

/* Before something is done that cannot be undone: have memory for an inode and its names. 0 or
 * -ENOMEM. */
int inode_reserve(struct union_fs *t);
/* st_ino as presented of what is in the upper: the same in every mount of these layers, with every
 * sharing of the image. */
uint64_t inode_fold_ino(struct union_fs *t, dev_t dev, ino_t ino);
/* Tells apart files of one number: 0 for the upper's own device. There is an upper. */
static inline dev_t inode_upper_dev(const struct union_fs *t, dev_t dev)
{
	return dev == t->upper->dev ? 0 : dev;
}

/* The inode of a node id that the kernel holds; NULL for one it made up. Needs no lock. */
static inline struct inode *inode_get(struct union_fs *t, uint64_t id)
{
	return node_table_object(t->nodes, id);
}
void inode_ref(struct union_fs *t, struct inode *i);
/* The inode of a node id, referenced, for a thread that serves no request of the kernel; NULL:
 * there is none, or it is unresolved. */
struct inode *inode_hold(struct union_fs *t, uint64_t id);
void inode_unref(struct union_fs *t, struct inode *i);
/* The kernel is about to hear of an inode that is referenced: the reference becomes one of its
 * look-ups, of the node id and generation that are to be sent. Taken back by inode_forget of that
 * id. */
void inode_grant(struct union_fs *t, struct inode *i, uint32_t *ret_id, uint32_t *ret_generation);
/* The kernel gives n lookups back. */
void inode_forget(struct union_fs *t, uint64_t id, uint64_t n);
/* How many there are, the root included; and those that are unresolved. */
size_t inode_count(struct union_fs *t);
size_t inode_count_unresolved(struct union_fs *t);
/* One past the highest node id so far. */
uint32_t inode_end(struct union_fs *t);
/* Node ids that the kernel holds of what has a name, by their order, at most max of those from
 * *from on; it knows which of them are in use. *from is where to go on; 0: that were all. May be
 * fewer than max before that, or none. */
size_t inode_list_idle(struct union_fs *t, uint32_t *from, uint64_t *ret_ids, size_t max);
/* Give a regular file another node id, if `id` is still its own; what the kernel holds goes on
 * leading to it. Look-ups give the new one from now on. 0, -ENOMEM or -ENFILE. */
int inode_renumber(struct union_fs *t, struct inode *i, uint32_t id);
/* Has a node id of the inode a file registered with the kernel, to be read or written past us? */
bool inode_is_backed(struct union_fs *t, struct inode *i);
/* The upper file of the inode is a partial one from now on: a look-up under way that found an
 * ordinary one looks again. */
void inode_note_partial(struct union_fs *t, struct inode *i);
/* As the log of intents knows it; NULL: nothing. */
struct intent_object inode_for_intent(const struct inode *i);
/* The slot of a node id that the kernel holds; NULL for one it made up. */
struct node_slot *inode_slot(struct union_fs *t, uint64_t id);
/* Is this the id that look-ups give? */
bool inode_is_current(const struct inode *i, uint64_t id);

/* What never changes. ino: st_ino as presented. */
bool inode_is_regular(const struct inode *i);
bool inode_is_dir(const struct inode *i);
uint64_t inode_ino(const struct inode *i);
/* The node id that look-ups give. */
uint32_t inode_id(const struct inode *i);
/* May attributes that the kernel has by this node id change without its hearing of it? */
bool inode_changes_unheard(const struct inode *i, uint64_t id);

/* Where its bytes are, for an inode that is resolved. A copy-up may come next, unless the caller
 * holds the inode's lock. lower: what is shown, merged beneath, or what a partial file was copied
 * from; NULL. partial_id: in the map; 0: no partial file. */
bool inode_has_upper(const struct inode *i);
struct image_entry *inode_lower(const struct inode *i);
file_id_t inode_partial_id(const struct inode *i);
/* Does a partial file's mark fit nothing? */
bool inode_is_damaged(const struct inode *i);
/* Is it a regular file of the image alone, by a name? */
bool inode_is_lower_file(const struct inode *i);
/* Is that what is merged beneath the directory? Takes its lock. */
bool inode_is_merged_with(struct inode *dir, const struct image_entry *e);
/* Share the inode's lock, if nobody has to be waited for. */
bool inode_try_lock_shared(struct inode *i);
void inode_unlock_shared(struct inode *i);

bool inode_is_resolved(const struct inode *i);
bool inode_is_orphan(const struct inode *i);
/* Flags that inode_struct.h describes; each is set once. */
bool inode_is_mapped_past_us(const struct inode *i);
bool inode_is_listed_names_only(const struct inode *i);
void inode_note_listed_names_only(struct inode *dir);
/* Is a change under way (attr_change_begin)? */
bool inode_is_changing(const struct inode *i);
/* The kernel is about to get the pages of a lower file. False: it got them before. */
bool inode_note_filled(struct inode *i);
/* A program reads a file whose bytes are in several places by requests. */
void inode_note_read(struct inode *i, uint64_t off, size_t len);
/* ... and does so at random, again and again: pages of its own are worth their memory. */
bool inode_is_read_at_random(const struct inode *i);
/* How often a partial file was written by requests, as long as its inode is in memory; wraps. */
uint32_t inode_writes(const struct inode *i);
bool inode_is_private(const struct inode *i);
void inode_note_private(struct inode *i);

/* Call fn for each inode, with the table's lock held, and reference those for which it is true. */
void inode_each(struct union_fs *t, bool (*fn)(void *arg, struct inode *i), void *arg);
/* Call fn for the slot of each node id in use, with the table's lock held, until it gives -errno.
 */
int inode_each_slot(struct union_fs *t, int (*fn)(void *arg, struct node_slot *s), void *arg);
/* As inode_each, of those alone that have no name, a held descriptor, a mapping past us, or a
 * failed sync. */
void inode_each_special(struct union_fs *t, bool (*fn)(void *arg, struct inode *i), void *arg);
/* A sync of it failed, and a program is to be told. */
void inode_note_sync_error(struct union_fs *t, struct inode *i, int error);
/* The next inode from *id on that is a partial file, or may be one that a dead server left;
 * referenced. NULL: none. */
struct inode *inode_next_partial(struct union_fs *t, uint32_t *id);

/* Data of a new inode: filled by lookup or by the function that just made the upper entry. */
struct inode_found {
	uint8_t type;
	bool has_upper, is_damaged;
	uint64_t ino; /* presented */
	ino_t upper_ino;
	dev_t upper_dev; /* inode_upper_dev */
	bool is_linked_below; /* seen in the image, as a file with several names */
	uint64_t dir_version; /* inode_dir_version() before it was looked up; 0: it was just made */
	uint64_t covered_ino; /* as presented, of a lower entry of this type that the upper one
			       * stands before, if there are unresolved inodes; 0 */
	struct image_entry *lower;
	struct mapfile *map; /* partial: the upper's map and the id in it */
	file_id_t id;
	struct source *below;
};

/* Changes with every change of the upper names in a directory; never 0. */
uint64_t inode_dir_version(struct inode *dir);
/* The inode of (parent, name), referenced (inode_grant or inode_unref): an existing one, or a new
 * one made from found; an unresolved one is filled from found. 0 or -ENOMEM, -ENFILE, -EAGAIN
 * (found may be outdated, or the name that of an unresolved inode which was something else: look
 * again). */
int inode_enter(struct union_fs *t, struct inode *parent, const char *name,
		const struct inode_found *found, struct inode **ret);
/* As inode_enter, but only if the name is known already. */
bool inode_peek(struct union_fs *t, struct inode *parent, const char *name, struct inode **ret);

/* Names. add: one more for an inode (hard link). drop: the name is gone; the last one makes an
 * orphan. move: renamed; what was known under the new name is dropped first. */
int inode_add_name(struct union_fs *t, struct inode *i, struct inode *parent, const char *name);
void inode_drop_name(struct union_fs *t, struct inode *parent, const char *name);
int inode_move_name(struct union_fs *t, struct inode *old_parent, const char *old_name,
		    struct inode *parent, const char *name);
int inode_swap_names(struct union_fs *t, struct inode *a_parent, const char *a,
		     struct inode *b_parent, const char *b);
/* Any name of the inode: its directory, referenced, and the name in it. -ENOENT for orphans and the
 * root. */
int inode_any_name(struct union_fs *t, struct inode *i, struct inode **ret_parent,
		   char name[NAME_MAX + 1]);
/* Path of a name from the root of the mount, malloc'd; for marks and messages. NULL on no
 * memory. */
char *inode_name_path(struct union_fs *t, struct inode *parent, const char *name);
/* For messages: some path of the inode, or a word for what has none; malloc'd, may be NULL. */
char *inode_path(struct union_fs *t, struct inode *i);
/* Unresolved inodes. fill: it is what was found at its name, or -ESTALE; -EAGAIN: look again. find:
 * one that may be what was found, by another name, referenced; NULL: none. fill_orphan: it has no
 * name that leads to it any more, and is this; is_gone: its last link was removed. lose: it is
 * nothing. Both take its names away, and leave one alone that is not unresolved. */
int inode_resolve(struct union_fs *t, struct inode *i, struct inode *parent, const char *name,
		  const struct inode_found *f);
struct inode *inode_find_unresolved(struct union_fs *t, const struct inode_found *found);
int inode_resolve_orphan(struct union_fs *t, struct inode *i, const struct inode_found *found,
			 bool is_gone);
void inode_mark_stale(struct union_fs *t, struct inode *i);
/* The descriptor that i has pinned is all that leads to it, or will be when its name is gone: a
 * server that comes later finds it by that. -1: no longer so. */
void inode_note_held(struct union_fs *t, struct inode *i, int fd);
void inode_note_mapped(struct union_fs *t, struct inode *i);
/* Note that so many more (or less) of the look-ups of a node id are ours and not the kernel's,
 * after they were granted and before they are given back. -ENOLCK: there are too many. */
int inode_note_tied(struct union_fs *t, uint32_t id, int change);
/* And so many are: of what a dead server left, perhaps those of nobody. */
unsigned inode_count_tied(struct union_fs *t, uint32_t id);

/* The path in the image of what a node without name shows. 0 or -ENOENT. */
int inode_orphan_path(struct union_fs *t, uint32_t id, char ret[PATH_MAX]);
/* The upper file of an inode without name lost its last link. No effect while a name leads to it.
 */
void inode_note_gone(struct union_fs *t, struct inode *i);
/* The inode is about to get this upper file: a look-up of another of its names meanwhile that finds
 * that file is led to this inode. Taken back by 0. */
void inode_expect_upper(struct union_fs *t, struct inode *i, ino_t upper_ino);
/* The inode got an upper entry: publish it for look-ups by its number (non-directories). */
void inode_set_upper(struct union_fs *t, struct inode *i, ino_t upper_ino);
