/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of a delta besides the tar (doc/SPEC.md, section 6): its head, a record of each entry,
 * and its end. Pure: JSON to struct and back. Input is not trusted: a decoded number is in range,
 * and ranges ascend without overlap; nothing more is guaranteed. */
#pragma once

#include "veneer/tools/delta.h"

#define DELTA_HEAD_PATH	  ".wh..wh.delta"
#define DELTA_END_PATH	  ".wh..wh.delta.end"
#define DELTA_RECORD_ATTR "user.veneer.delta"
#define DELTA_BASE_ATTR	  "user.veneer.base" /* path of the base, if it differs */
#define DELTA_TEXT_MAX	  (1u << 18) /* limit of one of these texts, in bytes */
#define DELTA_ZEROS_MAX	  4096 /* ranges in one record */

struct delta_range {
	uint64_t off, len; /* bytes; len > 0 */
};

struct delta_record {
	uint64_t sum; /* of all before this entry */
	bool has_base_sum; /* base_sum is the sum of the base data that the entry before shows */
	uint64_t base_sum;
	bool is_same; /* a directory in which only entries changed */
	bool is_opaque; /* a directory through which nothing below shows */
	bool is_socket;
	bool has_links; /* later entries are further names of this file */
	bool is_copy; /* a copy of the base, which is another file and remains */
	uint32_t mtime_ns; /* of a time before 1970, as a tar then has only seconds */
	bool is_partial; /* ranges that are neither in the archive nor zeros come from the base */
	uint64_t base_size; /* of the base, bytes */
	uint64_t at, end; /* the part of the file in this entry; the first has at 0, the last end =
			     size */
	size_t nzeros;
	struct delta_range *zeros; /* of a partial file: not of the base either; owned */
};

struct delta_end {
	uint64_t entries; /* of all parts */
	uint64_t sum;
	bool has_base_sum;
	uint64_t base_sum;
};

/* Format as text, malloc'd; NULL: no memory. */
char *delta_record_format_head(const struct delta_head *h);
char *delta_record_format(const struct delta_record *r);
char *delta_record_format_end(const struct delta_end *e);
/* Parse. 0; -EUCLEAN: invalid; -EPROTO: a newer version; -ENOMEM. Release a record only after 0. */
int delta_record_parse_head(const char *text, size_t len, struct delta_head *ret);
int delta_record_parse(const char *text, size_t len, struct delta_record *ret);
int delta_record_parse_end(const char *text, size_t len, struct delta_end *ret);
void delta_record_release(struct delta_record *r);

/* The sum of the names of all entries, after this one. */
uint64_t delta_record_next_names(uint64_t names, const char *path, uint64_t at, uint64_t end);
/* The sum after an entry, from the sum before it and from this entry's header, data and base. */
uint64_t delta_record_next_sum(uint64_t sum, uint64_t header, uint64_t data, uint64_t base);
