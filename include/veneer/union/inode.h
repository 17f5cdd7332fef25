/* SPDX-License-Identifier: Apache-2.0 */
/* The inodes of one mount: the objects behind the kernel's node ids, the names that lead to them,
 * and the place of their bytes. An inode stands for one actual object (a lower entry, or an upper
 * file), never for an inode number; copy-up keeps the inode and its number.
 *
 * Lock order: inode->lock of a child before that of its parent directory; of two inodes of a rename
 * the lower node id first; the inode table's innermost. The lock of an inode may be held over
 * I/O on that inode, which delays only its own users; the table's lock never is. */
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

/* Calls up into passthrough_table.h. detach: a node id is released. reap: give back the detached
 * registrations. */
struct union_fs_backing_hooks {
	void (*detach)(struct passthrough_table *b, struct node_slot *s);
	void (*reap)(struct passthrough_table *b);
	bool (*is_registered)(struct passthrough_table *b, const struct node_slot *s);
};

/* One mount's merged tree. mount.c makes and releases it; between the two the plain fields are
 * constant. */
struct union_fs {
	struct image *image;
	struct layer *upper; /* NULL: read-only */
	/* Of a frozen mount: entries of the upper's root that an interrupted snapshot has already
	 * moved (upper_dirfd). NULL: none. Constant. */
	struct layer *rest;
	struct mapfile *map; /* the upper's, borrowed from it; NULL without upper */
	int workfd; /* a private directory beside the upper; -1 without */
	struct whiteout_style style;
	struct probe_dir can;
	bool copies_whole; /* -o cow=copy, or an upper without user.* attributes */
	bool has_no_redirects; /* directories merged with a lower one cannot be renamed */
	bool is_volatile;
	bool has_static_nlink;
	/* -o atime: reads update access times in the upper as its file system decides */
	bool keeps_atime;
	_Atomic uint64_t work_seq; /* next temporary name in workfd */
	struct inode *root;
	struct hardlink_index *links; /* hardlink_index.h */
	/* of the layers in their order, of the upper, and of mounts inside the upper */
	struct xino devs;
	struct fd_cache_share held; /* descriptors of files without a name; see upper_hold */
	_Atomic bool has_held_all; /* holding one more was refused, and the log says so */
	/* a file got no guard for lack of room (metacopy_guard.h), and the log says so */
	_Atomic bool has_said_unguarded;
	/* a failed sync of the whole upper, which no program hears of; 0: none */
	_Atomic int sync_error;
	/* the kernel writes no upper file past the server (branches=on); constant */
	bool has_branches;
	struct quota *quota; /* limits of the upper (quota.h); NULL: none */
	struct stats *stats; /* NULL: events are counted for the process alone */

	/* on_own is called when blocks of a partial file became own, once after each setting of
	 * is_armed. Any thread may call it, with locks held, so it must not block. Constant. */
	void (*on_own)(void *arg);
	void *on_own_arg;
	_Atomic bool is_armed;
	/* on_own is also called for each PROMOTE_POLICY_WRITES writes of a partial file. Constant
	 * while requests are answered. */
	bool tells_written;
	/* on_own is also called for each write of such a file whose number is a power of two, if
	 * starts of the image write the file (image_entry). Likewise constant. */
	bool completes_expected;

	/* Called when a copy-up has changed the change time of an inode: of the copied inode, also
	 * if the intended change failed, or of the directory that got the copy. May be NULL. Called
	 * from any thread and with the copied inode's lock held, so it must wait for no request.
	 * Constant while requests are answered. */
	void (*on_touched)(struct union_fs *t, struct inode *i);

	/* Called when the kernel knows UNION_FS_GROWN_STEP inodes more. May be NULL. Called from
	 * any thread and with locks held, so it must not block. Constant while requests are
	 * answered. */
	void (*on_grown)(void);

	/* A write of an unprivileged server clears set-id bits, and the writeback of a mapping
	 * clears a capability in any server; both are restored. One such write to a file at a time,
	 * by node id, so that none loses values that another one is about to restore (attr.h). */
	mutex_t setid_locks[UNION_FS_SETID_LOCKS];
	_Atomic uint32_t keeping; /* writes that will restore a capability */

