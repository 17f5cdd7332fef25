// SPDX-License-Identifier: Apache-2.0
/* Watches are IN_ONESHOT: a set is stale after the first event, so the queue holds at most two
 * events per watch, however busy a directory is. Invariants:
 * 1. A pair (number, set) is in the table before any read that the watch guards. Adding the watch
 *    and entering the pair are one step under the lock, and so is reading events: no event is read
 *    between the two.
 * 2. The kernel does not reuse numbers (before 2^31 of them), so that a late event of a removed
 *    watch matches no set.
 * 3. is_stale goes from false to true once. A stale set gets no more watches; watch_drain drops its
 *    watches. */
#include "veneer/sys/watch.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/htab.h"
#include "veneer/base/list.h"
#include "veneer/base/lock.h"
#include "veneer/base/log.h"
#include "veneer/sys/file.h"

#include <limits.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/inotify.h>

#define WATCHES_DEFAULT 8192 /* if /proc does not tell the user's limit */
#define DROP_BATCH	64 /* dropped per lock hold; other threads may wait that long */

#define FILE_EVENTS \
	(IN_ATTRIB | IN_MODIFY | IN_CLOSE_WRITE | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONESHOT)
#define DIR_EVENTS (FILE_EVENTS | IN_CREATE | IN_DELETE | IN_MOVE | IN_ONLYDIR)

/* One watch of one set; sets may share a watch. */
struct watch_guard {
	struct hlink link; /* by number */
	struct list_link of_set;
	struct watch *set;
	int wd;
};

static struct {
	mutex_t lock;
	GUARDED_BY(lock) int fd; /* -1: not made yet */
	GUARDED_BY(lock) size_t n, limit; /* watches, not guards */
	GUARDED_BY(lock) struct htab by_wd; /* struct metacopy_guard */
	GUARDED_BY(lock) struct list_link sets, stale;
} table = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.fd = -1,
	.sets = { &table.sets, &table.sets },
	.stale = { &table.stale, &table.stale },
};

struct watch {
	_Atomic bool is_stale;
	GUARDED_BY(table.lock) struct list_link guards;
	/* in the list of sets, or of stale sets to empty */
	GUARDED_BY(table.lock) struct list_link link;
};

#define set_of(l)   container_of(l, struct watch, link)
#define guard_of(l) container_of(l, struct watch_guard, of_set)

/* Half of the user's limit: other programs of the user need some. */
static size_t read_limit(void)
{
	char text[32];

	if (file_read_text("/proc/sys/fs/inotify/max_user_watches", text, sizeof(text)) <= 0)
		return WATCHES_DEFAULT / 2;
	return strtoul(text, NULL, 10) / 2;
}

int watch_new(struct watch **ret)
{
	struct watch *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	list_init(&w->guards);
	LOCK_SCOPE(&table.lock);
	if (table.fd < 0) {
		table.limit = read_limit();
		table.fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	}
	if (table.fd < 0) {
		int r = -errno;

		free(w);
		return r;
	}
	list_add_tail(&table.sets, &w->link);
	*ret = w;
	return 0;
}

static struct watch_guard *find_locked(int wd, const struct watch *set)
{
	struct hlink *l = htab_first(&table.by_wd, (uint64_t)wd);

	for (; l; l = htab_next(l)) {
		struct watch_guard *g = container_of(l, struct watch_guard, link);

		if (g->wd == wd && (!set || g->set == set))
			return g;
	}
	return NULL;
}

static void drop_locked(struct watch_guard *g) REQUIRES(table.lock)
{
	htab_remove(&table.by_wd, &g->link);
	list_del(&g->of_set);
	if (!find_locked(g->wd, NULL)) {
		/* The watch may be gone already, as it is after its first event. */
		inotify_rm_watch(table.fd, g->wd);
		table.n--;
	}
	free(g);
}

static bool is_emptied_locked(struct watch *w) REQUIRES(table.lock)
{
	for (unsigned i = 0; i < DROP_BATCH && !list_is_empty(&w->guards); i++)
		drop_locked(guard_of(w->guards.next));
	return list_is_empty(&w->guards);
}

void watch_free(struct watch *w)
{
	bool is_empty = false;

	if (!w)
		return;
	while (!is_empty) {
		LOCK_SCOPE(&table.lock);
		is_empty = is_emptied_locked(w);
		if (is_empty)
			list_del(&w->link);
	}
	free(w);
}

static void spoil_locked(struct watch *w)
{
	if (atomic_exchange(&w->is_stale, true))
		return;
	list_del(&w->link);
	list_add_tail(&table.stale, &w->link);
}

void watch_spoil(struct watch *w)
{
	if (!w)
		return;
	LOCK_SCOPE(&table.lock);
	spoil_locked(w);
}

