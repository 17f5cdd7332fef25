/* SPDX-License-Identifier: Apache-2.0 */
/* The header and the snapshot half of a map file: to bytes, and into place at once. */
#pragma once

#include "veneer/base/buf.h"
#include "veneer/map/snapshot.h"

#define SNAPSHOT_TEMP_BYTES 48 /* a temporary name with its NUL */

/* Fills in h->checksum. */
void snapshot_header_encode(struct format_map_header *h,
			    uint8_t out[sizeof(struct format_map_header)]);
/* Append to out a whole map file of t: header, committed states as snapshot, then the log that
 * leads to the present states, opened by OPEN with this nonce if t is in a session. The features
 * are h's. Fills lengths and sums of h. *ret_sum is the checksum of the last record. 0 or
 * -ENOMEM. */
int snapshot_build(const struct table *t, struct format_map_header *h, uint64_t nonce,
		   struct buf *out, uint64_t *ret_sum);

/* A new empty file in work_fd, its name in name. Descriptor or -errno. */
int snapshot_temp_open(int work_fd, char name[SNAPSHOT_TEMP_BYTES]);
/* Identify the file: fills h->self_ino and h->self_btime_ns. 0 or -errno. */
int snapshot_identify(int fd, struct format_map_header *h);
/* Is the file with this header that of a layer elsewhere? 1, 0 or -errno. */
int snapshot_is_copy(int fd, const struct format_map_header *h);
/* Keep a second copy of the header beside fd, with the end of the log and the sum there, 0 before
 * it was closed. Where that cannot be there is none: no error. */
void snapshot_copy_put(int fd, const struct format_map_header *h, uint64_t end, uint64_t end_sum);
/* Read it, with any content. 0; -EUCLEAN: there is none, or it is damaged. */
int snapshot_copy_get(int fd, struct format_map_header *ret, uint64_t *ret_end,
		      uint64_t *ret_end_sum);
/* Put it in the layer's place. 0 or -errno. */
int snapshot_publish(int work_fd, const char *name, int rootfd);
