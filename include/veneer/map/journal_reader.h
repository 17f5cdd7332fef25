/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of chained records, read from any part of a file. No lock: the owner's. */
#pragma once

#include "veneer/map/record.h"

#define JOURNAL_WINDOW_BYTES 65536u
/* No writer leaves more than this behind its tail: twice the growth step, and a page. */
#define JOURNAL_SLACK_BYTES ((2u << 20) + 65536u)
/* A killed writer's last record, and one it had begun over the remains of an earlier kill. */
#define JOURNAL_TORN_BYTES (2 * FORMAT_REC_BYTES_MAX)
#define JOURNAL_TOO_LONG   3

/* Reads records one after the other through a window, however long the file claims to be. */
struct journal_reader {
	int fd; /* borrowed */
	uint64_t off; /* of the next record */
	uint64_t end; /* no record reaches past this; UINT64_MAX: end of file */
	uint64_t sum; /* of the record before */
	const char *why; /* why the last call gave no record, or the rule broken */
	uint64_t win_off;
	size_t win_len;
	uint8_t *win;
};

/* The caller owns the struct and releases it. 0 or -ENOMEM. */
int journal_reader_init(struct journal_reader *r, int fd, uint64_t off, uint64_t end, uint64_t sum);
void journal_reader_release(struct journal_reader *r);
/* 1 and the record; 0 at the end (r->why); -EUCLEAN (r->why, at r->off) or another -errno. */
int journal_reader_next(struct journal_reader *r, struct record *ret_rec);
/* Move on to the next offset at which a record follows the checksum before it, with any value of
 * that checksum. 1, 0 or -errno. */
int journal_reader_resync(struct journal_reader *r);
/* journal_reader_next gave 0: is there a record of which one byte is damaged? 1 and the record; 0;
 * -errno. */
int journal_reader_mend(struct journal_reader *r, struct record *ret_rec);
/* Judge the bytes behind the end of a log that no power cut can have torn. 0: nothing, or one torn
 * record and zeros. Other bytes no killed writer leaves (doc/SPEC.md, 3.2), and the rule broken is
 * given: 1: a single byte; 2: more; JOURNAL_TOO_LONG. Else -errno. */
int journal_reader_rest(const struct journal_reader *r, const char **ret_why);

/* Bytes of fd from off on that are not 0: none, 1, or 2 for more, and for too many to look at; or
 * -errno. */
int journal_reader_stray_bytes(int fd, uint64_t off);