bool watch_is_current(const struct watch *w)
{
	return w && !atomic_load(&w->is_stale);
}

static int enter_locked(struct watch *w, int wd) REQUIRES(table.lock)
{
	struct watch_guard *g;
	bool is_new;

	if (find_locked(wd, w))
		return 0;
	is_new = !find_locked(wd, NULL);
	table.n += is_new;
	g = malloc(sizeof(*g));
	if (g) {
		*g = (struct watch_guard){ .wd = wd, .set = w };
		list_init(&g->of_set);
		if (htab_insert(&table.by_wd, &g->link, (uint64_t)wd) == 0) {
			list_add_tail(&w->guards, &g->of_set);
			return 0;
		}
		free(g);
	}
	if (is_new) {
		inotify_rm_watch(table.fd, wd);
		table.n--;
	}
	return -ENOMEM;
}

static void add(struct watch *w, const char *path, uint32_t events)
{
	int wd;

	LOCK_SCOPE(&table.lock);
	if (atomic_load(&w->is_stale))
		return;
	wd = table.n < table.limit ? inotify_add_watch(table.fd, path, events) : -1;
	if (wd < 0 || enter_locked(w, wd) < 0)
		spoil_locked(w);
}

void watch_dir(struct watch *w, int fd)
{
	char path[sizeof("/proc/self/fd/-2147483648")];

	if (!watch_is_current(w))
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	add(w, path, DIR_EVENTS);
}

static void watch_entry(struct watch *w, int dirfd, const char *name, uint32_t events)
{
	char path[sizeof("/proc/self/fd/-2147483648/") + NAME_MAX];
	int len = snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dirfd, name);

	if (len < (int)sizeof(path))
		add(w, path, events | IN_DONT_FOLLOW);
	else
		watch_spoil(w);
}

void watch_subdir(struct watch *w, int dirfd, const char *name)
{
	if (watch_is_current(w))
		watch_entry(w, dirfd, name, DIR_EVENTS);
}

void watch_file(struct watch *w, int dirfd, const char *name)
{
	if (watch_is_current(w))
		watch_entry(w, dirfd, name, FILE_EVENTS);
}

static void note_locked(const struct inotify_event *e) REQUIRES(table.lock)
{
	struct hlink *l;

	if (e->mask & IN_Q_OVERFLOW) {
		while (!list_is_empty(&table.sets))
			spoil_locked(set_of(table.sets.next));
		return;
	}
	/* Any event counts, including the end of the watch (IN_IGNORED, IN_UNMOUNT). */
	for (l = htab_first(&table.by_wd, (uint64_t)e->wd); l; l = htab_next(l)) {
		struct watch_guard *g = container_of(l, struct watch_guard, link);

		if (g->wd == e->wd)
			spoil_locked(g->set);
	}
}

static void read_events_locked(void) REQUIRES(table.lock)
{
	char buf[16 * 1024] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t n;

	while (table.fd >= 0 && (n = read(table.fd, buf, sizeof(buf))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN) {
			/* Events are lost: all sets are stale. */
			while (!list_is_empty(&table.sets))
				spoil_locked(set_of(table.sets.next));
			log_error("cannot read inotify events of the layers: %m");
		}
		if (n < 0)
			return;
		for (ssize_t off = 0; off < n;) {
			const struct inotify_event *e = (const struct inotify_event *)(buf + off);

			note_locked(e);
			off += (ssize_t)(sizeof(*e) + e->len);
		}
	}
}

void watch_drain(void)
{
	bool is_done = false;

	mutex_lock(&table.lock);
	read_events_locked();
	mutex_unlock(&table.lock);
	while (!is_done) {
		LOCK_SCOPE(&table.lock);
		is_done = list_is_empty(&table.stale);
		/* A stale set stays stale: remove it from both lists. */
		if (!is_done && is_emptied_locked(set_of(table.stale.next)))
			list_del(table.stale.next);
	}
}

size_t watch_count(void)
{
	LOCK_SCOPE(&table.lock);
	return table.n;
}

bool watch_sees_type(long f_type)
{
	/* Local file systems with stable inode numbers. Not ZFS, whose rollback changes files
	 * without an event, and not vfat, which renumbers its files. */
	static const unsigned long types[] = {
		EXT4_SUPER_MAGIC,  XFS_SUPER_MAGIC,
		BTRFS_SUPER_MAGIC, TMPFS_MAGIC,
		RAMFS_MAGIC,	   F2FS_SUPER_MAGIC,
		SQUASHFS_MAGIC,	   EROFS_SUPER_MAGIC_V1,
		ISOFS_SUPER_MAGIC, 0xca451a4e /* bcachefs */,
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if ((unsigned long)f_type == types[i])
			return true;
	return false;
}
