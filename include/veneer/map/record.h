/* SPDX-License-Identifier: Apache-2.0 */
/* Encode and decode one record of the map file (doc/SPEC.md, section 3.2). Pure. */
#pragma once

#include "veneer/base/types.h"
#include "veneer/map/format.h"

struct record {
	enum format_record_type type;
	file_id_t id;
	union {
		struct {
			uint64_t epoch, nonce;
		} open;
		struct {
			uint64_t clip;
		} fresh; /* NEW */
		struct {
			blk_t blk, n;
		} run;
		struct {
			uint64_t chunk, bits[2];
		} bits;
		struct {
			uint64_t size;
		} truncate;
	};
};

/* Encoded length of this type, bytes. */
size_t record_len(enum format_record_type type);
/* Write rec to out; prev is the checksum of the record before. Length, and its own checksum. */
size_t record_encode(const struct record *rec, uint64_t prev, uint8_t out[FORMAT_REC_BYTES_MAX],
		     uint64_t *ret_sum);

/* Read the record at p of which at most len bytes exist. Its length. 0: no record stands here
 * (*ret_why says why in words: zeros, torn, ...). -EUCLEAN: the checksum is right, and the record
 * breaks a rule (*ret_why names it). *ret_rec and *ret_sum are written with a length only. */
int record_decode(const void *p, size_t len, uint64_t prev, struct record *ret_rec,
		  uint64_t *ret_sum, const char **ret_why);
/* Likewise for a record of which one byte has changed since it was written: its checksum tells the
 * byte and its former value. 0: no such record. */
int record_mend(const void *p, size_t len, uint64_t prev, struct record *ret_rec,
		uint64_t *ret_sum);
/* "OPEN", "NEW", ...; for people. */
const char *record_name(enum format_record_type type);
