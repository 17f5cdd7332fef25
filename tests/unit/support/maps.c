// SPDX-License-Identifier: Apache-2.0
#include "support/maps.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "veneer/base/log.h"

int maps_setup(void **state)
{
	struct maps_layer *l = calloc(1, sizeof(*l));

	strcpy(l->dir, "/tmp/test-map-XXXXXX");
	if (!mkdtemp(l->dir))
		return -1;
	l->root = open(l->dir, O_RDONLY | O_DIRECTORY);
	mkdirat(l->root, "upper", 0700);
	mkdirat(l->root, "work", 0700);
	l->work = openat(l->root, "work", O_RDONLY | O_DIRECTORY);
	close(l->root);

	char upper[64];

	snprintf(upper, sizeof(upper), "%s/upper", l->dir);
	l->root = open(upper, O_RDONLY | O_DIRECTORY);
	session_epoch_for_tests = BOOT_A;
	log_set_level(LOG_LVL_ERROR);
	*state = l;
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

int maps_teardown(void **state)
{
	struct maps_layer *l = *state;

	close(l->root);
	close(l->work);
	nftw(l->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	free(l);
	return 0;
}

struct mapfile *maps_open(const struct maps_layer *l, unsigned flags,
			  const struct mapfile_rebuild *rebuild)
{
	struct mapfile *mf = NULL;

	assert_int_equal(mapfile_open(l->root, l->work, flags, "test", rebuild, &mf), 0);
	return mf;
}

struct mapfile *maps_open_rw(const struct maps_layer *l)
{
	return maps_open(l, 0, NULL);
}

file_id_t maps_new_file(struct mapfile *mf, uint64_t clip)
{
	file_id_t id = 0;

	assert_int_equal(mapfile_file_new(mf, clip, &id), 0);
	assert_int_not_equal(id, 0);
	return id;
}

bool maps_is_own(struct mapfile *mf, file_id_t id, blk_t blk)
{
	bool own;
	blk_t n;

	assert_int_equal(mapfile_run(mf, id, blk, 1, &own, &n), 0);
	assert_int_equal(n, 1);
	return own;
}

uint64_t maps_clip(struct mapfile *mf, file_id_t id)
{
	uint64_t clip;

	assert_int_equal(mapfile_clip(mf, id, &clip), 0);
	return clip;
}

void maps_take_state(struct mapfile *mf, struct maps_state *s)
{
	memset(s, 0, sizeof(*s));
	s->count = mapfile_count(mf);
	for (file_id_t id = 1; id < MAPS_STATE_FILES; id++) {
		if (mapfile_clip(mf, id, &s->clip[id]) < 0)
			continue;
		s->clip[id]++;
		for (blk_t b = 0; b < MAPS_STATE_BLKS; b++)
			s->own[id][b] = maps_is_own(mf, id, b);
	}
}

off_t maps_size(const struct maps_layer *l)
{
	struct stat st;

	return fstatat(l->root, MAPFILE_NAME, &st, 0) < 0 ? -1 : st.st_size;
}

bool maps_work_is_empty(const struct maps_layer *l)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/work", l->dir);
	return rmdir(path) == 0;
}
