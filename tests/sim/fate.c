// SPDX-License-Identifier: Apache-2.0
#include "fate.h"

#include "fds.h"
#include "sim.h"

#include <errno.h>
#include <unistd.h>

enum fate_plant fate_planted;
const char *const fate_plant_names[FATE_PLANTS] = {
	"none",	     "hole",	 "growth", "commit", "unwritten", "name-sync",
	"data-sync", "map-sync", "twice",  "again",  "open",	  "name",
};

const uint64_t fate_plant_seeds[FATE_PLANTS] = {
	[FATE_PLANT_HOLE] = FATE_PLANT_RARE,
	[FATE_PLANT_NAME] = FATE_PLANT_RARE,
	[FATE_PLANT_COMMIT] = 840,
	[FATE_PLANT_AGAIN] = 140,
	[FATE_PLANT_OPEN] = 330,
};

static __attribute__((noreturn)) void end(enum sim_end how, const char *name)
{
	sim_trace(1, "-- %s before %s", how == SIM_END_CUT ? "the power goes" : "killed", name);
	sim->end = how;
	_exit(0);
}

static bool fails(struct fate *f, enum fate_kind kind)
{
	if (!f->fail_at || f->calls < f->fail_at || kind <= FATE_STORE ||
	    (f->spares_xattrs && kind == FATE_XATTR))
		return false;
	if (f->calls == f->fail_at) {
		static const int errors[FATE_KINDS] = {
			[FATE_OPEN] = EMFILE, [FATE_READ] = EIO,    [FATE_WRITE] = ENOSPC,
			[FATE_NAME] = ENOSPC, [FATE_SIZE] = ENOSPC, [FATE_XATTR] = ENOSPC,
			[FATE_ATTR] = EIO,    [FATE_SYNC] = EIO,
		};

		f->fail_kind = kind;
		f->error = dice_once_in(&sim->kernel, 4) ? EIO : errors[kind];
	}
	return f->fail_kind == kind && f->calls <= f->fail_until;
}

int fate_call(enum fate_kind kind, const char *name)
{
	struct fate *f = &sim->fate;

	if (f->is_away)
		return 0;
	disk_pass_time(sim->disk, 1000 + (int64_t)dice_below(&sim->kernel, 100000));
	for (const char *p = name; *p; p++)
		sim->digest = dice_mix(sim->digest ^ (uint8_t)*p);
	sim->digest = dice_mix(sim->digest ^ (uint64_t)disk_now(sim->disk));
	if (kind == FATE_NOTHING)
		return 0;
	f->calls++;
	if (kind != FATE_OPEN && kind != FATE_READ) {
		f->changes++;
		if (f->changes == f->kill_at)
			end(SIM_END_KILLED, name);
		if (f->changes == f->cut_at)
			end(SIM_END_CUT, name);
	}
	disk_background(sim->disk, &sim->kernel);
	if (!fails(f, kind))
		return 0;
	f->has_failed = true;
	sim_trace(1, "   %s fails with error %d", name, f->error);
	return f->error;
}

size_t fate_short(size_t len, int64_t off)
{
	const int64_t blk = DISK_BLK_BYTES;
	int64_t end;

	if (sim->fate.is_away || len < 2 || !dice_once_in(&sim->kernel, 64))
		return len;
	end = (off + 1 + (int64_t)dice_below(&sim->kernel, len - 1)) / blk * blk;
	return end > off ? (size_t)(end - off) : len;
}
