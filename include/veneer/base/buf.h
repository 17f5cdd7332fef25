/* SPDX-License-Identifier: Apache-2.0 */
/* Growable bytes, the target of encoders. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The caller owns the struct, the module owns data. Zero-initialised is empty. */
struct buf {
	uint8_t *data;
	size_t len, cap;
};

void buf_release(struct buf *b);
bool buf_is_zero(const void *p, size_t len);
/* Append; 0 or -ENOMEM, and then nothing was appended. */
int buf_put(struct buf *b, const void *p, size_t len);
int buf_put_u8(struct buf *b, uint8_t v);
int buf_put_u16(struct buf *b, uint16_t v);
int buf_put_u32(struct buf *b, uint32_t v);
int buf_put_u64(struct buf *b, uint64_t v);
/* The next of texts that were put one after the other, each with its NUL; NULL at the end. *at is
 * where it begins, and moves on. It is valid until the next buf_put. */
const char *buf_next_text(const struct buf *b, size_t *at);
