// SPDX-License-Identifier: Apache-2.0
#include "handoff_message.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/cursor.h"
#include "veneer/fuse/session.h"
#include "veneer/recover/estale_table.h"
#include "veneer/server/mount_record.h"
#include "veneer/server/sb_registry.h"
#include "veneer/union/lock_table.h"
#include "veneer/union/node_table.h"

#include <string.h>

#define TEXT_OF(x)  #x
#define VALUE_OF(x) TEXT_OF(x)
/* clang-format off */
#define VERSIONS \
	"bequest " VALUE_OF(HANDOFF_MESSAGE_VERSION) \
	", dossier " VALUE_OF(MOUNT_RECORD_VERSION) \
	", nodes " VALUE_OF(NODE_TABLE_VERSION) \
	", locks " VALUE_OF(LOCK_TABLE_VERSION) \
	", recall " VALUE_OF(ESTALE_TABLE_VERSION) \
	", init " VALUE_OF(SESSION_INIT_VERSION)
/* clang-format on */

/* A program without share=pages could neither continue a shared superblock nor end it. */
const char *handoff_message_versions(void)
{
	return sb_registry_is_built() ? VERSIONS : VERSIONS ", no share=pages";
}

bool handoff_message_fits(const char *versions, size_t len)
{
	const char *ours = handoff_message_versions();

	return len == strlen(ours) && !memcmp(versions, ours, len);
}

static int append(int **fds, size_t *n, int fd)
{
	int r = array_grow(fds, *n);

	if (r == 0)
		(*fds)[(*n)++] = fd;
	return r;
}

int handoff_message_add_mount(struct handoff_message *b, int fd)
{
	return append(&b->mounts, &b->n_mounts, fd);
}

int handoff_message_add_fd(struct handoff_message *b, int fd)
{
	return append(&b->fds, &b->n_fds, fd);
}

static int put_fds(struct buf *b, const int *fds, size_t n)
{
	int r = buf_put_u32(b, (uint32_t)n);

	for (size_t i = 0; r == 0 && i < n; i++)
		r = buf_put_u32(b, (uint32_t)fds[i]);
	return r;
}

int handoff_message_encode(const struct handoff_message *b, struct buf *ret)
{
	int r = buf_put_u32(ret, HANDOFF_MESSAGE_VERSION);

	r = r ?: buf_put_u32(ret, b->owns_socket);
	r = r ?: buf_put_u32(ret, (uint32_t)b->listen_fd);
	r = r ?: buf_put_u32(ret, (uint32_t)b->notify_fd);
	r = r ?: buf_put_u64(ret, b->hash_secret);
	r = r ?: buf_put_u64(ret, b->last_key);
	r = r ?: put_fds(ret, b->mounts, b->n_mounts);
	r = r ?: put_fds(ret, b->fds, b->n_fds);
	r = r ?: buf_put_u32(ret, (uint32_t)b->journal.len);
	return r ?: buf_put(ret, b->journal.data, b->journal.len);
}

static int get_fds(struct cursor *c, struct handoff_message *b,
		   int (*add)(struct handoff_message *b, int fd))
{
	uint32_t n = cursor_u32(c);
	int r = 0;

	for (uint32_t i = 0; r == 0 && !c->bad && i < n; i++)
		r = add(b, (int)cursor_u32(c));
	return r;
}

static bool has(const struct handoff_message *b, int fd)
{
	for (size_t i = 0; i < b->n_fds; i++)
		if (b->fds[i] == fd)
			return true;
	return false;
}

/* Each descriptor that the message names must be among those that come with it; otherwise the
 * number would belong to another file. */
static bool is_sane(const struct handoff_message *b)
{
	size_t n = 0;

	for (size_t i = 0; i < b->n_fds; i++)
		if (b->fds[i] < 0)
			return false;
	for (size_t i = 0; n < b->n_mounts && i < b->n_fds; i++)
		n += b->fds[i] == b->mounts[n];
	if (n < b->n_mounts)
		return false;
	return has(b, b->listen_fd) && (b->notify_fd < 0 || has(b, b->notify_fd));
}

static int decode(struct cursor *c, struct handoff_message *b)
{
	const uint8_t *journal;
	uint32_t len;
	int r;

	if (cursor_u32(c) != HANDOFF_MESSAGE_VERSION)
		return -EPROTO;
	b->owns_socket = cursor_u32(c);
	b->listen_fd = (int)cursor_u32(c);
	b->notify_fd = (int)cursor_u32(c);
	b->hash_secret = cursor_u64(c);
	b->last_key = cursor_u64(c);
	r = get_fds(c, b, handoff_message_add_mount);
	r = r ?: get_fds(c, b, handoff_message_add_fd);
	len = cursor_u32(c);
	journal = cursor_bytes(c, len);
	if (r == 0 && journal)
		r = buf_put(&b->journal, journal, len);
	return r < 0 ? r : c->bad || cursor_left(c) || !is_sane(b) ? -EBADMSG : 0;
}

int handoff_message_decode(const void *p, size_t len, struct handoff_message *ret)
{
	struct cursor c = cursor_over(p, len);
	int r;

	*ret = (struct handoff_message){ .listen_fd = -1, .notify_fd = -1 };
	r = decode(&c, ret);
	if (r < 0)
		handoff_message_release(ret);
	return r;
}

void handoff_message_release(struct handoff_message *b)
{
	free(b->mounts);
	free(b->fds);
	buf_release(&b->journal);
	*b = (struct handoff_message){ .listen_fd = -1, .notify_fd = -1 };
}
