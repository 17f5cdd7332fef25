// SPDX-License-Identifier: Apache-2.0
#include "veneer/data/cow_fsync.h"

#include "cow_fsync-internal.h"
#include "veneer/base/lock.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/quota.h"
#include "veneer/union/upper.h"

#include <stdatomic.h>
#include <unistd.h>

#define FSYNC_TRIES 4

int cow_fsync_failed(struct union_fs *t, struct inode *i)
{
	const int error = -errno;

	inode_note_sync_error(t, i, error);
	return error;
}

int cow_fsync_step(struct union_fs *t, struct inode *i, int fd, bool data_only)
{
	const file_id_t id = i->src.id;
	uint64_t change = id ? mapfile_change(t->map, id) : 0;
	enum mapfile_pending pending;
	int r;

	if ((t->can.wants_whole_sync ? syncfs(fd) : data_only ? fdatasync(fd) : fsync(fd)) < 0)
		return cow_fsync_failed(t, i);
	if (!id)
		return 0;
	pending = mapfile_pending(t->map, id);
	if (pending == MAPFILE_CLEAN)
		return 0;
	/* One sync is enough if the backing file system's extents survive only with their data:
	 * they are the second copy of the map. */
	r = mapfile_commit_since(t->map, id, change,
				 pending == MAPFILE_MUST_SYNC || !t->can.has_true_extents);
	/* The file became an ordinary one meanwhile. */
	return r == -ENOENT && !i->src.id ? 0 : r;
}

static int sync_inode(struct union_fs *t, struct inode *i, bool data_only)
{
	int fd, r = -EAGAIN;

	if (!i->has_upper || t->is_volatile)
		return 0;
	fd = upper_pin(t, i);
	if (fd < 0)
		return fd;
	for (int attempt = 0; attempt < FSYNC_TRIES && r == -EAGAIN; attempt++)
		r = cow_fsync_step(t, i, fd, data_only);
	if (r == -EAGAIN) {
		/* New blocks keep coming: hold up their writers for one round. */
		RDLOCK_SCOPE(&i->lock);
		r = cow_fsync_step(t, i, fd, data_only);
	}
	i->is_synced = r == 0;
	/* The sync allocates the delayed blocks, and those of their metadata. */
	quota_note(t->quota, fd);
	fd_cache_unpin(&i->src.fd);
	return r;
}

/* fdatasync(2) of a file whose blocks have their place waits for no name: a copy that was made just
 * now could lose its own to a power cut, and what is synced with it. So the first sync that a
 * program asks for is a whole one. */
int cow_fsync(struct union_fs *t, struct inode *i, bool data_only)
{
	const bool has_upper = i->has_upper, is_whole = !data_only || !i->is_name_synced;
	int r = sync_inode(t, i, !is_whole), error = atomic_exchange(&i->sync_error, 0);

	if (r == 0 && has_upper && is_whole)
		i->is_name_synced = true;
	return r ?: error;
}

/* The kernel reports a writeback error once per open file, and all writers share the server's. An
 * unasked sync would consume the error, and the next fsync of a program would succeed. So until a
 * program was told, nothing of the file is committed here. */
int cow_fsync_unasked(struct union_fs *t, struct inode *i)
{
	return i->sync_error ?: sync_inode(t, i, true);
}