	mutex_t import_lock; /* held while a metacopy is imported (metacopy_import.h) */

	struct inode_table *inodes; /* its lock guards all of src/union's state of inodes */
	/* slots and names are guarded by that lock, except as node_table.h says */
	struct node_table *nodes;

	/* Passthrough opens by node id and kind (passthrough_table.h). NULL without passthrough,
	 * which is negotiated with the kernel after the mount's threads have started. */
	struct passthrough_table *_Atomic backing;
	const struct union_fs_backing_hooks *backing_hooks; /* constant */
	struct locks *locks; /* by struct inode (locks.h); NULL: the kernel keeps the locks */
};

/* Make the inode table; image and upper are set. 0 or -ENOMEM. */
int inode_table_init(struct union_fs *t);
/* Make the inode table from the node table of a dead server, with an unresolved inode for each
 * object that the kernel holds, except the root. Takes the descriptors over, but not on failure;
 * descriptors that slots hold stay open. -EPROTO: not a node table, or of another version; -ENOMEM;
 * -errno. */
int inode_table_attach(struct union_fs *t, int slots_fd, int names_fd);
void inode_table_release(struct union_fs *t);
/* Release the inodes, but leave the table as a dying server would: the memory files and the
 * descriptors that slots hold stay open for inode_table_attach. The memory files become the
 * caller's. */
void inode_table_leave(struct union_fs *t, int *ret_slots, int *ret_names);

static inline void union_fs_note_own(struct union_fs *t)
{
	if (t->is_armed && atomic_exchange(&t->is_armed, false))
		t->on_own(t->on_own_arg);
}

/* Call before an operation that cannot be undone: reserve memory for an inode and its names. 0 or
 * -ENOMEM. */
int inode_reserve(struct union_fs *t);
/* The st_ino to show for an object of the upper: the same in every mount of these layers, however
 * the image is shared. */
uint64_t inode_fold_ino(struct union_fs *t, dev_t dev, ino_t ino);
/* Distinguishes files with equal inode numbers: 0 for the upper's own device. There is an upper. */
static inline dev_t inode_upper_dev(const struct union_fs *t, dev_t dev)
{
	return dev == t->upper->dev ? 0 : dev;
}

/* The inode of a node id that the kernel holds; NULL for an unknown id. Needs no lock. */
static inline struct inode *inode_get(struct union_fs *t, uint64_t id)
{
	return node_table_object(t->nodes, id);
}
void inode_ref(struct union_fs *t, struct inode *i);
/* The inode of a node id, referenced, for a thread that serves no kernel request. NULL: there is
 * none, or it is unresolved. */
struct inode *inode_hold(struct union_fs *t, uint64_t id);
void inode_unref(struct union_fs *t, struct inode *i);
/* Turn a reference into one of the kernel's lookups, before a reply announces the inode. Returns
 * the node id and generation to send. inode_forget of that id takes the lookup back. */
void inode_grant(struct union_fs *t, struct inode *i, uint32_t *ret_id, uint32_t *ret_generation);
/* The kernel gives n lookups back. */
void inode_forget(struct union_fs *t, uint64_t id, uint64_t n);
/* The number of inodes, including the root; and of unresolved ones. */
size_t inode_count(struct union_fs *t);
size_t inode_count_unresolved(struct union_fs *t);
/* One past the highest node id so far. */
uint32_t inode_end(struct union_fs *t);
/* List node ids that the kernel holds of inodes with a name, in order, at most max from *from on;
 * the kernel knows which are in use. Sets *from to continue, or to 0 at the end. May return fewer
 * than max before the end, or none. */
size_t inode_list_idle(struct union_fs *t, uint32_t *from, uint64_t *ret_ids, size_t max);
/* Give a regular file another node id, if `id` is still its current one. Ids that the kernel holds
 * still lead to it; lookups give the new one from now on. 0, -ENOMEM or -ENFILE. */
