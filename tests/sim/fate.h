/* SPDX-License-Identifier: Apache-2.0 */
/* When the server is killed, when the power goes, which call fails. Drawn from the seed, counted in
 * calls. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* By the errors that fit. */
enum fate_kind {
	FATE_NOTHING, /* does not fail, and changes nothing */
	FATE_STORE, /* into a mapping: does not fail */
	FATE_OPEN,
	FATE_READ,
	FATE_WRITE,
	FATE_NAME,
	FATE_SIZE,
	FATE_XATTR,
	FATE_ATTR,
	FATE_SYNC,
	FATE_KINDS,
};

struct fate {
	uint64_t calls; /* so far */
	uint64_t changes; /* those of them that change or sync something */
	uint64_t kill_at, cut_at; /* a number of a change; 0: never */
	uint64_t fail_at; /* a number of a call; 0: never */
	uint64_t fail_until; /* calls of fail_kind up to this number fail, too */
	enum fate_kind fail_kind;
	int error;
	bool spares_xattrs; /* as long as a mount finds out what it can use */
	bool has_failed; /* some call of the operation under way */
	bool is_away; /* the simulator itself looks: nothing happens */
};

/* Before each call: 0, or the positive error number that it fails with. Does not return where the
 * server is killed or the power goes. */
int fate_call(enum fate_kind kind, const char *name);
/* Of a piece of so many bytes: how many of them are moved. A short one ends with a block. */
size_t fate_short(size_t len, int64_t off);

/* Faults that are planted, most of them again: --plant NAME. The page says what each is. */
enum fate_plant {
	FATE_PLANT_NONE,
	FATE_PLANT_HOLE,
	FATE_PLANT_GROWTH,
	FATE_PLANT_COMMIT,
	FATE_PLANT_UNWRITTEN,
	FATE_PLANT_NAME_SYNC,
	FATE_PLANT_DATA_SYNC,
	FATE_PLANT_MAP_SYNC,
	FATE_PLANT_TWICE,
	FATE_PLANT_AGAIN,
	FATE_PLANT_OPEN,
	FATE_PLANT_NAME,
	FATE_PLANTS,
};
extern enum fate_plant fate_planted;
extern const char *const fate_plant_names[FATE_PLANTS];
/* A seed that is not long before one that shows it; 0: no need to know;
 * FATE_PLANT_RARE: it takes longer than a test may. */
#define FATE_PLANT_RARE UINT64_MAX
extern const uint64_t fate_plant_seeds[FATE_PLANTS];
