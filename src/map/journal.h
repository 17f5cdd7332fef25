/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of chained records, appended to the mapped tail of a file. No lock: the owner's. */
#pragma once

#include "veneer/map/record.h"

/* The end of a log that we append to: [0, cap) of the file exists as written zeros behind tail. */
struct journal {
	int fd; /* owned */
	uint64_t start; /* of the log */
	uint64_t tail; /* where the next record goes */
	uint64_t cap; /* file bytes that are mapped */
	uint64_t sum; /* of the last record */
	uint8_t *map; /* [map_off, cap), shared */
	uint64_t map_off;
};

/* Take over fd with a log that starts at start and ends with tail and sum. Maps; grows if there is
 * no room at all. 0 or -errno (then fd is still the caller's). */
int journal_attach(struct journal *j, int fd, uint64_t start, uint64_t tail, uint64_t sum);
/* Unmap and close. Safe on a zeroed struct with fd -1. */
void journal_release(struct journal *j);
/* Room for len more bytes. 0, or -ENOSPC and the like with nothing changed. */
int journal_reserve(struct journal *j, size_t len);
/* Append. Errors of journal_reserve, or -EIO: the end of the log is unknown now (poison). */
int journal_append(struct journal *j, const struct record *rec);
/* invariants.h */
const char *journal_check_invariants(const struct journal *j);
