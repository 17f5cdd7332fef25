// SPDX-License-Identifier: Apache-2.0
#include "served_mount.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/fuse/pool.h"
#include "veneer/jobs/inode_shrinker.h"
#include "veneer/jobs/page_dup_limiter.h"
#include "veneer/sys/thread.h"

#include <string.h>
#include <sys/epoll.h>

#define STACK_SIZE (256u << 10)

struct served_mount *served_mount_pin_after(struct mount_table *r, uint64_t id, bool is_exact)
{
	LOCK_SCOPE(&r->lock);
	for (struct list_link *l = r->started.next; l != &r->started; l = l->next) {
		struct served_mount *s = container_of(l, struct served_mount, link);

		if (is_exact ? s->id == id : s->id > id) {
			s->pins++;
			return s;
		}
	}
	return NULL;
}

void served_mount_unpin(struct served_mount *s)
{
	LOCK_SCOPE(&s->mount_table->lock);
	if (--s->pins == 0)
		pthread_cond_broadcast(&s->mount_table->unpinned);
}

void served_mount_delist(struct served_mount *s)
{
	struct mount_table *r = s->mount_table;

	/* Otherwise epoll would keep reporting a request that no one takes. */
	if (s->takeover_fd >= 0)
		epoll_ctl(r->epoll_fd, EPOLL_CTL_DEL, s->takeover_fd, NULL);
	LOCK_SCOPE(&r->lock);
	list_del(&s->link);
	while (s->pins)
		pthread_cond_wait(&r->unpinned, &r->lock);
}

/* Only mounts with a supervisor were added. Dropping pages may wait for a READ; if this server dies
 * meanwhile, another one must be there to answer it. */
void served_mount_leave_jobs(struct served_mount *s)
{
	atomic_store(&s->mount.page_dup_number, 0);
	page_dup_limiter_leave(s->limiter_number);
	inode_shrinker_leave(s->shrinker_number);
}

void served_mount_enter_jobs(struct served_mount *s)
{
	int e;

	if (s->kept.is_kept &&
	    (e = inode_shrinker_enter(&s->mount.tree, s->kept.mount_record.fuse_fd,
				      &s->shrinker_number)) < 0)
		log_warn("%s: its inodes are not limited: %s", s->mount.opts.mountpoint,
			 strerror(-e));
	if (!s->kept.is_kept || s->mount.io == IO_DIRECT ||
	    s->mount.opts.copies == OPTIONS_COPIES_ALL)
		return;
	/* The number of the record's descriptor, which stays the same in the next server. */
	e = page_dup_limiter_enter(&s->mount.tree, s->kept.mount_record.fuse_fd,
				   s->mount.opts.copies, &s->limiter_number);
	if (e == 0)
		atomic_store(&s->mount.page_dup_number, s->limiter_number);
	else
		log_warn("%s: the page cache is not managed: %s", s->mount.opts.mountpoint,
			 strerror(-e));
}

static void note_ending(struct mount_table *r, int change)
{
	LOCK_SCOPE(&r->lock);
	r->endings += (unsigned)change;
}

bool served_mount_has_endings(struct mount_table *r)
{
	LOCK_SCOPE(&r->lock);
	return r->endings > 0;
}

struct ending {
	struct mount_table *mount_table;
	uint64_t number;
	uint32_t limiter_number, shrinker_number; /* as in struct served_mount */
	char *mountpoint;
};

static void *end_one(void *arg)
{
	struct ending *e = arg;

	/* Leave them now, while requests are still answered. */
	page_dup_limiter_leave(e->limiter_number);
	inode_shrinker_leave(e->shrinker_number);
	if (pool_end(e->mount_table->pool, e->number, SERVED_MOUNT_END_WAIT_MS) < 0)
		log_error("%s: a request does not end", e->mountpoint);
	note_ending(e->mount_table, -1);
	free(e->mountpoint);
	free(e);
	return NULL;
}

static bool is_ending_already(struct served_mount *s)
{
	bool was_ending;

	LOCK_SCOPE(&s->mount_table->lock);
	was_ending = s->is_ending;
	s->is_ending = true;
	return was_ending;
}

/* Waits for the end only if no thread can be started. */
void served_mount_end(struct served_mount *s)
{
	struct ending *e;

	if (is_ending_already(s))
		return;
	e = calloc(1, sizeof(*e));
	if (!e || !(e->mountpoint = strdup(s->mount.opts.mountpoint))) {
		free(e);
		served_mount_leave_jobs(s);
		pool_end(s->mount_table->pool, s->number, 0);
		return;
	}
	note_ending(s->mount_table, 1);
	e->mount_table = s->mount_table;
	e->number = s->number;
	atomic_store(&s->mount.page_dup_number, 0);
	e->limiter_number = s->limiter_number;
	e->shrinker_number = s->shrinker_number;
	if (thread_start(end_one, e, STACK_SIZE) < 0)
		end_one(e);
}
