// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/cursor.h"

#include <endian.h>
#include <string.h>

const uint8_t *cursor_bytes(struct cursor *c, size_t len)
{
	const uint8_t *p = c->p;

	if (c->bad || len > cursor_left(c)) {
		/* Nothing after the first overrun may look like data. */
		c->bad = true;
		c->p = c->end;
		return NULL;
	}
	if (len)
		c->p += len;
	return p;
}

static void take(struct cursor *c, void *dst, size_t len)
{
	const uint8_t *p = cursor_bytes(c, len);

	if (p)
		memcpy(dst, p, len);
}

uint8_t cursor_u8(struct cursor *c)
{
	uint8_t v = 0;

	take(c, &v, sizeof(v));
	return v;
}

uint16_t cursor_u16(struct cursor *c)
{
	uint16_t v = 0;

	take(c, &v, sizeof(v));
	return le16toh(v);
}

uint32_t cursor_u32(struct cursor *c)
{
	uint32_t v = 0;

	take(c, &v, sizeof(v));
	return le32toh(v);
}

uint64_t cursor_u64(struct cursor *c)
{
	uint64_t v = 0;

	take(c, &v, sizeof(v));
	return le64toh(v);
}
