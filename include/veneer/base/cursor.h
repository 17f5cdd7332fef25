/* SPDX-License-Identifier: Apache-2.0 */
/* A bounds-checked little-endian cursor, through which every decoder reads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A window on bytes that the caller owns. Reading past the end sets `bad` and gives zeros; check
 * `bad` once at the end. */
struct cursor {
	const uint8_t *p, *end;
	bool bad;
};

static inline struct cursor cursor_over(const void *p, size_t len)
{
	return (struct cursor){ p, (const uint8_t *)p + len, false };
}
static inline size_t cursor_left(const struct cursor *c)
{
	return (size_t)(c->end - c->p);
}
uint8_t cursor_u8(struct cursor *c);
uint16_t cursor_u16(struct cursor *c);
uint32_t cursor_u32(struct cursor *c);
uint64_t cursor_u64(struct cursor *c);
/* Borrowed pointer to the next len bytes, or NULL with `bad` set. */
const uint8_t *cursor_bytes(struct cursor *c, size_t len);
