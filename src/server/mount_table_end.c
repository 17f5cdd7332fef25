// SPDX-License-Identifier: Apache-2.0
/* Ends mounts before they are unmounted: all of them with the server, and a detached mount when
 * another mount wants its upper. */
#include "served_mount.h"
#include "veneer/base/log.h"
#include "veneer/mount/upper_takeover.h"
#include "veneer/sys/mountinfo.h"

#include <sys/epoll.h>

void mount_table_check(struct mount_table *r)
{
	sb_registry_check(r->commons);
}

int mount_table_fd(const struct mount_table *r)
{
	return r->epoll_fd;
}

bool mount_table_ends(struct mount_table *r)
{
	LOCK_SCOPE(&r->lock);
	return r->ends;
}

static void forbid_replacements(struct mount_table *r)
{
	LOCK_SCOPE(&r->lock);
	r->ends = true;
}

void mount_table_end_all(struct mount_table *r)
{
	struct served_mount *s;
	uint64_t id = 0;

	forbid_replacements(r);
	sb_registry_end_all(r->commons);
	while ((s = served_mount_pin_after(r, id, false))) {
		id = s->id;
		if (!s->hosted_member)
			served_mount_end(s);
		served_mount_unpin(s);
	}
}

/* Another mount may have asked for this upper. End this mount only if it is detached: an attached
 * mount keeps its upper. */
static void answer_ask(struct served_mount *s)
{
	const struct layer *upper = s->mount.tree.upper;

	if (!upper_takeover_is_asked(s->takeover_fd, upper->dev, upper->ino))
		return;
	if (s->hosted_member) {
		sb_registry_evict(s->hosted_member);
		return;
	}
	if (!mountinfo_lacks(s->at.mount_ns, s->at.dev_major, s->at.dev_minor))
		return;
	log_warn("%s is detached but in use, and another mount wants its upper; ending",
		 s->mount.opts.mountpoint);
	served_mount_end(s);
}

void mount_table_make_room(struct mount_table *r)
{
	struct epoll_event e;

	if (epoll_wait(r->epoll_fd, &e, 1, 0) == 1) {
		struct served_mount *s = served_mount_pin_after(r, e.data.u64, true);

		if (!s)
			return;
		answer_ask(s);
		served_mount_unpin(s);
	}
}
