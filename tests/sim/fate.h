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
	bool has_failed; /* some call of the operation under way */
	bool is_away; /* the simulator itself looks: nothing happens */
};

/* Before each call: 0, or the positive error number that it fails with. Does not return where the
 * server is killed or the power goes. */
int fate_call(enum fate_kind kind, const char *name);
/* Of a piece of so many bytes: how many of them are moved. A short one ends with a block. */
size_t fate_short(size_t len, int64_t off);

/* Faults that were once in the program, planted again; --plant NAME. */
enum fate_plant {
	FATE_PLANT_NONE,
	FATE_PLANT_MAP_SYNC, /* the map is not synced */
	FATE_PLANT_DATA_SYNC, /* data are not synced before the record that commits them */
	FATE_PLANT_NAME_SYNC, /* a whole copy gets its name before its data are synced */
	FATE_PLANT_HOLE, /* a hole is made before the map is on the disk */
	FATE_PLANT_GROWTH, /* a file that was cut grows before the cut is on the disk */
	FATE_PLANT_TWICE, /* a record is appended twice */
	FATE_PLANT_ORDER, /* the record comes before its data */
	FATE_PLANTS,
};
extern enum fate_plant fate_planted;
extern const char *const fate_plant_names[FATE_PLANTS];