int inode_renumber(struct union_fs *t, struct inode *i, uint32_t id);
/* Is a backing file of the inode registered with the kernel, under any of its node ids? */
bool inode_is_backed(struct union_fs *t, struct inode *i);
/* The upper file of the inode has become partial: a concurrent lookup that found an ordinary file
 * looks again. */
void inode_note_partial(struct union_fs *t, struct inode *i);
/* The inode as the intent log stores it; NULL: INTENT_NOTHING. */
struct intent_object inode_for_intent(const struct inode *i);
/* The slot of a node id that the kernel holds; NULL for an unknown id. */
struct node_slot *inode_slot(struct union_fs *t, uint64_t id);
/* Is `id` the node id that lookups give? */
bool inode_is_current(const struct inode *i, uint64_t id);

/* Constant properties. inode_ino: st_ino as shown. */
bool inode_is_regular(const struct inode *i);
bool inode_is_dir(const struct inode *i);
uint64_t inode_ino(const struct inode *i);
/* The node id that lookups give. */
uint32_t inode_id(const struct inode *i);
/* May attributes that the kernel caches by this node id change without its knowledge? */
bool inode_changes_unheard(const struct inode *i, uint64_t id);

/* The place of a resolved inode's bytes. A copy-up may change it, unless the caller holds the
 * inode's lock. inode_lower: the lower entry that is shown, merged, or the source of a partial
 * file; NULL. inode_partial_id: in the map; 0: not a partial file. */
bool inode_has_upper(const struct inode *i);
struct image_entry *inode_lower(const struct inode *i);
file_id_t inode_partial_id(const struct inode *i);
/* Is it a partial file with a mark that fits nothing? */
bool inode_is_damaged(const struct inode *i);
/* Is it a named regular file that exists in the image alone? */
bool inode_is_lower_file(const struct inode *i);
/* Is e the lower directory that dir is merged with? Takes dir's lock. */
bool inode_is_merged_with(struct inode *dir, const struct image_entry *e);
/* Take the inode's lock for reading, if that needs no waiting. */
bool inode_try_lock_shared(struct inode *i);
void inode_unlock_shared(struct inode *i);

bool inode_is_resolved(const struct inode *i);
bool inode_is_orphan(const struct inode *i);
/* Flags that inode_struct.h describes; each is set at most once. */
bool inode_is_mapped_past_us(const struct inode *i);
bool inode_is_listed_names_only(const struct inode *i);
void inode_note_listed_names_only(struct inode *dir);
/* Is a change under way (attr_change_begin)? */
bool inode_is_changing(const struct inode *i);
/* The kernel is about to get pages of a lower file. False: it has got some before. */
bool inode_note_filled(struct inode *i);
/* Count a read request of a file whose bytes are in several files. */
void inode_note_read(struct inode *i, uint64_t off, size_t len);
/* Are these reads repeatedly at random offsets, so that pages of its own are worth their memory? */
bool inode_is_read_at_random(const struct inode *i);
/* The number of write requests to a partial file while its inode is in memory; wraps. */
uint32_t inode_writes(const struct inode *i);
bool inode_is_private(const struct inode *i);
void inode_note_private(struct inode *i);

/* Call fn for each inode with the table's lock held, and reference each inode for which it returns
 * true. */
void inode_each(struct union_fs *t, bool (*fn)(void *arg, struct inode *i), void *arg);
/* Call fn for the slot of each node id in use, with the table's lock held, until it returns
 * -errno. */
int inode_each_slot(struct union_fs *t, int (*fn)(void *arg, struct node_slot *s), void *arg);
/* As inode_each, limited to inodes without a name, with a held descriptor, a writable mapping, or a
 * failed sync. */
void inode_each_special(struct union_fs *t, bool (*fn)(void *arg, struct inode *i), void *arg);
/* A sync of the inode failed, and a program must be told. */
void inode_note_sync_error(struct union_fs *t, struct inode *i, int error);
/* The next inode from *id on that is partial, or may be and is left by a dead server; referenced.
 * NULL: none. */
struct inode *inode_next_partial(struct union_fs *t, uint32_t *id);

