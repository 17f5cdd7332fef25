// SPDX-License-Identifier: Apache-2.0
#include "veneer/tools/du.h"

#include "layer_walk.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/htab.h"
#include "veneer/base/log.h"
#include "veneer/base/minmax.h"
#include "veneer/layer/layer.h"
#include "veneer/layer/source.h"
#include "veneer/layer/whiteout.h"
#include "veneer/map/mapfile.h"

#include <fcntl.h>
#include <string.h>

#define BLOCK_BYTES 512 /* unit of st_blocks */

/* A file with several names that has been counted. */
struct seen {
	struct hlink link;
	dev_t dev;
	ino_t ino;
};

struct counting {
	struct du *du;
	struct htab seen;
};

static int is_new(struct counting *c, const struct stat *st)
{
	struct seen *s;

	if (S_ISDIR(st->st_mode) || st->st_nlink < 2)
		return 1;
	for (struct hlink *l = htab_first(&c->seen, st->st_ino); l; l = htab_next(l)) {
		s = container_of(l, struct seen, link);
		if (s->ino == st->st_ino && s->dev == st->st_dev)
			return 0;
	}
	s = malloc(sizeof(*s));
	if (!s)
		return -ENOMEM;
	*s = (struct seen){ .dev = st->st_dev, .ino = st->st_ino };
	if (htab_insert(&c->seen, &s->link, st->st_ino) == 0)
		return 1;
	free(s);
	return -ENOMEM;
}

static void free_seen(struct hlink *l, void *arg)
{
	(void)arg;
	free(container_of(l, struct seen, link));
}

static uint64_t blocks_of(uint64_t size)
{
	return (size + BLK_BYTES - 1) & ~(uint64_t)(BLK_BYTES - 1);
}

static int count_regular(struct counting *c, const struct layer_walk_entry *e, uint64_t bytes)
{
	struct partial_xattr m;
	uint64_t whole = bytes;
	int r = source_read_mark(e->dirfd, e->name, &m, NULL);

	if (r == 1) {
		c->du->partial_files++;
		c->du->partial_bytes += bytes;
		/* The whole lower file, and any growth since. */
		whole = blocks_of(m.lower_size);
		if (blocks_of((uint64_t)e->st.st_size) > whole)
			whole = blocks_of((uint64_t)e->st.st_size);
		whole = MAX(whole, bytes);
	}
	c->du->data_bytes += bytes;
	c->du->whole_bytes += whole;
	/* A damaged mark is reported by veneer check. */
	return r == -ENOMEM ? r : 0;
}

static int count_entry(void *arg, const struct layer_walk_entry *e, void **ret_dir)
{
	const uint64_t bytes = (uint64_t)e->st.st_blocks * BLOCK_BYTES;
	struct counting *c = arg;
	int r;

	(void)ret_dir;
	if (!strcmp(e->path, MAPFILE_NAME)) {
		c->du->map_bytes += bytes;
		return 0;
	}
	if (whiteout_is_device(e->st.st_mode, e->st.st_rdev) ||
	    whiteout_name_kind(e->name) == WHITEOUT_HIDES) {
		c->du->whiteouts++;
		return 0;
	}
	r = is_new(c, &e->st);
	if (r <= 0)
		return r;
	if (whiteout_name_kind(e->name) == WHITEOUT_PLAIN)
		c->du->inodes++;
	if (S_ISREG(e->st.st_mode))
		return count_regular(c, e, bytes);
	c->du->other_bytes += bytes;
	return 0;
}

static int miss_dir(void *arg, const char *path, int error)
{
	(void)arg;
	log_error("%s: %s", path, strerror(-error));
	return error;
}

int du_layer(const char *path, const struct step *step, struct du *ret)
{
	struct counting c = { .du = ret };
	const struct layer_walk_hooks hooks = {
		.fn = count_entry, .miss = miss_dir, .arg = &c, .step = step
	};
	struct stat st;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = fd < 0 || fstat(fd, &st) < 0 ? -errno : 0;

	*ret = (struct du){ 0 };
	if (r == 0) {
		ret->inodes = 1;
		ret->other_bytes = (uint64_t)st.st_blocks * BLOCK_BYTES;
		r = layer_walk(fd, NULL, &hooks);
	}
	if (r < 0)
		log_error("%s: %s", path, strerror(-r));
	htab_drain(&c.seen, free_seen, NULL);
	htab_release(&c.seen);
	closep(&fd);
	return r;
}
