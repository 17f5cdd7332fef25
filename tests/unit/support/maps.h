/* SPDX-License-Identifier: Apache-2.0 */
/* A layer with a map file and nothing else, and what the tests of src/map ask of it. Everything
 * asserts. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "map/mapfile-internal.h"
#include "veneer/map/session_epoch.h"

/* Boots that session_epoch_for_tests stands for; maps_setup starts in the first. */
#define BOOT_A 0xaaaau
#define BOOT_B 0xbbbbu
#define MIB    (1u << 20)

struct maps_layer {
	char dir[32];
	int root, work;
};

/* cmocka fixtures: an empty layer and its work directory. */
int maps_setup(void **state);
int maps_teardown(void **state);

struct mapfile *maps_open(const struct maps_layer *l, unsigned flags,
			  const struct mapfile_rebuild *rebuild);
struct mapfile *maps_open_rw(const struct maps_layer *l);
file_id_t maps_new_file(struct mapfile *mf, uint64_t clip);
bool maps_is_own(struct mapfile *mf, file_id_t id, blk_t blk);
uint64_t maps_clip(struct mapfile *mf, file_id_t id);

/* Bytes of the map file, -1 when there is none. */
off_t maps_size(const struct maps_layer *l);
bool maps_work_is_empty(const struct maps_layer *l);

/* Everything that can be asked, as numbers that can be compared. */
#define MAPS_STATE_FILES 8
#define MAPS_STATE_BLKS	 300
struct maps_state {
	size_t count;
	uint64_t clip[MAPS_STATE_FILES];
	uint8_t own[MAPS_STATE_FILES][MAPS_STATE_BLKS];
};
void maps_take_state(struct mapfile *mf, struct maps_state *s);
