// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/buf.h"

#include "veneer/base/array.h"
#include "veneer/base/minmax.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAP = 64 };

bool buf_is_zero(const void *p, size_t len)
{
	const uint8_t *bytes = p;

	return !len || (!bytes[0] && !memcmp(bytes, bytes + 1, len - 1));
}

void buf_release(struct buf *b)
{
	free(b->data);
	*b = (struct buf){ 0 };
}

static int reserve(struct buf *b, size_t len)
{
	size_t need;

	if (__builtin_add_overflow(b->len, len, &need))
		return -ENOMEM;
	return array_reserve(&b->data, &b->cap, MAX(need, FIRST_CAP));
}

int buf_put(struct buf *b, const void *p, size_t len)
{
	int r = reserve(b, len);

	if (r < 0)
		return r;
	if (len)
		memcpy(b->data + b->len, p, len);
	b->len += len;
	return 0;
}

int buf_put_u8(struct buf *b, uint8_t v)
{
	return buf_put(b, &v, sizeof(v));
}

int buf_put_u16(struct buf *b, uint16_t v)
{
	v = htole16(v);
	return buf_put(b, &v, sizeof(v));
}

int buf_put_u32(struct buf *b, uint32_t v)
{
	v = htole32(v);
	return buf_put(b, &v, sizeof(v));
}

int buf_put_u64(struct buf *b, uint64_t v)
{
	v = htole64(v);
	return buf_put(b, &v, sizeof(v));
}

const char *buf_next_text(const struct buf *b, size_t *at)
{
	const char *text;

	if (*at == b->len)
		return NULL;
	text = (const char *)b->data + *at;
	*at += strlen(text) + 1;
	return text;
}