/* The data of a new inode, from a lookup or from the function that made the upper entry. */
struct inode_found {
	uint8_t type;
	bool has_upper, is_damaged;
	uint64_t ino; /* presented */
	ino_t upper_ino;
	dev_t upper_dev; /* inode_upper_dev */
	bool is_linked_below; /* found in the image, as a file with several names */
	/* inode_dir_version() before the lookup; 0: the entry was just made */
	uint64_t dir_version;
	/* shown number of a lower entry of this type that the upper one covers, if there are
	 * unresolved inodes; else 0 */
	uint64_t covered_ino;
	struct image_entry *lower;
	struct mapfile *map; /* of a partial file: the upper's map, and the file's id in it */
	file_id_t id;
	struct source *below;
};

/* Changes with every change of the upper names in a directory; never 0. */
uint64_t inode_dir_version(struct inode *dir);
/* The inode of (parent, name), referenced (inode_grant or inode_unref): an existing one, or a new
 * one made from found. An unresolved inode is resolved from found. 0, -ENOMEM or -ENFILE. -EAGAIN:
 * look again, since found may be outdated, or the name's unresolved inode was another object. */
int inode_enter(struct union_fs *t, struct inode *parent, const char *name,
		const struct inode_found *found, struct inode **ret);
/* As inode_enter, but only for a name that is known already. */
bool inode_peek(struct union_fs *t, struct inode *parent, const char *name, struct inode **ret);

/* Names. add: give an inode one more name (hard link). drop: the name has vanished; without its
 * last name the inode is an orphan. move: rename, after dropping the new name. */
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
/* The path of a name from the root of the mount, malloc'd; for marks and messages. NULL: no
 * memory. */
char *inode_name_path(struct union_fs *t, struct inode *parent, const char *name);
/* For messages: a path of the inode, or a phrase if it has none; malloc'd, may be NULL. */
char *inode_path(struct union_fs *t, struct inode *i);
/* Unresolved inodes. inode_resolve: resolve i from the object found at its name; -ESTALE: that is
 * another object; -EAGAIN: look again. inode_find_unresolved: an inode that may be the found object
 * by another name, referenced; NULL: none. inode_resolve_orphan: resolve an inode that no name
 * leads to; is_gone: its last link was removed. inode_mark_stale: its object cannot be found. The
 * last two drop its names, and do nothing if it is not unresolved. */
int inode_resolve(struct union_fs *t, struct inode *i, struct inode *parent, const char *name,
		  const struct inode_found *f);
struct inode *inode_find_unresolved(struct union_fs *t, const struct inode_found *found);
int inode_resolve_orphan(struct union_fs *t, struct inode *i, const struct inode_found *found,
			 bool is_gone);
void inode_mark_stale(struct union_fs *t, struct inode *i);
/* Record the pinned descriptor of i for the next server: it is the only way to the object, or will
 * be once its name is removed. -1: no longer. */
void inode_note_held(struct union_fs *t, struct inode *i, int fd);
void inode_note_mapped(struct union_fs *t, struct inode *i);
/* Count `change` more (or fewer) lookups of a node id as the server's own instead of the kernel's,
 * between their grant and their return. -ENOLCK: too many. */
int inode_note_tied(struct union_fs *t, uint32_t id, int change);
/* The number of such lookups; in a table of a dead server, some may have no holder. */
unsigned inode_count_tied(struct union_fs *t, uint32_t id);

/* The image path of the object that a node without a name shows. 0 or -ENOENT. */
int inode_orphan_path(struct union_fs *t, uint32_t id, char ret[PATH_MAX]);
/* The upper file of a nameless inode has lost its last link. No effect while the inode has a
 * name. */
void inode_note_gone(struct union_fs *t, struct inode *i);
/* The inode is about to get this upper file: a concurrent lookup of another of its names that finds
 * the file gets this inode. 0 takes that back. */
void inode_expect_upper(struct union_fs *t, struct inode *i, ino_t upper_ino);
/* The inode has got an upper entry: lookups find it by that inode number (non-directories). */
void inode_set_upper(struct union_fs *t, struct inode *i, ino_t upper_ino);
