/* SPDX-License-Identifier: Apache-2.0 */
/* What a delta says besides what every tar says (doc/SPEC.md, section 6): its head, a record of
 * each entry, and its end. Pure: JSON to struct and back. What is decoded is hostile: numbers are
 * in range, ranges ascend and do not overlap, and nothing more is promised. */
#pragma once

#include "veneer/tools/delta.h"

#define DELTA_HEAD_PATH	  ".wh..wh.delta"
#define DELTA_END_PATH	  ".wh..wh.delta.end"
#define DELTA_RECORD_ATTR "user.veneer.delta"
#define DELTA_BASE_ATTR	  "user.veneer.base" /* the path of the base, where that is another one */
#define DELTA_TEXT_MAX	  (1u << 18) /* bytes of one of these texts */
#define DELTA_ZEROS_MAX	  4096 /* ranges in one record */

struct delta_range {
	uint64_t off, len; /* bytes; len > 0 */
};

struct delta_record {
	uint64_t sum; /* of all before this entry */
	bool has_base_sum; /* the entry before has a base, whose bytes that it shows have this sum
			    */
	uint64_t base_sum;
	bool is_same; /* a directory: only what is in it has changed */
	bool is_opaque; /* a directory: nothing below shows through it */
	bool is_socket;
	bool has_links; /* further entries are names of this file */
	bool is_copy; /* of the base, which is another file, and goes on beside it */
	uint32_t mtime_ns; /* of a time before 1970, of which a tar has the seconds alone */
	bool is_partial; /* what is neither in the archive nor zeros is of the base */
	uint64_t base_size; /* of the base, bytes */
	uint64_t at,
		end; /* what this entry has of the file; the first has at 0, the last end = size */
	size_t nzeros;
	struct delta_range *zeros; /* of a partial file: also not of the base; owned */
};

struct delta_end {
	uint64_t entries; /* of all parts */
	uint64_t sum;
	bool has_base_sum;
	uint64_t base_sum;
};

/* Text, malloc'd; NULL: no memory. */
char *delta_record_format_head(const struct delta_head *h);
char *delta_record_format(const struct delta_record *r);
char *delta_record_format_end(const struct delta_end *e);
/* 0; -EUCLEAN: it is no such text; -EPROTO: of a newer version; -ENOMEM. A record is to be released
 * if this was 0. */
int delta_record_parse_head(const char *text, size_t len, struct delta_head *ret);
int delta_record_parse(const char *text, size_t len, struct delta_record *ret);
int delta_record_parse_end(const char *text, size_t len, struct delta_end *ret);
void delta_record_release(struct delta_record *r);

/* That of the names of all entries, after this one. */
uint64_t delta_record_next_names(uint64_t names, const char *path, uint64_t at, uint64_t end);
/* The sum after an entry: of the one before, and of this entry's header, data and base. */
uint64_t delta_record_next_sum(uint64_t sum, uint64_t header, uint64_t data, uint64_t base);
