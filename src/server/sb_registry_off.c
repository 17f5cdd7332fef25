// SPDX-License-Identifier: Apache-2.0
/* sb_registry.c of a build without shared superblocks (-Dsharedsb=disabled). Each mount has a
 * superblock of its own, so hosted_sb and hosted_member do not exist. */
#include "veneer/server/sb_registry.h"

#include "veneer/base/log.h"

#include <errno.h>
#include <stdio.h>

int sb_registry_new(struct pool *pool, struct supervisor_state *supervisor_state,
		    const struct sb_registry_owner_calls *calls, struct sb_registry **ret)
{
	(void)pool;
	(void)supervisor_state;
	(void)calls;
	*ret = NULL;
	return 0;
}

void sb_registry_free(struct sb_registry *cs)
{
	(void)cs;
}

bool sb_registry_is_built(void)
{
	return false;
}

int sb_registry_seek(struct sb_registry *cs, struct mount *m, const struct mount_record *asked,
		     pid_t opener, struct hosted_sb **ret, int *ret_fd)
{
	(void)cs;
	(void)asked;
	(void)opener;
	(void)ret;
	(void)ret_fd;
	if (m->opts.share)
		log_warn("%s: this program was built without share=pages: the mount has a page "
			 "cache of its own",
			 m->opts.mountpoint);
	return -EOPNOTSUPP;
}

int sb_registry_found(struct hosted_sb *c, int fuse_fd, unsigned dev_major, unsigned dev_minor,
		      char *err, size_t err_size)
{
	(void)c;
	(void)fuse_fd;
	(void)dev_major;
	(void)dev_minor;
	snprintf(err, err_size, "this program was built without share=pages");
	return -EOPNOTSUPP;
}

void sb_registry_leave(struct hosted_sb *c)
{
	(void)c;
}

int sb_registry_resume(struct sb_registry *cs, uint64_t key, struct hosted_sb **ret, char *err,
		       size_t err_size)
{
	(void)cs;
	(void)key;
	(void)ret;
	snprintf(err, err_size, "this program was built without share=pages");
	return -EOPNOTSUPP;
}

void sb_registry_lose(struct hosted_sb *c, uint64_t key)
{
	(void)c;
	(void)key;
}

void sb_registry_lose_rest(struct sb_registry *cs)
{
	(void)cs;
}

struct image *sb_registry_image(const struct hosted_sb *c)
{
	(void)c;
	return NULL;
}

int sb_registry_enter(struct hosted_sb *c, struct mount *m, void *owner, const uint32_t *secret,
		      struct hosted_member **ret)
{
	(void)c;
	(void)m;
	(void)owner;
	(void)secret;
	(void)ret;
	return -EOPNOTSUPP;
}

uint32_t sb_registry_number(const struct hosted_member *o)
{
	(void)o;
	return 0;
}

bool sb_registry_describe(const struct hosted_member *o, struct mount_record *ret)
{
	(void)o;
	(void)ret;
	return false;
}

void sb_registry_bound(struct hosted_member *o, ino_t mount_ns)
{
	(void)o;
	(void)mount_ns;
}

void sb_registry_abandon(struct hosted_member *o)
{
	(void)o;
}

int sb_registry_suspend(struct hosted_member *o, unsigned ms)
{
	(void)o;
	(void)ms;
	return -EOPNOTSUPP;
}

void sb_registry_reopened(struct hosted_member *o)
{
	(void)o;
}

void sb_registry_resumed(struct hosted_member *o)
{
	(void)o;
}

void sb_registry_lost(struct hosted_member *o, struct locks *locks)
{
	(void)o;
	(void)locks;
}

bool sb_registry_is_at(const struct hosted_member *o, unsigned dev_major, unsigned dev_minor,
		       uint32_t number)
{
	(void)o;
	(void)dev_major;
	(void)dev_minor;
	(void)number;
	return false;
}

void sb_registry_evict(struct hosted_member *o)
{
	(void)o;
}

void sb_registry_check(struct sb_registry *cs)
{
	(void)cs;
}

void sb_registry_end_all(struct sb_registry *cs)
{
	(void)cs;
}
