/* SPDX-License-Identifier: Apache-2.0 */
/* Logs what the map asks of its files, in order, taken where the test's linker puts us in between
 * (--wrap), and tells what of it a disk may hold when the power fails at any moment. Nothing is
 * really synced. */
#pragma once

#include "support/maps.h"

enum disk_event_type {
	DISK_CREATE,
	DISK_WRITE,
	DISK_SYNC, /* of what was written before event number began */
	DISK_RENAME, /* to the map's name */
	DISK_DIR_SYNC, /* likewise */
	DISK_RECORD, /* record number `number` is whole */
	DISK_PROMISE, /* from here on the first `number` records are never to be missed */
};

struct disk_event {
	enum disk_event_type type;
	unsigned file;
	size_t number;
	uint64_t off, len;
	uint8_t *bytes; /* owned */
};

#define DISKLOG_FILES	   64
#define DISKLOG_FILE_BYTES (128u << 10)

struct disklog {
	struct disk_event *events;
	size_t n, cap;
	struct record *records;
	size_t nrecords, cap_records;
	ino_t inos[DISKLOG_FILES];
	unsigned nfiles;
	ino_t dir;
	bool has_first; /* file 0 was there, under the map's name, with first_len bytes */
	uint8_t *first;
	uint64_t first_len;
	struct journal *journal; /* of which records count */
	void (*on_sync)(void *arg); /* called while a sync is under way */
	void *on_sync_arg;
};

/* Record everything from now on, for the map of this layer. One at a time. */
void disklog_start(struct disklog *log, const struct maps_layer *l);
void disklog_stop(void);
void disklog_release(struct disklog *log);
/* This many records, or what is told here for one, are durable from here on. */
void disklog_promise(size_t nrecords);
/* Something that counts as a record and is none in the log. */
void disklog_pseudo(const struct record *rec);
/* Added to every clock, in milliseconds. */
extern uint64_t disklog_clock_ms;

/* The disk at a moment: after the events before `at`. */
struct disk_file {
	uint8_t *now, *safe;
	uint64_t now_len, safe_len;
	size_t *pending; /* writes that no sync has covered */
	size_t npending;
};

struct disk {
	const struct disklog *log;
	size_t at;
	struct disk_file files[DISKLOG_FILES];
	int named[DISKLOG_FILES]; /* who may have the map's name, the durable one first; -1:
				   * nobody */
	size_t nnamed;
	size_t floor, upto; /* records that must, and may, be there */
	bool must_exist;
};

void disk_init(struct disk *d, const struct disklog *log);
void disk_release(struct disk *d);
/* One event further; false at the end. */
bool disk_step(struct disk *d);

enum disk_loss {
	DISK_ALL_LOST,
	DISK_NONE_LOST,
	DISK_ONE_LOST, /* of the units written, all but one in their last version */
	DISK_ONE_KEPT,
	DISK_ANY, /* each in any of its versions */
	DISK_TORN, /* the last write in part, in order up to there */
};

/* Into out, of DISKLOG_FILE_BYTES: what the file may hold, in units of 512 or 4096; seed chooses.
 * Its length. */
uint64_t disk_picture(const struct disk *d, unsigned file, enum disk_loss loss, unsigned unit,
		      unsigned *seed, uint8_t *out);
