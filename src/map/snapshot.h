/* SPDX-License-Identifier: Apache-2.0 */
/* The header and the snapshot half of a map file: to and from bytes, and into place at once. */
#pragma once

#include "table.h"
#include "veneer/base/buf.h"

#define SNAPSHOT_TEMP_BYTES 48 /* a temporary name with its NUL */

/* The damage that a reader found, for the line that names it. */
struct snapshot_damage {
	uint64_t off;
	const char *rule;
};

/* 0, or -EUCLEAN with the rule broken. *ret is in host order. */
int snapshot_header_decode(const void *p, size_t len, struct format_map_header *ret,
			   const char **ret_why);
/* Fills in h->checksum. */
void snapshot_header_encode(struct format_map_header *h,
			    uint8_t out[sizeof(struct format_map_header)]);
/* Seed of the snapshot's first record. */
uint64_t snapshot_seed(const struct format_map_header *h);

/* Do what a record of the snapshot says, if it may stand there. As table_apply. */
int snapshot_apply(struct table *t, const struct record *rec, const struct format_map_header *h,
		   const char **ret_why);
/* Read header and snapshot of fd into t, which is initialised. 0; -EUCLEAN with *ret_damage; other
 * -errno. */
int snapshot_load(int fd, struct table *t, struct format_map_header *ret,
		  struct snapshot_damage *ret_damage);

/* Append to out a whole map file of t: header, committed states as snapshot, then the log that
 * leads to the present states, opened by OPEN with this nonce if t is in a session. The features
 * are h's. Fills lengths and sums of h. *ret_sum is the checksum of the last record. 0 or -ENOMEM.
 */
int snapshot_build(const struct table *t, struct format_map_header *h, uint64_t nonce,
		   struct buf *out, uint64_t *ret_sum);

/* A new empty file in work_fd, its name in name. Descriptor or -errno. */
int snapshot_temp_open(int work_fd, char name[SNAPSHOT_TEMP_BYTES]);
/* Who the file is: fills h->self_ino and h->self_btime_ns. 0 or -errno. */
int snapshot_identify(int fd, struct format_map_header *h);
/* Keep a second copy of the header beside fd, with the end of the log and the sum there, 0 before
 * it was closed. Where that cannot be there is none: no error. */
void snapshot_copy_put(int fd, const struct format_map_header *h, uint64_t end, uint64_t end_sum);
/* Read it, whatever it says. 0; -EUCLEAN: there is none, or it is damaged. */
int snapshot_copy_get(int fd, struct format_map_header *ret, uint64_t *ret_end,
		      uint64_t *ret_end_sum);
/* Put it in the layer's place. 0 or -errno. */
int snapshot_publish(int work_fd, const char *name, int rootfd);
