// SPDX-License-Identifier: Apache-2.0
#include "wire.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/cursor.h"

#include <string.h>

/* The fields of a type, in the order of the bytes. */
enum field {
	HAS_ROLE = 1,
	HAS_FLAGS = 2,
	HAS_COUNT = 4,
	HAS_DEVICE = 8,
	HAS_SIZE = 16,
	HAS_TEXT = 32
};

static const unsigned fields[WIRE_TYPES] = {
	[WIRE_HELLO] = HAS_TEXT,
	[WIRE_DIRS] = HAS_ROLE,
	[WIRE_ARGS] = HAS_TEXT,
	[WIRE_MOUNT] = HAS_FLAGS | HAS_COUNT | HAS_SIZE,
	[WIRE_READY] = HAS_FLAGS,
	[WIRE_FUSE] = HAS_DEVICE,
	[WIRE_OK] = 0,
	[WIRE_ERROR] = HAS_COUNT | HAS_TEXT,
	[WIRE_STATS] = 0,
	[WIRE_TEXT] = HAS_TEXT,
	[WIRE_PING] = 0,
	[WIRE_PONG] = HAS_COUNT | HAS_SIZE,
	[WIRE_UPGRADE] = HAS_TEXT,
	[WIRE_HANDOFF_MESSAGE] = HAS_COUNT,
	[WIRE_FLATTEN] = HAS_COUNT | HAS_DEVICE | HAS_SIZE,
	[WIRE_SHARED] = HAS_COUNT,
	[WIRE_BOUND] = 0,
	[WIRE_SNAPSHOT] = HAS_COUNT | HAS_DEVICE | HAS_SIZE | HAS_TEXT,
	[WIRE_ROLLBACK] = HAS_COUNT | HAS_DEVICE | HAS_SIZE | HAS_TEXT,
	[WIRE_SQUASH] = HAS_COUNT | HAS_DEVICE | HAS_SIZE | HAS_TEXT,
};

static int put_payload(const struct wire_message *m, struct buf *b)
{
	const unsigned has = fields[m->type];
	int r = 0;

	if (has & HAS_ROLE) {
		r = buf_put_u16(b, (uint16_t)m->role);
		r = r < 0 ? r : buf_put_u16(b, (uint16_t)m->n_fds);
	}
	if (r == 0 && has & HAS_FLAGS)
		r = buf_put_u32(b, m->flags);
	if (r == 0 && has & HAS_COUNT)
		r = buf_put_u32(b, m->count);
	if (r == 0 && has & HAS_DEVICE) {
		r = buf_put_u32(b, m->dev_major);
		r = r < 0 ? r : buf_put_u32(b, m->dev_minor);
	}
	if (r == 0 && has & HAS_SIZE)
		r = buf_put_u64(b, m->size);
	if (r == 0 && has & HAS_TEXT)
		r = buf_put(b, m->text, m->text_len);
	return r;
}

int wire_encode(const struct wire_message *m, struct buf *ret)
{
	_cleanup_(buf_release) struct buf payload = { 0 };
	size_t before = ret->len;
	int r;

	if (m->text_len > WIRE_PAYLOAD_MAX - 64)
		return -EMSGSIZE;
	r = put_payload(m, &payload);
	if (r == 0)
		r = buf_put_u32(ret, WIRE_MAGIC);
	if (r == 0)
		r = buf_put_u16(ret, WIRE_VERSION);
	if (r == 0)
		r = buf_put_u16(ret, (uint16_t)m->type);
	if (r == 0)
		r = buf_put_u32(ret, (uint32_t)payload.len);
	if (r == 0 && payload.len)
		r = buf_put(ret, payload.data, payload.len);
	if (r < 0)
		ret->len = before;
	return r;
}

static bool take_payload(struct cursor *c, struct wire_message *m)
{
	const unsigned has = fields[m->type];

	if (has & HAS_ROLE) {
		m->role = cursor_u16(c);
		m->n_fds = cursor_u16(c);
		if (m->role > WIRE_STATE || m->n_fds == 0 || m->n_fds > WIRE_FDS_MAX ||
		    (m->role != WIRE_LOWER && m->role != WIRE_CLONE && m->n_fds != 1))
			return false;
	}
	if (has & HAS_FLAGS)
		m->flags = cursor_u32(c);
	if (has & HAS_COUNT)
		m->count = cursor_u32(c);
	if (has & HAS_DEVICE) {
		m->dev_major = cursor_u32(c);
		m->dev_minor = cursor_u32(c);
		m->n_fds = m->type == WIRE_FUSE;
	}
	if (has & HAS_SIZE)
		m->size = cursor_u64(c);
	if (has & HAS_TEXT) {
		m->text_len = cursor_left(c);
		m->text = (const char *)cursor_bytes(c, m->text_len);
	}
	return !c->bad && cursor_left(c) == 0;
}

/* Are the numbers of a well-formed message in range? */
static bool is_sane(const struct wire_message *m)
{
	switch (m->type) {
	case WIRE_MOUNT:
		return m->count > 0 && m->count <= WIRE_ARGC_MAX && m->size > 0 &&
		       m->size <= WIRE_ARGS_MAX &&
		       !(m->flags & ~(WIRE_MOUNT_IS_ROOT | WIRE_MOUNT_NO_DEVICE_WHITEOUTS |
				      WIRE_MOUNT_CAN_SHARE));
	case WIRE_READY:
		return !(m->flags & ~WIRE_READY_READONLY);
	case WIRE_ERROR:
		return m->count > 0 && m->count < 256;
	default:
		return true;
	}
}

int wire_decode(const void *p, size_t len, struct wire_message *ret)
{
	struct cursor c = cursor_over(p, len);
	uint32_t magic = cursor_u32(&c);
	uint32_t payload;

	*ret = (struct wire_message){ 0 };
	ret->version = cursor_u16(&c);
	ret->type = cursor_u16(&c);
	payload = cursor_u32(&c);
	if (c.bad || magic != WIRE_MAGIC || payload > WIRE_PAYLOAD_MAX ||
	    payload != cursor_left(&c))
		return -EBADMSG;
	if (ret->version != WIRE_VERSION && ret->type != WIRE_ERROR)
		return -EPROTO;
	if (ret->type == 0 || ret->type >= WIRE_TYPES || !take_payload(&c, ret) || !is_sane(ret))
		return -EBADMSG;
	return 0;
}

int wire_put_arg(struct buf *b, const char *s)
{
	return buf_put(b, s, strlen(s) + 1);
}

int wire_split_args(char *text, size_t len, uint32_t argc, const char **ret_cwd, char ***ret_argv)
{
	_cleanup_(freep) char **argv = NULL;
	char *at = text, *end;

	if (argc == 0 || argc > WIRE_ARGC_MAX || len == 0 || text[len - 1])
		return -EBADMSG;
	end = text + len;
	argv = calloc((size_t)argc + 1, sizeof(*argv));
	if (!argv)
		return -ENOMEM;
	at += strlen(at) + 1;
	for (uint32_t i = 0; i < argc; i++) {
		if (at == end)
			return -EBADMSG;
		argv[i] = at;
		at += strlen(at) + 1;
	}
	if (at != end)
		return -EBADMSG;
	*ret_cwd = text;
	*ret_argv = steal_ptr(&argv);
	return 0;
}
