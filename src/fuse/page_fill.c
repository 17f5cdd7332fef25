// SPDX-License-Identifier: Apache-2.0
#include "page_fill.h"

#include "kernel_invalidate.h"
#include "veneer/base/list.h"
#include "veneer/base/lock.h"
#include "veneer/base/stats.h"
#include "veneer/data/read.h"
#include "veneer/passthrough/passthrough_select.h"
#include "veneer/passthrough/passthrough_table.h"

struct fill {
	struct list_link link;
	const struct inode *inode;
};

/* Of all mounts: they are few, and short. */
static struct {
	mutex_t lock;
	pthread_cond_t ended;
	GUARDED_BY(lock) struct list_link fills;
} page_fill = { PTHREAD_MUTEX_INITIALIZER,
		PTHREAD_COND_INITIALIZER,
		{ &page_fill.fills, &page_fill.fills } };

static void begin(struct fill *f)
{
	LOCK_SCOPE(&page_fill.lock);
	list_add_tail(&page_fill.fills, &f->link);
}

static void end(struct fill *f)
{
	LOCK_SCOPE(&page_fill.lock);
	list_del(&f->link);
	pthread_cond_broadcast(&page_fill.ended);
}

static bool is_under_way_locked(const struct inode *i) REQUIRES(page_fill.lock)
{
	for (struct list_link *l = page_fill.fills.next; l != &page_fill.fills; l = l->next)
		if (container_of(l, struct fill, link)->inode == i)
			return true;
	return false;
}

void page_fill_wait(const struct inode *i)
{
	LOCK_SCOPE(&page_fill.lock);
	while (is_under_way_locked(i))
		pthread_cond_wait(&page_fill.ended, &page_fill.lock);
}

/* After it is in the list: a later thread sees it there. A change that has just ended is seen by
 * the last check, which is followed by reading the bytes. */
static bool may_fill(struct mount *m, struct inode *i, struct node_slot *s, fuse_ino_t node)
{
	return !inode_is_changing(i) && passthrough_table_is_alone(m->tree.backing, s) &&
	       !inode_changes_unheard(i, node) && inode_is_lower_file(i) && inode_note_filled(i);
}

/* Not inlined: its array is large. */
__attribute__((noinline)) static void fill(struct mount *m, struct inode *i, fuse_ino_t node,
					   off_t size)
{
	char bytes[PASSTHROUGH_SELECT_SMALL_BYTES];
	ssize_t n = read_file(&m->tree, i, bytes, (size_t)size, 0);

	if (n != size)
		return;
	if (m->trace)
		trace_read(m->trace, inode_lower(i), 0, (size_t)n);
	stats_add(STATS_OPENS_FILLED, 1);
	kernel_invalidate_store(negotiate_request_extra.notify_fd, node, bytes, (size_t)n);
}

void page_fill_send(struct mount *m, struct inode *i, fuse_ino_t node, off_t size)
{
	struct node_slot *s = inode_slot(&m->tree, node);
	struct fill f = { .inode = i };

	if (!s || size <= 0 || size > PASSTHROUGH_SELECT_SMALL_BYTES || m->is_sb_member)
		return;
	begin(&f);
	if (may_fill(m, i, s, node))
		fill(m, i, node, size);
	end(&f);
}
