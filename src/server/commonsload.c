// SPDX-License-Identifier: Apache-2.0
/* Gatherings of a server that is dead. Whoever is the first to need one, of its mounts or of the heir's threads, opens it,
 * and the others wait for him. */
#include "commons-internal.h"

#include "veneer/cleanup.h"

#include <stdio.h>
#include <string.h>

static struct common *find_locked(struct commons *cs, uint64_t key)
{
	for (struct list_link *l = cs->all.next; l != &cs->all; l = l->next)
		if (common_of(l)->key == key)
			return common_of(l);
	return NULL;
}

/* 0: it is there, held; 1: the caller is to open it. */
static int claim(struct commons *cs, uint64_t key, struct common **ret)
{
	struct common *c;

	LOCK_SCOPE(&cs->lock);
	while ((c = find_locked(cs, key)) && c->state == FORMING)
		pthread_cond_wait(&cs->changed, &cs->lock);
	if (c && c->state == OVER)
		return -ENOTCONN;
	if (c) {
		c->holds++;
		*ret = c;
		return 0;
	}
	c = common_new(cs);
	if (!c)
		return -ENOMEM;
	c->key = key;
	c->is_left = true;
	list_add_tail(&cs->all, &c->link);
	*ret = c;
	return 1;
}

/* ---- from the ledger ---- */

struct finding {
	struct common *common;
	uint32_t place;
	int fd;			/* -1: not found */
	int r;
};

static void look_for(int fd, uint32_t place, void *arg)
{
	struct finding *f = arg;
	struct dossier d;

	if (f->fd >= 0 || dossier_read(fd, &d) < 0)
		return;
	if (dossier_is_common(&d) && d.key == f->common->key) {
		f->fd = fd;
		f->place = place;
	}
	dossier_forget(&d);
}

static int find(struct common *c)
{
	struct finding f = { .common = c, .fd = -1 };
	int r;

	ledger_each(c->cs->ledger, look_for, &f);
	r = f.fd < 0 ? -ENOENT : dossier_read(f.fd, &c->kept.dossier);
	if (r == 0) {
		c->kept.place = f.place;
		c->kept.is_kept = true;
	}
	return r;
}

static void expect_one(int fd, uint32_t place, void *arg)
{
	struct finding *f = arg;
	struct dossier d;

	(void)place;
	if (f->r < 0 || dossier_read(fd, &d) < 0)
		return;
	if (d.group == f->common->key && !dossier_is_common(&d))
		f->r = gather_expect(f->common->gather, (uint32_t)d.key);
	dossier_forget(&d);
}

/* ---- opening ---- */

static int open_again(struct common *c, struct session **ret, char *err, size_t err_size)
{
	struct finding members = { .common = c };
	struct dossier *d = &c->kept.dossier;
	int r;

	c->dev_major = d->dev_major;
	c->dev_minor = d->dev_minor;
	r = kept_reopen(&c->kept, NULL, &c->mount, &c->has_mount, err, err_size);
	if (r < 0)
		return r;
	r = gather_new(&c->mount, steal_fd(&d->recall_fd), common_note_unused, &c->gather);
	if (r == 0) {
		gather_note_device(c->gather, c->dev_major, c->dev_minor);
		ledger_each(c->cs->ledger, expect_one, &members);
		r = members.r;
	}
	if (r < 0) {
		snprintf(err, err_size, "%s: cannot have mounts in common: %s", c->mount.opts.mountpoint, strerror(-r));
		return r;
	}
	return gather_resume(c->gather, d->fuse_fd, d->init.data, d->init.len, (enum io_mode)d->io, ret, err, err_size);
}

int commons_resume(struct commons *cs, uint64_t key, struct common **ret, char *err, size_t err_size)
{
	struct session *session;
	struct duty *before;
	struct common *c;
	int r = claim(cs, key, &c);

	if (r < 0)
		snprintf(err, err_size, "what it had in common with others is gone");
	if (r == 1) {
		r = find(c);
		snprintf(err, err_size, "what it had in common with others is gone");
		before = duty_begin(r < 0 ? NULL : ledger_duty(cs->ledger, c->kept.place));
		if (r == 0)
			r = open_again(c, &session, err, err_size);
		duty_end(before);
		if (r == 0)
			r = common_serve(c, session, err, err_size);
		if (r < 0) {
			/* Nobody else tries it: it would have these descriptors. */
			kept_drop(&c->kept);
			commons_leave(c);
		}
	}
	if (r == 0)
		*ret = c;
	return r;
}

void commons_lose(struct common *c, uint64_t key)
{
	gather_lose(c->gather, (uint32_t)key);
}

static bool is_open(struct common *c)
{
	LOCK_SCOPE(&c->cs->lock);
	return c->state == OPEN;
}

void commons_lose_rest(struct commons *cs)
{
	struct common *c = NULL, *next;

	while ((next = common_hold_next(cs, c))) {
		if (c)
			common_release(c);
		c = next;
		if (is_open(c))
			gather_lose_rest(c->gather);
	}
	if (c)
		common_release(c);
	LOCK_SCOPE(&cs->lock);
	cs->is_hurried = true;
	pthread_cond_broadcast(&cs->changed);
}

struct image *commons_image(const struct common *c)
{
	return c->mount.tree.image;
}
