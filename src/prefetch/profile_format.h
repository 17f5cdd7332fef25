/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a file of profile.h. All numbers are little-endian:
 *
 * start  magic "VPRF", version, bytes of the head, bytes of the body: u32 each; the checksum
 *        (hash.h) of the head and that of the body: u64 each
 * head   key u64, starts u32, judged u32, precision (a double) u64, last_seen u64, layers u32; each
 *        layer's key u64; label: u16 and its bytes
 * body   files u32, items u32; each file: layer u64, path: u16 and its bytes; each item: file u32,
 *        extent u32, kind u8, last_seen u64, seen u64, count u32, first_ms u32, order u32
 *
 * Decoders take any content: nonsense is left out, and never more than the bounds is taken. */
#pragma once

#include "veneer/base/buf.h"
#include "veneer/prefetch/profile.h"

#define PROFILE_FORMAT_START	32u
#define PROFILE_FORMAT_HEAD_MAX (1u << 20)
#define PROFILE_FORMAT_BODY_MAX \
	(PROFILE_BYTES_OF_FILE - PROFILE_FORMAT_HEAD_MAX - PROFILE_FORMAT_START)
#define PROFILE_FORMAT_ITEM_BYTES 37u
#define PROFILE_FORMAT_FILE_BYTES 10u /* and the path */

struct profile_format {
	uint32_t head, body;
	uint64_t head_sum, body_sum;
};

/* 0 or -ENOMEM. */
int profile_format_encode(const struct profile_image *img, struct buf *ret);
/* Of PROFILE_FORMAT_START bytes. 0, -EUCLEAN or -EPROTO. */
int profile_format_start(const uint8_t *p, struct profile_format *ret);
/* 0, -EUCLEAN or -ENOMEM, with *img to be released after each of them. Of an image that is
 * borrowed by `borrower` (or NULL) come the files of its layers. */
int profile_format_head(const struct profile_format *f, const uint8_t *p,
			struct profile_image *img);
int profile_format_body(const struct profile_format *f, const uint8_t *p,
			const struct profile_stack *borrower, struct profile_image *img);
