/* SPDX-License-Identifier: Apache-2.0 */
/* One seed's world. It lies in the arena, so that it outlives the children that play servers. */
#pragma once

#include "dice.h"
#include "disk.h"
#include "fate.h"
#include "history.h"
#include "kernel.h"
#include "request.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	SIM_FD_FIRST = 10000, /* descriptors from here on are made up */
	SIM_FDS = 512,
};

struct sim_fd {
	bool is_open;
	uint32_t ino;
	int flags; /* of open(2) */
	int64_t pos;
};

/* How the play of one server ended. */
enum sim_end {
	SIM_END_NONE, /* it crashed, or exited by itself */
	SIM_END_CLEAN, /* unmounted */
	SIM_END_KILLED,
	SIM_END_CUT, /* the power */
	SIM_END_VIOLATION,
};

enum sim_about { SIM_ABOUT_ALL, SIM_ABOUT_BYTES, SIM_ABOUT_NAMES };

/* Names of the streams of numbers that are drawn. */
enum sim_stream {
	SIM_STREAM_WORLD,
	SIM_STREAM_OP,
	SIM_STREAM_KERNEL,
	SIM_STREAM_LIFE,
	SIM_STREAM_CUT,
	SIM_STREAM_NOISE,
};

struct sim {
	uint64_t seed;
	struct disk *disk;
	struct sim_fd fds[SIM_FDS];
	struct dice kernel; /* draws what the machine does by itself */
	struct fate fate;
	struct history *history;
	struct kernel known;
	struct request request;
	uint64_t requests; /* so far */
	void *intents; /* memory of intent_log.h */
	bool is_kept; /* the next server takes the mount over, with its node table: */
	int slots_fd, names_fd;
	int takeovers;
	uint64_t ops; /* that were begun, in all lives */
	uint64_t boots;
	char boot_id[37];
	enum sim_end end;
	enum history_doubt doubt; /* of what the next look finds */
	uint64_t doubt_op;
	const uint8_t *skip; /* operations that are left out; NULL: none */
	size_t nskip;
	bool has_true_extents; /* the disk is one whose extents are trusted */
	enum sim_about is_about; /* what most operations are */
	char options[128]; /* of the mount, after the directories */
	int trace; /* 1: operations, 2: calls too */
	uint64_t digest; /* of all calls so far: a seed that is played again has the same */
	uint64_t noise; /* numbers that the program drew */
	char subject[HISTORY_PATH]; /* file of the last operation, */
	uint64_t subject_off, subject_len; /* and where in it */
};

extern struct sim *sim;

/* What must not be: says it, with the seed, and ends the child. */
__attribute__((format(printf, 1, 2), noreturn)) void sim_violation(const char *fmt, ...);
/* The simulator itself cannot go on. */
__attribute__((format(printf, 1, 2), noreturn)) void sim_give_up(const char *fmt, ...);
/* level: 1 for operations, 2 for calls. */
__attribute__((format(printf, 2, 3))) void sim_trace(int level, const char *fmt, ...);
